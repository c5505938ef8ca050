#include "base/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/file.h"

namespace holdfast {

void ReachFaultPoint(const char* name) {
  const char* dir = getenv("HOLDFAST_FAULT_DIR");  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  if (dir == nullptr) return;
  const std::string path = std::string(dir) + "/" + name;
  Result<std::string> order = ReadFile(path, 256);
  if (!order.ok() || unlink(path.c_str()) != 0) return;
  if (order->starts_with("kill")) kill(getpid(), SIGKILL);
  if (order->starts_with("hang")) {
    while (!Exists(path + ".release")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    unlink((path + ".release").c_str());
  }
  if (order->starts_with("delay ")) std::this_thread::sleep_for(std::chrono::milliseconds(strtol(order->c_str() + 6, nullptr, 10)));
}

}  // namespace holdfast
