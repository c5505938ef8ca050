#include "runtime/runc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/time_format.h"

namespace holdfast::runtime {
namespace {

constexpr Duration kQuick = std::chrono::seconds(20);

bool IsExecutable(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

bool IsThisProgram(const std::string& path) {
  struct stat own, other;
  return stat("/proc/self/exe", &own) == 0 && stat(path.c_str(), &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string SearchPath(const Node& node) {
  const char* path = getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string search = path != nullptr && *path != '\0' ? path : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  return "PATH=" + (IsExecutable(node.CriuDir() + "/criu") ? node.CriuDir() + ":" : "") + search;
}

}  // namespace

Result<std::string> Runc::Find() {
  const char* given = getenv("HOLDFAST_RUNC_REAL");  // NOLINT(concurrency-mt-unsafe)
  if (given != nullptr && *given != '\0') {
    if (IsExecutable(given) && !IsThisProgram(given)) return std::string(given);
    return Status(Code::kNotFound, std::string("HOLDFAST_RUNC_REAL=") + given + " is not a runc that can be executed");
  }
  for (const char* dir : {"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}) {
    std::string path = std::string(dir) + "/runc";
    if (IsExecutable(path) && !IsThisProgram(path)) return path;
  }
  return Status(Code::kNotFound, "no runc in /usr/bin, /usr/sbin, /usr/local/bin or /usr/local/sbin (set HOLDFAST_RUNC_REAL)");
}

Runc::Runc(std::string path, std::vector<std::string> globals, const Node& node)
    : path_(std::move(path)), globals_(std::move(globals)), search_path_(SearchPath(node)) {}

Runc Runc::ForCaller(std::string path, const CommandLine& line, const Node& node) {
  std::vector<std::string> globals;
  for (const Flag& flag : line.globals) {
    if (flag.name == "log" || flag.name == "log-format") continue;
    globals.push_back("--" + flag.name + (flag.value ? "=" + *flag.value : ""));
  }
  return Runc(std::move(path), std::move(globals), node);
}

std::string Runc::Root() const {
  for (const std::string& flag : globals_) {
    if (flag.starts_with("--root=")) return flag.substr(7);
  }
  return "/run/runc";
}

std::vector<std::string> Runc::Command(const std::vector<std::string>& args) const {
  std::vector<std::string> command{path_};
  command.insert(command.end(), globals_.begin(), globals_.end());
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

Status Runc::Become(const std::vector<std::string>& argv) const {
  std::vector<std::string> command{"runc"};
  command.insert(command.end(), argv.begin(), argv.end());
  std::vector<std::string> environment{search_path_};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("PATH=")) environment.emplace_back(*entry);
  }
  execve(path_.c_str(), Pointers(command).data(), Pointers(environment).data());
  return Status(Code::kNotFound, "cannot execute " + path_ + ": " + std::generic_category().message(errno));
}

Result<ProcessResult> Runc::Run(const std::vector<std::string>& args, Duration timeout) const {
  ProcessOptions options;
  options.env = {search_path_};
  options.timeout = timeout;
  return RunProcess(Command(args), options);
}

Result<int> Runc::RunAttached(const std::vector<std::string>& args, Duration timeout,
                              const std::function<void(pid_t runc)>& before_kill) const {
  std::vector<std::string> command = Command(args);
  std::vector<char*> argv = Pointers(command);
  std::vector<std::string> environment{search_path_};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("PATH=")) environment.emplace_back(*entry);
  }
  std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  pid_t pid = fork();
  if (pid < 0) return Status(Code::kResourceExhausted, "cannot fork to run " + path_);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  const MonoTime deadline = Clock::Real().Mono() + timeout;
  bool killed = false;
  int status = 0;
  while (waitpid(pid, &status, killed ? 0 : WNOHANG) == 0) {
    if (Clock::Real().Mono() >= deadline) {
      if (before_kill) before_kill(pid);
      kill(pid, SIGKILL);
      killed = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  if (killed) return Status(Code::kDeadlineExceeded, "runc " + args[0] + " took longer than " + FormatDuration(timeout));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<ContainerState> Runc::State(const std::string& id) const {
  HF_ASSIGN_OR_RETURN(ProcessResult result, Run({"state", id}, kQuick));
  if (result.timed_out) return Status(Code::kDeadlineExceeded, "runc state " + id + " does not answer");
  if (result.exit_code != 0) return Status(Code::kNotFound, "runc state " + id + ": " + result.err.substr(0, 512));
  Result<Json> json = ParseJson(result.out);
  if (!json.ok()) return json.status().With("runc state " + id);
  return ContainerState{GetString(*json, {"status"}), static_cast<int>(GetInt(*json, {"pid"})), GetString(*json, {"bundle"}),
                        GetString(*json, {"rootfs"})};
}

int ReportError(const CommandLine& line, const std::string& message) {
  std::string text = "holdfast: " + message;
  std::string log = line.Global("log").value_or("");
  if (!log.empty()) {
    const std::string now = FormatTime(Clock::Real().Wall());
    const bool json = line.Global("log-format").value_or("text") == "json";
    Json quoted = text;
    std::string entry = json ? DumpJson({{"level", "error"}, {"msg", text}, {"time", now}})
                             : "time=\"" + now + "\" level=error msg=" + quoted.dump(-1, ' ', false, Json::error_handler_t::replace);
    entry += "\n";
    int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
      [[maybe_unused]] ssize_t n = write(fd, entry.data(), entry.size());
      close(fd);
    }
  }
  text += "\n";
  [[maybe_unused]] ssize_t n = write(STDERR_FILENO, text.data(), text.size());
  return 1;
}

std::string LastLogError(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1 << 20);
  if (!text.ok()) return "";
  std::string last;
  for (size_t at = 0; at < text->size();) {
    size_t end = std::min(text->find('\n', at), text->size());
    Result<Json> entry = ParseJson(std::string_view(*text).substr(at, end - at));
    if (entry.ok() && GetString(*entry, {"level"}) == "error") last = GetString(*entry, {"msg"});
    at = end + 1;
  }
  return last.substr(0, 1024);
}

}  // namespace holdfast::runtime
