// CRIU's pagemaps as a node could have them: what is accepted cuts a file of its length into pieces that make it up.
#include "storage/cutter.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view image(reinterpret_cast<const char*>(data), size);
  auto map = Pagemap::Parse(std::string(image));
  if (!map.ok()) return 0;
  if (!Pagemap::PagesIdOf(image)) __builtin_trap();
  for (uint64_t page : {4096, 65536}) {
    const uint64_t bytes = map->pages() * page;
    auto cutter = Cutter::ByPages(*map, bytes);
    if (!cutter.ok()) {
      if (bytes > 0) __builtin_trap();
      continue;
    }
    uint64_t sum = 0, pieces = 0;
    Cutter::Piece piece;
    while (pieces < 20'000 && cutter->Next(&piece)) {
      if (piece.size == 0 || piece.size > kSegmentBytes) __builtin_trap();
      sum += piece.size;
      ++pieces;
    }
    if (sum > bytes || (pieces < 20'000 && sum != bytes)) __builtin_trap();
  }
  return 0;
}
