// Directory trees as pax archives: exact (owners, modes, times, xattrs, ACLs, hard links, sparse files) and bounded. Whoever changes the
// tree meanwhile changes what of it is seen, and nothing else: no link is followed, and no path is looked at twice (beneath.h).
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::runtime {

// Archives what lies below `dir` and `dir` itself, without crossing into what is mounted there. Sockets and devices are left out, but not
// overlayfs whiteouts (character device 0/0). A file that becomes shorter meanwhile ends in zeros; one that goes is left out. kUnsupported
// when an overlay upper directory refers to other layers by redirect or metacopy, kDeadlineExceeded when it is not done by `until`.
Status ArchiveTree(const std::string& dir, const std::string& tar, MonoTime until = MonoTime::max());

// Empties `dir` (which stays) and fills it from the archive. No entry leaves `dir`; devices are passed over.
Status ExtractTree(const std::string& tar, const std::string& dir);

// Applies the archive of an overlay's upper directory to `rootfs`, a fresh overlay over the same image: whiteouts delete, opaque
// directories are emptied first, the rest is written over what is there.
Status ExtractUpper(const std::string& tar, const std::string& rootfs);

Status EmptyDirectory(const std::string& dir);

}  // namespace holdfast::runtime
