// Leaves: the list of a file's segments is cut into parts that are kept as segments themselves. A part that is the same in two checkpoints
// is one segment, so a manifest says only which leaves make up a file (FORMAT.md).
#pragma once

#include "storage/store.h"

namespace holdfast::storage {

inline constexpr size_t kLeafSegments = 128;  // of a leaf at most: 8 MiB of a file
inline constexpr size_t kLeafHeaderBytes = 8, kLeafEntryBytes = 36;
inline constexpr size_t kMaxLeafBytes = kLeafHeaderBytes + kLeafSegments * kLeafEntryBytes;

// 1 to kLeafSegments of them.
std::string EncodeLeaf(std::span<const SegmentRef> segments);
// kInvalidArgument when it is none, or not of `file_bytes` of a file.
Result<std::vector<SegmentRef>> ParseLeaf(std::string_view leaf, uint64_t file_bytes);

// Calls `visit` for each of `leaves`, in order, with its segments; few round trips. kDataLoss when one is none.
using LeafVisit = std::function<Status(size_t index, std::vector<SegmentRef> segments)>;
Status ReadLeaves(Store& store, const std::string& manifest, std::span<const LeafRef> leaves, const LeafVisit& visit);

}  // namespace holdfast::storage
