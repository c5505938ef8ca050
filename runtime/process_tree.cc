#include "runtime/process_tree.h"

#include <signal.h>

#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMost = 1024;

std::vector<pid_t> Children(pid_t pid) {
  std::vector<pid_t> children;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
  for (const std::string& task : ListDir(tasks).value_or({})) {
    std::string path = tasks;
    path.append(task).append("/children");
    const std::string text = ReadFile(path, 65536).value_or("");
    for (const char* at = text.c_str(); *at != '\0' && children.size() < kMost;) {
      char* end;
      const long child = strtol(at, &end, 10);
      if (end == at) break;
      children.push_back(static_cast<pid_t>(child));
      at = *end == ' ' ? end + 1 : end;
    }
  }
  return children;
}

// Stopped by a signal or by a tracer, or dead.
bool Still(pid_t pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096).value_or("");
  const size_t name_end = stat.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return true;
  const char state = stat[name_end + 2];
  return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

}  // namespace

std::vector<pid_t> Descendants(pid_t pid) {
  std::vector<pid_t> found = Children(pid);
  for (size_t i = 0; i < found.size() && found.size() < kMost; ++i) {
    for (pid_t child : Children(found[i])) found.push_back(child);
  }
  return found;
}

Status StopDescendants(pid_t pid, Duration limit) {
  const MonoTime until = Clock::Real().Mono() + limit;
  for (;;) {
    bool still = true;
    for (pid_t descendant : Descendants(pid)) {
      if (Still(descendant)) continue;
      still = false;
      kill(descendant, SIGSTOP);
    }
    if (still) return Status::Ok();
    if (Clock::Real().Mono() >= until) return {Code::kDeadlineExceeded, "CRIU does not stop"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ContinueDescendants(pid_t pid) {
  for (pid_t descendant : Descendants(pid)) kill(descendant, SIGCONT);
}

}  // namespace holdfast::runtime
