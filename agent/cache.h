// Recent checkpoints of this node, whole and within a budget, so that a pod that comes back to it is restored without the network. A
// landing folder that is not needed any more becomes an entry by a rename, or, from memory, by a copy; what a pod takes is gone from here
// by another one, since a checkpoint is given to one pod only. Entries are files of this node's disk and no more: each is hashed before it
// is taken, and dropped when it is not what was committed. Survives restarts. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "agent/layout.h"
#include "agent/stores.h"
#include "base/clock.h"
#include "storage/store.h"

namespace holdfast::agent {

struct CacheOptions {
  uint64_t max_bytes = 0;  // of all entries; 0: none is kept
  // Of the disk with the entries, 0 to 1; unset: there is room. Nothing is kept below a fifth, and entries go below a seventh.
  std::function<double()> free_part;
};

class Cache {
 public:
  Cache(CacheOptions options, Layout layout, Stores& stores, Clock& clock);

  // Once, before anything else: what an earlier process kept. Removes what is not whole.
  void Recover();
  // Takes over the landing folder of a committed checkpoint; `manifest_text` is what was committed, to the store of that name. Leaves it
  // where it is when it is not kept: it is too long, the disk has little room, or the store does not say with what its segments were
  // hashed.
  void Adopt(const std::string& landing, const std::string& manifest_text, const std::string& store);
  // Moves the entry's files to `dir`, which is replaced, once all of them were hashed. kNotFound: there is none, or none that is still
  // good.
  Status Take(const std::string& manifest_id, const std::string& dir, const storage::IngestOptions& options);
  // Drops what is not in `wanted` (ids of manifests), and the oldest while the disk has too little room.
  void Sweep(const std::set<std::string>& wanted);
  uint64_t bytes() const;

 private:
  struct Entry {
    uint64_t bytes = 0;
    int64_t adopted_unix_ms = 0;
    bool busy = false;  // being hashed: stays
  };
  std::string Folder() const { return layout_.state + "/cache"; }
  std::string Images(const std::string& id) const { return Folder() + "/" + id; }
  std::string File(const std::string& id) const { return Folder() + "/" + id + ".json"; }
  Status Keep(const std::string& landing, const std::string& manifest_text, const std::string& store);
  Result<storage::Manifest> Check(const std::string& id, const storage::IngestOptions& options) const;
  Status Move(const storage::Manifest& manifest, const std::string& dir) const;
  void Drop(const std::string& id);  // locked
  bool DropOldest();                 // locked; false: nothing to drop
  bool MakeRoom(uint64_t bytes);     // locked; false: what is in use takes too much
  uint64_t Sum() const;              // locked

  const CacheOptions options_;
  const Layout layout_;
  Stores& stores_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace holdfast::agent
