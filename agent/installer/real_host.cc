#include "agent/installer/real_host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/boot.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxProgram = size_t{256} << 20;
constexpr int kMaxDepth = 8;

std::string Namespace(const std::string& pid) {
  char target[64];
  ssize_t n = readlink(("/proc/" + pid + "/ns/mnt").c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

std::string ReadOr(const std::string& path) { return ReadFile(path, 1 << 20).value_or(""); }

// /proc files of arguments and environments: strings that end in NUL.
std::vector<std::string> Strings(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\0', at);
    if (end == std::string::npos) end = text.size();
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Nothing: it has ended.
std::optional<WallTime> StartOf(const std::string& pid) {
  const std::optional<long long> ticks = StartTicks(pid);
  if (!ticks) return std::nullopt;
  // Ticks count from boot, on the clock that also ran while the machine slept.
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const auto since_boot = std::chrono::seconds(boot.tv_sec) + std::chrono::nanoseconds(boot.tv_nsec);
  return Clock::Real().Wall() - since_boot + std::chrono::milliseconds(*ticks * 1000 / sysconf(_SC_CLK_TCK));
}

bool SameFolder(const std::string& a, const std::string& b) {
  struct stat x, y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Result<bool> CopyLevel(const std::string& from, const std::string& to, int depth) {
  if (depth > kMaxDepth) return Status(Code::kInvalidArgument, from + " is too deep");
  HF_RETURN_IF_ERROR(MakeDirs(to, 0755));
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(from));
  bool changed = false;
  for (const std::string& name : names) {
    const std::string source = from + "/" + name, target = to + "/" + name;
    struct stat info;
    if (lstat(source.c_str(), &info) != 0) return Status(Code::kInternal, "cannot read " + source);
    if (S_ISDIR(info.st_mode)) {
      HF_ASSIGN_OR_RETURN(bool below, CopyLevel(source, target, depth + 1));
      changed = changed || below;
    } else if (S_ISREG(info.st_mode)) {
      HF_ASSIGN_OR_RETURN(std::string wanted, ReadFile(source, kMaxProgram));
      struct stat there;
      const bool same_mode =
          lstat(target.c_str(), &there) == 0 && S_ISREG(there.st_mode) && (there.st_mode & 07777) == (info.st_mode & 07777);
      if (same_mode && static_cast<size_t>(there.st_size) == wanted.size() && ReadFile(target, kMaxProgram).value_or("") == wanted)
        continue;
      HF_RETURN_IF_ERROR(WriteFileDurably(target, wanted, info.st_mode & 07777));
      changed = true;
    } else if (S_ISLNK(info.st_mode)) {
      char link[4096];
      ssize_t n = readlink(source.c_str(), link, sizeof link - 1);
      if (n < 0) return Status(Code::kInternal, "cannot read " + source);
      link[n] = '\0';
      const std::string fresh = target + ".new";
      unlink(fresh.c_str());
      if (symlink(link, fresh.c_str()) != 0 || rename(fresh.c_str(), target.c_str()) != 0)
        return Status(Code::kInternal, "cannot write " + target);
    }
  }
  return changed;
}

}  // namespace

Result<bool> CopyTree(const std::string& from, const std::string& to) { return CopyLevel(from, to, 0); }

RealHost::RealHost(HostNode& node, std::string source) : node_(node), source_(std::move(source)) {}

Result<std::string> RealHost::Read(const std::string& path) { return ReadFile(node_.Path(path)); }

Status RealHost::Write(const std::string& path, const std::string& data, unsigned mode) {
  HF_RETURN_IF_ERROR(MakeDirs(node_.Path(path.substr(0, path.rfind('/'))), 0755));
  return WriteFileDurably(node_.Path(path), data, mode);
}

Status RealHost::Link(const std::string& path, const std::string& target) {
  HF_RETURN_IF_ERROR(MakeDirs(node_.Path(path.substr(0, path.rfind('/'))), 0755));
  if (symlink(target.c_str(), node_.Path(path).c_str()) == 0) return Status::Ok();
  return Status(errno == EEXIST ? Code::kAlreadyExists : Code::kInternal, "cannot make the link " + path);
}

Status RealHost::Remove(const std::string& path) { return RemoveAll(node_.Path(path)); }

FileInfo RealHost::Look(const std::string& path) {
  FileInfo out;
  struct stat info;
  if (lstat(node_.Path(path).c_str(), &info) != 0) return out;
  out.exists = true;
  out.link = S_ISLNK(info.st_mode);
  out.changed = WallTime(std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec));
  if (out.link) {
    char target[4096];
    ssize_t n = readlink(node_.Path(path).c_str(), target, sizeof target);
    if (n > 0) out.target.assign(target, static_cast<size_t>(n));
  }
  return out;
}

Result<ProcessResult> RealHost::Run(const std::vector<std::string>& argv, Duration timeout) { return node_.Run(argv, timeout); }

Result<ContainerdProcess> RealHost::Containerd() {
  const std::string node_namespace = Namespace(std::to_string(node_.host_pid()));
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir("/proc"));
  std::optional<ContainerdProcess> oldest;  // a younger one may be a command of somebody's, as `containerd --version` of ours
  for (const std::string& name : names) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (ReadOr("/proc/" + name + "/comm") != "containerd\n" || Namespace(name) != node_namespace) continue;
    const std::vector<std::string> args = Strings(ReadOr("/proc/" + name + "/cmdline"));
    if (args.empty()) continue;  // a zombie
    ContainerdProcess out;
    out.pid = atoi(name.c_str());
    const std::optional<WallTime> started = StartOf(name);
    if (!started || (oldest && oldest->started <= *started)) continue;
    out.started = *started;
    for (size_t i = 1; i < args.size(); ++i) {
      if ((args[i] == "--config" || args[i] == "-c") && i + 1 < args.size()) out.config_file = args[i + 1];
      if (args[i].starts_with("--config=")) out.config_file = args[i].substr(9);
    }
    for (const std::string& entry : Strings(ReadOr("/proc/" + name + "/environ"))) {
      if (entry.starts_with("PATH=")) out.path = entry.substr(5);
    }
    oldest = std::move(out);
  }
  if (oldest) return *oldest;
  return Status(Code::kNotFound, "no containerd runs on this node");
}

Status RealHost::Terminate(int pid) {
  if (kill(pid, SIGTERM) == 0 || errno == ESRCH) return Status::Ok();
  return Status(Code::kPermissionDenied, "cannot signal containerd");
}

bool RealHost::ContainerdAnswers() {
  const std::string path = node_.Path("/run/containerd/containerd.sock");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

Result<bool> RealHost::CopyPrograms() {
  const std::string target = node_.Path("/opt/holdfast");
  HF_RETURN_IF_ERROR(MakeDirs(target, 0755));
  std::vector<std::string> sources = {"/opt/holdfast-image", "/usr/share/holdfast", "/opt/holdfast"};
  if (!source_.empty()) sources = {source_};
  for (const std::string& source : sources) {
    // The node's own folder may be mounted over the image's: that is no source.
    if (Exists(source + "/bin/holdfast-runc") && !SameFolder(source, target)) return CopyTree(source, target);
  }
  return Status(Code::kNotFound, "this image carries no programs for the node (looked for bin/holdfast-runc in " + sources.front() +
                                     "); give --install-from");
}

}  // namespace holdfast::agent
