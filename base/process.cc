#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace holdfast {
namespace {

void CloseAll(std::initializer_list<int> fds) {
  for (int fd : fds) {
    if (fd >= 0) close(fd);
  }
}

int OpenNamespace(int pid, const char* kind) {
  if (pid == 0) return -1;
  std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void ExecChild(char* const* argv, char* const* envp, int out, int err, int failure, int mnt, int net, bool session) {
  auto fail = [failure] {
    int error = errno;
    [[maybe_unused]] ssize_t n = write(failure, &error, sizeof error);
    _exit(127);
  };
  if (session ? setsid() < 0 : setpgid(0, 0) != 0) fail();
  int null = open("/dev/null", O_RDONLY);
  if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) fail();
  if (net >= 0 && setns(net, CLONE_NEWNET) != 0) fail();
  if (mnt >= 0 && (setns(mnt, CLONE_NEWNS) != 0 || chdir("/") != 0)) fail();
  signal(SIGPIPE, SIG_DFL);
  execvpe(argv[0], argv, envp);
  fail();
  _exit(127);
}

}  // namespace

Result<ProcessResult> RunProcess(const std::vector<std::string>& argv, const ProcessOptions& options, std::stop_token stop) {
  if (argv.empty()) return Status(Code::kInvalidArgument, "no program given");
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  std::vector<char*> env;
  for (char** e = environ; *e != nullptr; ++e) {
    std::string_view entry(*e);
    bool replaced = false;
    for (const std::string& own : options.env) {
      size_t key = own.find('=');
      replaced = replaced || (key != std::string::npos && entry.substr(0, key + 1) == std::string_view(own).substr(0, key + 1));
    }
    if (!replaced) env.push_back(*e);
  }
  for (const std::string& own : options.env) env.push_back(const_cast<char*>(own.c_str()));
  env.push_back(nullptr);

  int mnt = OpenNamespace(options.mount_namespace_of_pid, "mnt");
  int net = OpenNamespace(options.network_namespace_of_pid, "net");
  if ((options.mount_namespace_of_pid != 0 && mnt < 0) || (options.network_namespace_of_pid != 0 && net < 0)) {
    CloseAll({mnt, net});
    return Status(Code::kNotFound, "cannot run " + argv[0] + ": the process whose namespaces it should join is gone");
  }
  int out[2], err[2], failure[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    CloseAll({mnt, net});
    return Status(Code::kResourceExhausted, "cannot run " + argv[0] + ": out of file descriptors");
  }
  if (pipe2(err, O_CLOEXEC) != 0) {
    CloseAll({mnt, net, out[0], out[1]});
    return Status(Code::kResourceExhausted, "cannot run " + argv[0] + ": out of file descriptors");
  }
  if (pipe2(failure, O_CLOEXEC) != 0) {
    CloseAll({mnt, net, out[0], out[1], err[0], err[1]});
    return Status(Code::kResourceExhausted, "cannot run " + argv[0] + ": out of file descriptors");
  }
  pid_t pid = fork();
  if (pid == 0) ExecChild(args.data(), env.data(), out[1], err[1], failure[1], mnt, net, options.new_session);
  CloseAll({mnt, net, out[1], err[1], failure[1]});
  if (pid < 0) {
    CloseAll({out[0], err[0], failure[0]});
    return Status(Code::kResourceExhausted, "cannot fork to run " + argv[0]);
  }
  int exec_error = 0;
  ssize_t failed = read(failure[0], &exec_error, sizeof exec_error);
  close(failure[0]);
  if (failed == sizeof exec_error) {
    CloseAll({out[0], err[0]});
    waitpid(pid, nullptr, 0);
    return Status(Code::kNotFound, "cannot run " + argv[0] + ": " + std::generic_category().message(exec_error));
  }

  ProcessResult result;
  const MonoTime deadline = Clock::Real().Mono() + options.timeout;
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  bool killed = false;
  int status = 0;
  bool exited = false;
  // A grandchild may hold the pipes open after the child ended: then what it writes is not waited for.
  while (!exited || fds[0].fd >= 0 || fds[1].fd >= 0) {
    poll(fds, 2, exited ? 0 : 20);
    bool read_something = false;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char buffer[16384];
      ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0) {
        std::string& text = i == 0 ? result.out : result.err;
        text.append(buffer,
                    std::min<size_t>(static_cast<size_t>(n), options.max_output_bytes - std::min(options.max_output_bytes, text.size())));
        read_something = true;
      } else if (n == 0 || errno != EINTR) {
        fds[i].fd = -1;
      }
    }
    if (!exited) {
      exited = waitpid(pid, &status, WNOHANG) == pid;
    } else if (!read_something) {
      break;
    }
    if (!exited && !killed && (stop.stop_requested() || Clock::Real().Mono() >= deadline)) {
      result.timed_out = !stop.stop_requested();
      kill(-pid, SIGKILL);
      killed = true;
    }
  }
  CloseAll({out[0], err[0]});
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace holdfast
