// Who holds which segment. A manifest counts its own segments and, through its leaves, those of long files: a leaf counts each of its
// segments once, for all who hold the leaf together, so a checkpoint that shares its leaves with the last one costs the leaves, not the
// segments. A leaf is read when the first takes hold of it and when the last lets go.
#include <algorithm>

#include "base/log.h"
#include "storage/bytes.h"
#include "storage/codec.h"
#include "storage/local_store.h"
#include "storage/recipe.h"

namespace holdfast::storage {
namespace {

// Those that are not zeros, each once.
std::vector<SegmentId> IdsOf(const std::vector<SegmentRef>& segments) {
  std::vector<SegmentId> ids;
  for (const SegmentRef& segment : segments) {
    if (!segment.zero) ids.push_back(segment.id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

// What the store reads of itself is authentic (aead.h), and was hashed when it was taken.
Result<std::vector<SegmentRef>> LocalStore::ReadLeaf(const std::string& ns, const LeafRef& leaf) {
  StoredSegment stored;
  HF_RETURN_IF_ERROR(ReadStored(ns, leaf.id, &stored));
  if (stored.codec == Codec::kRaw) return ParseLeaf(stored.bytes, leaf.bytes);
  HF_ASSIGN_OR_RETURN(std::string content, Decode(stored.codec, stored.size, AsBytes(stored.bytes)));
  return ParseLeaf(content, leaf.bytes);
}

Result<ObjectInfo*> LocalStore::PinNamed(OpenState& session, const SegmentId& id, uint32_t size, const std::string& path,
                                         Holding& holding) {
  ObjectInfo* object = index_.Find(session.ns, id);
  if (object == nullptr || !object->here() || object->suspect) {
    return Status(Code::kInvalidArgument, "the store lacks the segment " + id.Hex() + " of \"" + path + "\": send it, then commit again");
  }
  if (object->size != size) {
    return Status(Code::kInvalidArgument,
                  "the segment " + id.Hex() + " has " + std::to_string(object->size) + " bytes, the manifest says " + std::to_string(size));
  }
  Pin(session, *object);
  const PackPointer& pack = packs_[object->pack];
  if (!pack->sealed) holding.unsealed.insert(pack);
  return object;
}

void LocalStore::Count(ObjectInfo& object, Holding& holding) {
  if (object.refs++ == 0) holding.new_bytes += RecordBytes(object.stored);
}

void LocalStore::Discount(const std::string& ns, const IdKey& key) {
  ObjectInfo* object = index_.Find(ns, key);
  if (object == nullptr || object->refs == 0) return;
  if (--object->refs == 0) EraseUnneeded(ns, key);
}

Status LocalStore::Hold(const std::string& session, const Manifest& manifest, Holding& holding, Lock& lock) {
  IdSet own, leaves;
  for (const FileEntry& file : manifest.files) {
    for (const SegmentRef& segment : file.segments) {
      if (segment.zero) continue;
      HF_ASSIGN_OR_RETURN(ObjectInfo * object, PinNamed(open_[session], segment.id, segment.size, file.path, holding));
      if (!own.Insert(object->key).second) continue;
      Count(*object, holding);
      holding.segments.push_back(object->key);
    }
    for (const LeafRef& leaf : file.leaves) {
      if (!leaves.Insert(IdKey(leaf.id)).second) continue;
      HF_RETURN_IF_ERROR(HoldLeaf(session, manifest.ns, leaf, file.path, holding, lock));
    }
  }
  return Status::Ok();
}

Status LocalStore::HoldLeaf(const std::string& session, const std::string& ns, const LeafRef& leaf, const std::string& path,
                            Holding& holding, Lock& lock) {
  const IdKey key(leaf.id);
  HF_RETURN_IF_ERROR(PinNamed(open_[session], leaf.id, leaf.size, path, holding).status());
  LeafInfo* known = leaves_[ns].Find(key);
  if (known != nullptr && known->state == LeafInfo::kSettled && !hurt_.contains(ns)) {
    if (known->bytes != leaf.bytes)
      return Status(Code::kInvalidArgument, "the leaf " + leaf.id.Hex() + " of \"" + path + "\" has another number of bytes");
    ++known->holders;
    holding.leaves.push_back({.ref = leaf, .segments = {}});
    return Status::Ok();
  }
  lock.unlock();
  Result<std::vector<SegmentRef>> segments = ReadLeaf(ns, leaf);
  lock.lock();
  if (!segments.ok()) {
    // Damaged: whoever sends it again mends it.
    const Code code = segments.status().code() == Code::kDataLoss ? Code::kInvalidArgument : segments.status().code();
    return Status(code, "the leaf " + leaf.id.Hex() + " of \"" + path + "\": " + segments.status().message());
  }
  for (const SegmentRef& segment : *segments) {
    if (!segment.zero) HF_RETURN_IF_ERROR(PinNamed(open_[session], segment.id, segment.size, path, holding).status());
  }
  LeafInfo& info = *leaves_[ns].Insert(key).first;
  info.bytes = static_cast<uint32_t>(leaf.bytes) & LeafInfo::kBytesMask;
  if (info.holders++ == 0) Count(*index_.Find(ns, key), holding);
  HeldLeaf& held = holding.leaves.emplace_back(HeldLeaf{.ref = leaf, .segments = {}});
  const bool first = info.state == LeafInfo::kUncounted;
  for (const SegmentId& id : IdsOf(*segments)) {
    held.segments.emplace_back(id);
    if (first) Count(*index_.Find(ns, id), holding);
  }
  if (first) info.state = LeafInfo::kCounted;
  return Status::Ok();
}

// Its manifest is durable: whoever shares its leaves need not look at them.
void LocalStore::Settle(const std::string& ns, const Holding& holding) {
  for (const HeldLeaf& leaf : holding.leaves) leaves_[ns].Find(IdKey(leaf.ref.id))->state = LeafInfo::kSettled;
}

void LocalStore::Release(const std::string& ns, const Holding& holding, Lock& lock) {
  for (const IdKey& key : holding.segments) Discount(ns, key);
  for (const HeldLeaf& leaf : holding.leaves) ReleaseLeaf(ns, leaf, lock);
}

void LocalStore::ReleaseLeaf(const std::string& ns, const HeldLeaf& leaf, Lock& lock) {
  const IdKey key(leaf.ref.id);
  LeafInfo* info = leaves_[ns].Find(key);
  if (info == nullptr) return;
  if (info->holders > 1) {
    --info->holders;
    return;
  }
  std::vector<IdKey> segments = leaf.segments;
  if (segments.empty() && info->state != LeafInfo::kUncounted) {
    // We are the last, so it cannot go meanwhile; but somebody else may take hold of it.
    lock.unlock();
    Result<std::vector<SegmentRef>> read = ReadLeaf(ns, leaf.ref);
    lock.lock();
    for (const SegmentId& id : IdsOf(read.value_or({}))) segments.emplace_back(id);
    if (!read.ok()) {
      LogError("a leaf cannot be read: what it alone needed stays until the next start",
               {{"segment", leaf.ref.id.Hex()}, {"error", read.status().ToString()}});
    }
    info = leaves_[ns].Find(key);
    if (info->holders > 1) {
      --info->holders;
      return;
    }
  }
  leaves_[ns].Erase(key);
  for (const IdKey& segment : segments) Discount(ns, segment);
  Discount(ns, key);
}

LocalStore::Holding LocalStore::HoldingOf(const Manifest& manifest) {
  Holding holding;
  IdSet own, leaves;
  for (const FileEntry& file : manifest.files) {
    for (const SegmentRef& segment : file.segments) {
      const IdKey key(segment.id);
      if (!segment.zero && own.Insert(key).second) holding.segments.push_back(key);
    }
    for (const LeafRef& leaf : file.leaves) {
      if (leaves.Insert(IdKey(leaf.id)).second) holding.leaves.push_back({.ref = leaf, .segments = {}});
    }
  }
  return holding;
}

// At a start, when manifests and packs were read: what the leaves of `ns` name is needed. Those that cannot be read stay uncounted.
size_t LocalStore::CountLeaves(const std::string& ns, const std::vector<LeafRef>& leaves) {
  size_t unreadable = 0;
  for (const LeafRef& leaf : leaves) {
    Result<std::vector<SegmentRef>> segments = ReadLeaf(ns, leaf);
    std::lock_guard lock(mutex_);
    if (!segments.ok()) {
      ++unreadable;
      continue;
    }
    leaves_[ns].Find(IdKey(leaf.id))->state = LeafInfo::kSettled;
    for (const SegmentId& id : IdsOf(*segments)) ++index_.Insert(ns, id).refs;
  }
  return unreadable;
}

}  // namespace holdfast::storage
