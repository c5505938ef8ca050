// holdfast-wait: the init container of a pod that has a checkpoint. With --exit it ends at once with success: so an init container ends
// whose work is part of the checkpoint.
#include <signal.h>

#include <cstring>
#include <iostream>

#include "runtime/wait.h"

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--exit") == 0) return 0;
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    std::cout << "holdfast-wait " << HOLDFAST_VERSION << "\n";
    return 0;
  }
  // The first process of a container gets SIGTERM only when it says so.
  signal(SIGTERM, [](int) { _exit(143); });
  const char* path = argc > 1 ? argv[1] : "/.holdfast/state";
  return holdfast::runtime::WaitForState(path, holdfast::Clock::Real(), [](const std::string& line) { std::cout << line << std::endl; });
}
