#include "base/fault_point.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "base/file.h"

namespace holdfast {
namespace {

// holdfast-runc gets its environment from containerd, so there is a folder without one.
constexpr char kFolder[] = "/run/holdfast/faults";

void WaitUntilRemoved(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  close(fd);
  const auto until = std::chrono::steady_clock::now() + kFaultWait;
  while (Exists(path) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

void ReachFaultPoint(const char* name) {
  const char* dir = getenv("HOLDFAST_FAULT_DIR");  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  const std::string path = std::string(dir != nullptr ? dir : kFolder) + "/" + name;
  Result<std::string> order = ReadFile(path, 256);
  if (!order.ok() || unlink(path.c_str()) != 0) return;
  if (order->starts_with("kill")) kill(getpid(), SIGKILL);
  if (order->starts_with("wait")) WaitUntilRemoved(path + ".hit");
  if (order->starts_with("delay ")) std::this_thread::sleep_for(std::chrono::milliseconds(strtol(order->c_str() + 6, nullptr, 10)));
}

}  // namespace holdfast
