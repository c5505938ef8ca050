#include "storage/recipe.h"

#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

constexpr std::string_view kLeafMagic = "HFLEAF01";
constexpr uint32_t kZero = uint32_t{1} << 31;
static_assert(kMaxSegmentBytes < kZero && kLeafMagic.size() == kLeafHeaderBytes);

Status Bad(const std::string& what) { return Status(Code::kInvalidArgument, "not a list of segments: " + what); }

}  // namespace

std::string EncodeLeaf(std::span<const SegmentRef> segments) {
  std::string leaf(kLeafMagic);
  leaf.reserve(kLeafHeaderBytes + segments.size() * kLeafEntryBytes);
  for (const SegmentRef& segment : segments) {
    AppendInteger(segment.size | (segment.zero ? kZero : 0), leaf);
    if (!segment.zero) leaf += AsText(segment.id.bytes);
  }
  return leaf;
}

Result<std::vector<SegmentRef>> ParseLeaf(std::string_view leaf, uint64_t file_bytes) {
  if (!leaf.starts_with(kLeafMagic)) return Bad("it does not begin as one");
  std::vector<SegmentRef> segments;
  uint64_t sum = 0;
  for (std::string_view rest = leaf.substr(kLeafHeaderBytes); !rest.empty();) {
    if (segments.size() == kLeafSegments) return Bad("more than " + std::to_string(kLeafSegments));
    if (rest.size() < 4) return Bad("it ends in the middle of one");
    const uint32_t size = GetInteger<uint32_t>(rest.data());
    rest.remove_prefix(4);
    SegmentRef segment{.id = {}, .size = size & ~kZero, .zero = (size & kZero) != 0};
    if (segment.size == 0 || segment.size > kMaxSegmentBytes) return Bad("one of an impossible size");
    if (!segment.zero) {
      if (rest.size() < segment.id.bytes.size()) return Bad("it ends in the middle of one");
      memcpy(segment.id.bytes.data(), rest.data(), segment.id.bytes.size());
      rest.remove_prefix(segment.id.bytes.size());
    }
    sum += segment.size;
    segments.push_back(segment);
  }
  if (sum != file_bytes) return Bad("its segments have " + std::to_string(sum) + " bytes, not " + std::to_string(file_bytes));
  return segments;
}

Status ReadLeaves(Store& store, const std::string& manifest, std::span<const LeafRef> leaves, const LeafVisit& visit) {
  std::vector<SegmentRef> wanted;
  wanted.reserve(leaves.size());
  for (const LeafRef& leaf : leaves) wanted.push_back({.id = leaf.id, .size = leaf.size});
  return store.GetSegments(manifest, wanted, [&](size_t i, std::span<const std::byte> content) -> Status {
    Result<std::vector<SegmentRef>> segments = ParseLeaf({reinterpret_cast<const char*>(content.data()), content.size()}, leaves[i].bytes);
    if (!segments.ok())
      return Status(Code::kDataLoss, "the segment " + leaves[i].id.Hex() + " of " + manifest + ": " + segments.status().message());
    return visit(i, std::move(*segments));
  });
}

}  // namespace holdfast::storage
