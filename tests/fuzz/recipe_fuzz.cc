// Leaves: what is read is within every bound, and is written as the bytes it was read from.
#include "storage/bytes.h"
#include "storage/recipe.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  // The length that a manifest says, then the leaf.
  const uint64_t bytes = GetInteger<uint64_t>(data);
  const std::string_view leaf(reinterpret_cast<const char*>(data + 8), size - 8);
  auto segments = ParseLeaf(leaf, bytes);
  if (!segments.ok()) return 0;
  uint64_t sum = 0;
  for (const SegmentRef& segment : *segments) {
    if (segment.size == 0 || segment.size > kMaxSegmentBytes || (segment.zero && segment.id != SegmentId{})) __builtin_trap();
    sum += segment.size;
  }
  if (sum != bytes || segments->size() > kLeafSegments || EncodeLeaf(*segments) != leaf) __builtin_trap();
  return 0;
}
