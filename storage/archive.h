// A checkpoint as one stream, for another store with other keys, or to be put away: `holdfast-store export` and `import`. FORMAT.md has the
// bytes. What is in it is NOT encrypted: a process's memory, with its secrets. Memory: some MiB and the manifest, whatever its size.
#pragma once

#include <functional>

#include "storage/local_store.h"

namespace holdfast::storage {

// All of the bytes, or an error.
using WriteBytes = std::function<Status(std::span<const std::byte> bytes)>;
// Fills `bytes`. kDataLoss where the stream ends before.
using ReadBytes = std::function<Status(std::span<std::byte> bytes)>;

// The id of the checkpoint that `name` means: an id, or NAMESPACE/NAME. kInvalidArgument, with their ids, when several have that name.
Result<std::string> FindCheckpoint(LocalStore& store, const std::string& name);

// kDataLoss when it cannot be read whole: then the stream has no end, and no import takes it.
Status Export(Store& store, const std::string& manifest, const WriteBytes& write);

struct Imported {
  std::string id, ns, checkpoint;
  uint64_t bytes = 0, new_bytes = 0;  // of its files; of them new to the store
};
// Commits it under a new id when all of it has come and is what it says; else nothing is left of it. `ns`: into that namespace; empty: its
// own. kInvalidArgument: no archive, or one that nothing of ours wrote. kDataLoss: damaged or cut off. kAlreadyExists: the store has a
// checkpoint of that name, and two of a name could not both be Checkpoints.
Result<Imported> Import(LocalStore& store, const std::string& ns, const ReadBytes& read);

}  // namespace holdfast::storage
