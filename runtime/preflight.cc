#include "runtime/preflight.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr long kMqueueMagic = 0x19800202;
constexpr size_t kMaxDescriptors = 200000;  // over all processes: beyond it CRIU itself says what it does not like

std::string ReadLink(const std::string& path) {
  char target[4096];
  ssize_t n = readlink(path.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

// The state letter of /proc/PID/stat: it follows the last ')', since the name may hold anything.
char ProcessState(const std::string& stat) {
  size_t paren = stat.rfind(')');
  return paren != std::string::npos && paren + 2 < stat.size() ? stat[paren + 2] : '?';
}

std::string Name(const std::string& stat) {
  size_t open = stat.find('('), close = stat.rfind(')');
  return open != std::string::npos && close != std::string::npos && open < close ? stat.substr(open + 1, close - open - 1) : "?";
}

// What the descriptor is, when CRIU cannot dump it.
const char* Undumpable(const std::string& target, const std::string& path) {
  if (target == "anon_inode:[io_uring]") return "an io_uring (seccomp RuntimeDefault makes programs do without)";
  if (target == "anon_inode:[userfaultfd]") return "a userfaultfd";
  if (target.starts_with("/secretmem")) return "a memfd_secret";
  if (target == "/dev/tty") return "/dev/tty (an interactive shell)";
  struct statfs info;
  // Message queues show as "/name" directly below a root.
  if (target.size() > 1 && target[0] == '/' && target.find('/', 1) == std::string::npos && statfs(path.c_str(), &info) == 0 &&
      info.f_type == kMqueueMagic) {
    return "a POSIX message queue";
  }
  return nullptr;
}

}  // namespace

Status CheckDumpable(const std::vector<int>& pids, bool unified_cgroup, const std::string& proc) {
  size_t descriptors = 0;
  std::string user_namespace;
  for (int pid : pids) {
    const std::string dir = proc + "/" + std::to_string(pid);
    Result<std::string> stat = ReadFile(dir + "/stat", 4096);
    if (!stat.ok()) continue;
    auto refuse = [&](const std::string& why) {
      return Status(Code::kUnsupported, "process " + std::to_string(pid) + " (" + Name(*stat) + ") " + why);
    };
    const char state = ProcessState(*stat);
    if (state == 't') return refuse("is being traced by a debugger");
    if (state == 'T' && !unified_cgroup) return refuse("is stopped by a signal, which CRIU cannot dump on cgroup v1 (send it SIGCONT)");
    std::string space = ReadLink(dir + "/ns/user");
    if (user_namespace.empty()) user_namespace = space;
    if (!space.empty() && space != user_namespace) return refuse("has a user namespace of its own");
    Result<std::vector<std::string>> names = ListDir(dir + "/fd");
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (++descriptors > kMaxDescriptors) return Status::Ok();
      const std::string path = dir + "/fd/" + name;
      if (const char* what = Undumpable(ReadLink(path), path)) return refuse("holds " + std::string(what) + ", which CRIU cannot dump");
    }
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
