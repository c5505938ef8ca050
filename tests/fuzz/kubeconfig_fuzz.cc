// A kubeconfig file.
#include <sys/mman.h>
#include <unistd.h>

#include "kube/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("kubeconfig", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) __builtin_trap();
  auto config = holdfast::kube::LoadKubeconfig("/proc/self/fd/" + std::to_string(fd));
  if (!config.ok() && config.status().message().empty()) __builtin_trap();
  close(fd);
  return 0;
}
