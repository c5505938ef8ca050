#include "runtime/spec_mounts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/beneath.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

uint32_t FlagsOf(const Json& mount) {
  struct Option {
    std::string_view set, cleared;
    uint32_t flag;
  };
  constexpr Option kOptionNames[] = {
      {"ro", "rw", MS_RDONLY}, {"nosuid", "suid", MS_NOSUID}, {"nodev", "dev", MS_NODEV}, {"noexec", "exec", MS_NOEXEC}};
  uint32_t flags = 0;
  for (const Json& option : GetArray(mount, {"options"})) {
    const std::string name = option.is_string() ? option.get<std::string>() : "";
    for (const Option& known : kOptionNames) {
      if (name == known.set) flags |= known.flag;
      if (name == known.cleared) flags &= ~known.flag;
    }
  }
  return flags;
}

bool IsBind(const Json& mount) {
  for (const Json& option : GetArray(mount, {"options"})) {
    if (option.is_string() && (option == "bind" || option == "rbind")) return true;
  }
  return GetString(mount, {"type"}) == "bind";
}

// As runc places it: through the links of the root folder as far as it is there.
std::string Placed(const std::string& root, const std::string& destination) {
  const Fd top(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top.ok()) return destination;
  char base[4096], target[4096];
  const ssize_t base_size = readlink(top.Path().c_str(), base, sizeof base);
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  for (std::string there = destination, rest; base_size > 0 && there.size() > 1;) {
    const Fd fd(static_cast<int>(syscall(SYS_openat2, top.get(), there.c_str(), &how, sizeof how)));
    if (fd.ok()) {
      const ssize_t size = readlink(fd.Path().c_str(), target, sizeof target);
      const std::string_view found(target, size < 0 ? 0 : static_cast<size_t>(size)), in(base, static_cast<size_t>(base_size));
      return IsWithin(found, in) ? PlainPath(std::string(found.substr(in == "/" ? 0 : in.size())) + rest) : destination;
    }
    const size_t step = there.rfind('/');
    rest = there.substr(step) + rest;
    there.resize(step);
  }
  return destination;
}

}  // namespace

std::map<std::string, SpecMount> SpecMounts(const Json& spec, const std::string& root) {
  std::map<std::string, SpecMount> mounts;
  for (const Json& mount : GetArray(spec, {"mounts"})) {
    const std::string destination = PlainPath(GetString(mount, {"destination"}));
    const SpecMount wanted{IsBind(mount) ? "bind" : GetString(mount, {"type"}), GetString(mount, {"source"}), FlagsOf(mount)};
    mounts[Placed(root, destination)] = wanted;
    mounts.emplace(destination, wanted);
  }
  return mounts;
}

std::string PlainPath(const std::string& path) {
  std::string plain;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at && path.compare(at, end - at, ".") != 0) plain += "/" + path.substr(at, end - at);
    at = end + 1;
  }
  return plain.empty() ? "/" : plain;
}

}  // namespace holdfast::runtime
