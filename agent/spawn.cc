#include "agent/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/file.h"

namespace holdfast::agent {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Child {
  char* const* argv;
  char* const* cgroups;
  int mnt, lock, output, failure;
};

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void Exec(const Child& child) {
  auto fail = [&child] {
    int error = errno;
    [[maybe_unused]] ssize_t n = write(child.failure, &error, sizeof error);
    _exit(127);
  };
  if (setsid() < 0) fail();
  int null = open("/dev/null", O_RDONLY);
  if (dup2(null, 0) < 0 || dup2(child.output, 1) < 0 || dup2(child.output, 2) < 0) fail();
  if (child.lock >= 0) {
    char pid[16];
    int at = sizeof pid;
    pid[--at] = '\n';
    for (int n = getpid(); n > 0; n /= 10) pid[--at] = static_cast<char>('0' + n % 10);
    if (flock(child.lock, LOCK_EX | LOCK_NB) != 0 || ftruncate(child.lock, 0) != 0 ||
        pwrite(child.lock, pid + at, sizeof pid - static_cast<size_t>(at), 0) < 0) {
      fail();
    }
  }
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);  // nothing of ours outlives us in there, but the lock
  if (child.lock >= 0 && fcntl(child.lock, F_SETFD, 0) != 0) fail();
  if (child.mnt >= 0 && (setns(child.mnt, CLONE_NEWNS) != 0 || chdir("/") != 0)) fail();
  for (char* const* file = child.cgroups; *file != nullptr; ++file) {
    int fd = open(*file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    [[maybe_unused]] ssize_t n = write(fd, "0", 1);
    close(fd);
  }
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execv(child.argv[0], child.argv);
  fail();
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<int> SpawnDetached(const std::vector<std::string>& argv, const SpawnOptions& options) {
  if (argv.empty() || argv[0].empty() || argv[0][0] != '/') return Status(Code::kInvalidArgument, "no absolute path of a program given");
  Fd mnt(options.mount_namespace_of_pid == 0
             ? -1
             : open(("/proc/" + std::to_string(options.mount_namespace_of_pid) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  if (options.mount_namespace_of_pid != 0 && mnt.get() < 0) {
    return Status(Code::kUnavailable, "the process that leads to the node's mount namespace is gone");
  }
  Fd lock(options.lock_file.empty() ? -1 : open(options.lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!options.lock_file.empty() && lock.get() < 0) return Status(Code::kInternal, "cannot open " + options.lock_file);
  Fd output(open(options.output_file.empty() ? "/dev/null" : options.output_file.c_str(),
                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (output.get() < 0) return Status(Code::kInternal, "cannot open " + options.output_file);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return Status(Code::kResourceExhausted, "out of file descriptors");
  std::vector<char*> args = Pointers(argv), cgroups = Pointers(options.cgroup_procs);
  const pid_t pid = fork();
  if (pid == 0) Exec({args.data(), cgroups.data(), mnt.get(), lock.get(), output.get(), failure[1]});
  close(failure[1]);
  Fd result(failure[0]);
  if (pid < 0) return Status(Code::kResourceExhausted, "cannot fork");
  int error = 0;
  if (read(result.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, nullptr, 0);
    if (error == EWOULDBLOCK) return Status(Code::kAlreadyExists, options.lock_file + " is held by a running process");
    return Status(Code::kNotFound, "cannot run " + argv[0] + " on the node: " + std::generic_category().message(error));
  }
  return static_cast<int>(pid);
}

std::vector<std::string> RootCgroups(const std::string& root) {
  const std::string top = "/sys/fs/cgroup";
  if (Exists(root + top + "/cgroup.procs")) return {top + "/cgroup.procs"};  // v2
  std::vector<std::string> files;
  Result<std::vector<std::string>> names = ListDir(root + top);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    if (Exists(root + top + "/" + name + "/cgroup.procs")) files.push_back(top + "/" + name + "/cgroup.procs");
  }
  return files;
}

}  // namespace holdfast::agent
