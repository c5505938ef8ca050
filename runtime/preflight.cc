#include "runtime/preflight.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr long kMqueueMagic = 0x19800202;
constexpr size_t kMaxDescriptors = 200000;  // over all processes: beyond it CRIU itself says what it does not like

// What CRIU 4.2 can dump: criu/files.c, criu/sockets.c, criu/sk-inet.c. The kernel names a socket's protocol in the socket's attribute
// system.sockprotoname (net/socket.c), which lsof reads too.
constexpr std::array<std::string_view, 8> kAnonymous = {"[eventfd]",  "[eventpoll]", "inotify", "[fanotify]",
                                                        "[signalfd]", "[timerfd]",   "[pidfd]", "bpf-map"};
constexpr std::array<std::string_view, 14> kProtocols = {"TCP",   "TCPv6", "UDP",    "UDPv6", "UDP-Lite",    "UDPLITEv6", "RAW",
                                                         "RAWv6", "PING",  "PINGv6", "UNIX",  "UNIX-STREAM", "PACKET",    "NETLINK"};

template <class List>
bool Has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

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

// From /proc/PID/status. A traced process runs most of the time, and CRIU cannot take it from its tracer.
bool IsTraced(const std::string& status) {
  constexpr std::string_view kKey = "\nTracerPid:\t";
  const size_t at = status.find(kKey);
  return at != std::string::npos && at + kKey.size() < status.size() && status[at + kKey.size()] != '0';
}

std::string AnonymousKind(std::string_view kind) {
  if (Has(kAnonymous, kind)) return "";
  if (kind == "[io_uring]") return "an io_uring (seccomp RuntimeDefault makes programs do without)";
  if (kind == "[userfaultfd]") return "a userfaultfd";
  return "an anonymous file of kind " + std::string(kind);
}

std::string SocketKind(const std::string& path) {
  char name[64];
  ssize_t size = getxattr(path.c_str(), "system.sockprotoname", name, sizeof name);
  if (size <= 0) return "";  // of a process that has just ended
  const std::string_view protocol(name, strnlen(name, static_cast<size_t>(size)));
  if (protocol.empty() || Has(kProtocols, protocol)) return "";
  if (protocol.starts_with("MPTCP")) {
    return "a Multipath TCP socket (Go's net.Listen opens them by itself; set GODEBUG=multipathtcp=0, or restart the pod: its network "
           "then has none)";
  }
  return "a socket of protocol " + std::string(protocol);
}

// Memory devices, terminals, and of the others only /dev/net/tun.
std::string DeviceKind(const std::string& target, const struct stat& info) {
  constexpr unsigned kMemory = 1, kTty = 4, kAlternateTty = 5, kMisc = 10, kTun = 200, kFirstPty = 128, kLastPty = 143;
  if (target == "/dev/tty") return "/dev/tty (an interactive shell)";
  if (target.starts_with("/dev/nvidia")) return "";  // gpu.h knows
  const unsigned major_number = major(info.st_rdev), minor_number = minor(info.st_rdev);
  const bool known = major_number == kMemory || major_number == kTty || major_number == kAlternateTty ||
                     (major_number >= kFirstPty && major_number <= kLastPty) || (major_number == kMisc && minor_number == kTun);
  return known ? "" : "the device " + target;
}

// What the descriptor is, when CRIU cannot dump it; else nothing.
std::string Undumpable(const std::string& target, const std::string& path) {
  constexpr std::string_view kAnon = "anon_inode:";
  if (target.starts_with(kAnon)) return AnonymousKind(std::string_view(target).substr(kAnon.size()));
  if (target.starts_with("socket:[")) return SocketKind(path);
  if (target.starts_with("/secretmem")) return "a memfd_secret";
  struct statfs system;
  // Message queues show as "/name" directly below a root.
  if (target.size() > 1 && target[0] == '/' && target.find('/', 1) == std::string::npos && statfs(path.c_str(), &system) == 0 &&
      system.f_type == kMqueueMagic) {
    return "a POSIX message queue";
  }
  struct stat info;
  if (target.starts_with('/') && stat(path.c_str(), &info) == 0 && S_ISCHR(info.st_mode)) return DeviceKind(target, info);
  return "";
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
    if (state == 't' || IsTraced(ReadFile(dir + "/status", 65536).value_or(""))) return refuse("is being traced by a debugger");
    if (state == 'T' && !unified_cgroup) return refuse("is stopped by a signal, which CRIU cannot dump on cgroup v1 (send it SIGCONT)");
    std::string space = ReadLink(dir + "/ns/user");
    if (user_namespace.empty()) user_namespace = space;
    if (!space.empty() && space != user_namespace) return refuse("has a user namespace of its own");
    Result<std::vector<std::string>> names = ListDir(dir + "/fd");
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (++descriptors > kMaxDescriptors) return Status::Ok();
      const std::string path = dir + "/fd/" + name;
      const std::string what = Undumpable(ReadLink(path), path);
      if (!what.empty()) return refuse("holds " + what + ", which CRIU cannot dump");
    }
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
