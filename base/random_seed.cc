#include "base/random_seed.h"

#include <random>

namespace holdfast {
namespace {

std::function<uint64_t()>& Source() {
  static std::function<uint64_t()> source;
  return source;
}

}  // namespace

uint64_t RandomSeed() {
  if (const auto& source = Source()) return source();
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void UseSeeds(std::function<uint64_t()> source) { Source() = std::move(source); }

}  // namespace holdfast
