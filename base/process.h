// Running another program with a deadline and bounded output.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast {

struct ProcessOptions {
  std::vector<std::string> env;  // KEY=VALUE, appended to ours
  Duration timeout = std::chrono::seconds(30);
  size_t max_output_bytes = 1 << 20;  // of stdout and stderr each; the rest is dropped
  int mount_namespace_of_pid = 0;     // setns(2) into that process's mount namespace (with its root) before exec; 0: ours
  int network_namespace_of_pid = 0;
  bool new_session = false;  // setsid(2): outlives us
};

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  bool timed_out = false;
  std::string out, err;
};

// kNotFound when argv[0] cannot be executed. On timeout or stop the whole process group gets SIGKILL. argv[0] is looked up in PATH.
Result<ProcessResult> RunProcess(const std::vector<std::string>& argv, const ProcessOptions& options, std::stop_token stop = {});

}  // namespace holdfast
