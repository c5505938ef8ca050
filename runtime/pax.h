// A pax archive (POSIX.1-2001) as it is written: GNU's sparse format 1.0, attributes as star's SCHILY.xattr and SCHILY.acl. What reads it
// is libarchive, or any tar. Nothing here costs more than the bytes that come out: a hole is two numbers, however long it is.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

struct Extent {
  off_t offset, size;
};

struct PaxEntry {
  std::string path;  // relative; "." for the top
  struct stat info;
  std::string target;                             // of a symbolic link
  std::string hardlink;                           // the path of its first name: nothing else of it is written
  std::map<std::string, std::string> attributes;  // xattrs, without those of ACLs
  std::string acl, default_acl;                   // as text (posix_acl.h); empty: none beside the mode
  bool sparse = false;
  std::vector<Extent> extents;  // of a sparse file: what is data, in order
};

// Its headers, and a sparse file's map. The data follows, DataSize bytes, then zeros up to a multiple of 512.
std::string PaxHeader(const PaxEntry& entry);
off_t DataSize(const PaxEntry& entry);
// The end of an archive.
std::string PaxEnd();

}  // namespace holdfast::runtime
