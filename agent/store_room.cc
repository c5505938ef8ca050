#include "agent/store_room.h"

#include <algorithm>

namespace holdfast::agent {
namespace {

constexpr double kShrinksTo = 0.25;

}  // namespace

uint64_t WillTake(uint64_t estimate_bytes, bool final, const api::Checkpoint* last) {
  double part = final ? kShrinksTo : 1;
  if (last != nullptr) {
    const double whole = static_cast<double>(last->status.memory_bytes) + static_cast<double>(last->status.files_bytes);
    if (whole > 0 && last->status.stored_bytes > 0) part = std::min(1.0, static_cast<double>(last->status.stored_bytes) / whole);
  }
  return static_cast<uint64_t>(static_cast<double>(std::min(estimate_bytes, uint64_t{1} << 62)) * part);
}

}  // namespace holdfast::agent
