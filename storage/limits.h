// What the store accepts from outside, at most. Every buffer and loop of this folder is bounded by one of these.
#pragma once

#include <cstddef>
#include <string_view>

#include "storage/store.h"

namespace holdfast::storage {

inline constexpr size_t kMaxFiles = 100'000;       // of a checkpoint
inline constexpr size_t kMaxSegments = 1 << 22;    // of a checkpoint: 256 GiB
inline constexpr size_t kMaxReferences = 1 << 19;  // of a manifest: segments of short files, and leaves
inline constexpr size_t kMaxManifestBytes = 48 << 20;
inline constexpr size_t kMaxPathBytes = 1024, kMaxPathDepth = 32;
inline constexpr size_t kMaxOpenSessions = 256, kMaxOpenSessionsOfNode = 64;
inline constexpr size_t kBatchBytes = 8 << 20;  // of segments in one request, uncompressed
inline constexpr size_t kBatchSegments = 256;   // ids in one request

// Checkpoint uids and namespaces become file names: 1 to 200 of a-z A-Z 0-9 . _ - neither starting with a dot nor ending in .tmp.
Status CheckId(std::string_view id, std::string_view what);
// Of a manifest's file: relative, safe names, not too long, not too deep, UTF-8.
Status CheckPath(std::string_view path);
// Everything Parse promises about a manifest's paths, sizes and counts.
Status CheckManifest(const Manifest& manifest);

}  // namespace holdfast::storage
