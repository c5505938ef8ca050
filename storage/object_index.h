// Which segments the volume holds, where, and who needs them, in memory: rebuilt at start from manifests and index files. What nobody needs
// is not in it: it is dead, even while its bytes still lie in a pack. Not thread-safe: under the store's lock.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "storage/compact_table.h"
#include "storage/pack_format.h"

namespace holdfast::storage {

struct SegmentIdHash {
  size_t operator()(const SegmentId& id) const {
    size_t word;
    memcpy(&word, id.bytes.data(), sizeof word);  // an id is a hash already
    return word;
  }
};
using SegmentSet = std::unordered_set<SegmentId, SegmentIdHash>;

inline constexpr uint32_t kNoPack = ~uint32_t{0};

// 40 bytes: at most 59 in the table.
struct ObjectInfo {
  IdKey key;
  uint32_t pack = kNoPack;  // number in the store's table; kNoPack: needed, but not there
  uint32_t offset = 0, stored = 0;
  uint32_t size : 24 = 0;  // uncompressed
  uint32_t codec : 7 = 0;
  uint32_t suspect : 1 = 0;  // could not be read whole: taken again when somebody offers it
  uint32_t refs = 0;         // manifests and leaves that refer to it
  uint32_t pins = 0;         // open sessions that were told it is here

  bool here() const { return pack != kNoPack; }
  bool needed() const { return refs > 0 || pins > 0; }
  PackRecord Record(const SegmentId& id) const {
    return {.id = id, .offset = offset, .stored = stored, .size = size, .codec = static_cast<Codec>(codec)};
  }
  void Place(uint32_t number, const PackRecord& record) {
    pack = number;
    offset = record.offset;
    stored = record.stored;
    size = record.size;
    codec = static_cast<uint32_t>(record.codec) & 127U;
    suspect = 0;
  }
};
static_assert(sizeof(ObjectInfo) == 40);

// A list of segments that manifests share (recipe.h), while anybody holds it.
struct LeafInfo {
  enum State : uint32_t { kUncounted, kCounted, kSettled };  // its segments count; and a manifest with it is durable
  static constexpr uint32_t kBytesMask = (uint32_t{1} << 30) - 1;
  IdKey key;
  uint32_t holders = 0;     // manifests, and sessions that build on one
  uint32_t bytes : 30 = 0;  // of the file
  uint32_t state : 2 = kUncounted;
};
using LeafTable = CompactTable<LeafInfo>;

class ObjectIndex {
 public:
  using Objects = CompactTable<ObjectInfo>;
  ObjectInfo* Find(const std::string& ns, const SegmentId& id) { return Find(ns, IdKey(id)); }
  ObjectInfo* Find(const std::string& ns, const IdKey& key);
  ObjectInfo& Insert(const std::string& ns, const SegmentId& id) { return *namespaces_[ns].Insert(IdKey(id)).first; }
  void Erase(const std::string& ns, const IdKey& key);
  // Of `ns`, those that neither a manifest nor a session needs.
  std::vector<IdKey> Unneeded(const std::string& ns);
  // Of `ns`, those that lie in a pack.
  std::vector<IdKey> In(const std::string& ns, uint32_t pack);
  std::vector<std::string> Namespaces() const;
  size_t Lost(const std::string& ns);  // needed, but not there
  size_t count() const;
  size_t memory_bytes() const;

 private:
  std::unordered_map<std::string, Objects> namespaces_;
};

}  // namespace holdfast::storage
