// Whether a folder is what a manifest says, without any store: it is cut and hashed as Ingest did.
#pragma once

#include "storage/hash.h"
#include "storage/store.h"

namespace holdfast::storage {

// kDataLoss when a byte, a length, a mode or a name is another. `key` is of the manifest's namespace; of `options`, threads, memory,
// progress and stop are used. Files that Fetch would make of the manifest have exactly these paths: what else lies there is an error, too.
Status Matches(const std::string& dir, const Manifest& manifest, const HashKey& key, const IngestOptions& options);

}  // namespace holdfast::storage
