// Small words shared by messages.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::reconcilers {

std::string FormatBytes(int64_t bytes);  // "2.1 GiB", "300 MiB", "12 B"

// An event that a step asks for.
struct Notice {
  bool warning = false;
  std::string reason, note;
  bool on_pod = true;         // about the pod
  bool on_checkpoint = true;  // about the Checkpoint
};

}  // namespace holdfast::reconcilers
