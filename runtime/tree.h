// Directory trees as pax archives: exact (owners, modes, times, xattrs, ACLs, hard links, sparse files) and bounded.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// Archives what lies below `dir` and `dir` itself, without crossing into other file systems. Sockets and devices are left out, but not
// overlayfs whiteouts (character device 0/0). kUnsupported when an overlay upper directory refers to other layers by redirect or metacopy.
Status ArchiveTree(const std::string& dir, const std::string& tar);

// Empties `dir` (which stays) and fills it from the archive. No entry leaves `dir`; devices are passed over.
Status ExtractTree(const std::string& tar, const std::string& dir);

// Applies the archive of an overlay's upper directory to `rootfs`, a fresh overlay over the same image: whiteouts delete, opaque
// directories are emptied first, the rest is written over what is there.
Status ExtractUpper(const std::string& tar, const std::string& rootfs);

Status EmptyDirectory(const std::string& dir);

}  // namespace holdfast::runtime
