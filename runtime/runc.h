// The real runc: found, executed in our place, or run beside us.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/status.h"
#include "runtime/command_line.h"
#include "runtime/node.h"

namespace holdfast::runtime {

struct ContainerState {
  std::string status;  // creating | created | running | paused | stopped
  int pid = 0;
  std::string bundle, rootfs;
};

class Runc {
 public:
  // HOLDFAST_RUNC_REAL, else the first runc in the usual folders that is not this very program. kNotFound says where it looked.
  static Result<std::string> Find();
  // `globals`: what precedes the verb in our own calls of runc.
  Runc(std::string path, std::vector<std::string> globals, const Node& node);
  // The caller's global flags without its --log: what fails in our own calls must not look like the caller's error.
  static Runc ForCaller(std::string path, const CommandLine& line, const Node& node);

  // Becomes runc with exactly these arguments; returns only on failure.
  Status Become(const std::vector<std::string>& argv) const;
  Result<ProcessResult> Run(const std::vector<std::string>& args, Duration timeout) const;
  // With our standard streams, which become the container's. The child dies with us, and with it CRIU. Exit code; kDeadlineExceeded after
  // `before_kill` and SIGKILL.
  Result<int> RunAttached(const std::vector<std::string>& args, Duration timeout,
                          const std::function<void(pid_t runc)>& before_kill = nullptr) const;
  Result<ContainerState> State(const std::string& id) const;  // kNotFound when runc does not know it
  std::string Root() const;
  const std::string& path() const { return path_; }

 private:
  std::vector<std::string> Command(const std::vector<std::string>& args) const;

  std::string path_;
  std::vector<std::string> globals_;
  std::string search_path_;  // PATH=…, ours with CRIU's folder in front
};

// Says an error where containerd looks for it: the last line of the file of --log, and stderr. Returns the exit code.
int ReportError(const CommandLine& line, const std::string& message);
// The last error that runc wrote to such a file (JSON lines); empty when there is none.
std::string LastLogError(const std::string& path);

}  // namespace holdfast::runtime
