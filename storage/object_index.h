// Which objects the volume holds and who needs them, in memory; rebuilt from the manifests at start. Not thread-safe: under the store's
// lock.
#pragma once

#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "storage/hash.h"

namespace holdfast::storage {

struct SegmentIdHash {
  size_t operator()(const SegmentId& id) const {
    size_t word;
    memcpy(&word, id.bytes.data(), sizeof word);  // an id is a hash already
    return word;
  }
};
using SegmentSet = std::unordered_set<SegmentId, SegmentIdHash>;

struct ObjectInfo {
  uint32_t refs = 0;          // manifests that refer to it
  uint32_t pins = 0;          // open sessions that were told it is here
  uint32_t size = 0;          // uncompressed; 0: not known before it is verified
  uint64_t stored_bytes = 0;  // on disk
  bool verified = false;      // its content is known to be whole: a manifest refers to it, or this process hashed it
};

class ObjectIndex {
 public:
  ObjectInfo* Find(const std::string& ns, const SegmentId& id);
  // Existing or new; `stored_bytes` replaces what was accounted for it.
  ObjectInfo& Put(const std::string& ns, const SegmentId& id, uint64_t stored_bytes);
  void Erase(const std::string& ns, const SegmentId& id);
  // Objects of `ns` that neither a manifest nor a session needs.
  std::vector<SegmentId> Unneeded(const std::string& ns) const;
  uint64_t bytes() const { return bytes_; }
  size_t count() const { return count_; }

 private:
  using Objects = std::unordered_map<SegmentId, ObjectInfo, SegmentIdHash>;
  std::unordered_map<std::string, Objects> namespaces_;
  uint64_t bytes_ = 0;
  size_t count_ = 0;
};

}  // namespace holdfast::storage
