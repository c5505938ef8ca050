// One session's life in the store: what it lacks, what it is given, and how it ends. The state lies in the store under its lock; file
// content is read, hashed and written outside of it.
#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "storage/codec.h"
#include "storage/limits.h"
#include "storage/local_store.h"

namespace holdfast::storage {
namespace {

constexpr Duration kBusyPatience = std::chrono::seconds(30);

Status Busy(const std::string& id) {
  return Status(Code::kUnavailable, "the session " + id + " is still being committed or aborted: ask again");
}

}  // namespace

void LocalStore::Pin(OpenState& session, ObjectInfo& object) {
  if (session.pins.Insert(object.key).second) ++object.pins;
}

Result<std::vector<bool>> LocalStore::Missing(const std::string& session, std::span<const SegmentId> ids) {
  if (ids.size() > kBatchSegments * 16) return Status(Code::kInvalidArgument, "too many ids in one question");
  std::vector<bool> missing(ids.size(), true);
  std::lock_guard lock(mutex_);
  HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
  if (state->pins.size() + ids.size() > 2 * kMaxSegments)
    return Status(Code::kResourceExhausted, "the session " + session + " has too many segments");
  for (size_t i = 0; i < ids.size(); ++i) {
    ObjectInfo* object = index_.Find(state->ns, ids[i]);
    if (object == nullptr || !object->here() || object->suspect) continue;
    Pin(*state, *object);
    missing[i] = false;
  }
  return missing;
}

// Pinned first, so that it stays; then its pack is sealed. The mark of the session makes the next start keep all of its namespace.
Result<std::vector<bool>> LocalStore::Secure(const std::string& session, std::span<const SegmentId> ids) {
  HF_ASSIGN_OR_RETURN(std::vector<bool> missing, Missing(session, ids));
  PackSet unsealed;
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    for (const SegmentId& id : ids) {
      const ObjectInfo* object = index_.Find(state->ns, id);
      if (object != nullptr && object->here() && !packs_[object->pack]->sealed) unsealed.insert(packs_[object->pack]);
    }
  }
  for (const PackPointer& pack : unsealed) HF_RETURN_IF_ERROR(SealPack(pack));
  std::lock_guard lock(mutex_);
  HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
  for (size_t i = 0; i < ids.size(); ++i) {
    const ObjectInfo* object = index_.Find(state->ns, ids[i]);
    const bool durable =
        object != nullptr && object->here() && !object->suspect && packs_[object->pack]->sealed && !packs_[object->pack]->undurable;
    missing[i] = missing[i] || !durable;
  }
  return missing;
}

Status LocalStore::Put(const std::string& session, const PutItem& item) {
  HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(item.codec), item.size, item.bytes.size()));
  std::string ns;
  std::shared_ptr<Filling> filling;
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    ns = state->ns;
    filling = state->filling;
  }
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(ns));
  std::string unpacked;
  std::span<const std::byte> content = item.bytes;
  if (item.codec != Codec::kRaw) {
    HF_ASSIGN_OR_RETURN(unpacked, Decode(item.codec, item.size, item.bytes));
    content = AsBytes(unpacked);
  }
  // Before anything else, whether we have it or not: a node must not be able to put its bytes under another content's name.
  if (HashSegment(keys.hash, content) != item.id)
    return Status(Code::kDataLoss, "the segment " + item.id.Hex() + " does not have the content of its name: refused");
  while (true) {
    {
      std::lock_guard lock(mutex_);
      HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
      if (state->pins.size() >= 2 * kMaxSegments)
        return Status(Code::kResourceExhausted, "the session " + session + " has too many segments");
      ObjectInfo* object = index_.Find(ns, item.id);
      if (object != nullptr && object->here() && !object->suspect) {
        Pin(*state, *object);
        return Status::Ok();
      }
      // The second half of the reserve is for manifests and marks, so that what began can end.
      HF_RETURN_IF_ERROR(RoomFor(item.bytes.size(), options_.reserve_bytes / 2));
    }
    HF_ASSIGN_OR_RETURN(Placed placed, Append(*filling, ns, item));
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    PackPointer& pack = placed.pack;
    if (pack->dropped) continue;  // sealed by somebody's commit and found to have nothing else: once more
    if (!pack->sealed) {
      pack->file_bytes += RecordBytes(placed.record.stored);
      pack_bytes_ += RecordBytes(placed.record.stored);
    }
    ObjectInfo& object = index_.Insert(ns, item.id);
    // Another thread may have been faster: then what we wrote is dead.
    if (!object.here() || object.suspect) Place(object, pack, placed.record);
    Pin(*state, object);
    return Status::Ok();
  }
}

Status LocalStore::HoldParent(const std::string& session, const std::string& manifest) {
  HF_ASSIGN_OR_RETURN(Manifest parent, GetManifest(manifest));
  Holding holding = HoldingOf(parent);
  Lock lock(mutex_);
  HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
  if (state->busy) return Busy(session);
  if (!committed_.contains(manifest)) return Status(Code::kNotFound, "the store has no checkpoint " + manifest);  // deleted meanwhile
  if (parent.ns != state->ns) return Status(Code::kInvalidArgument, "the checkpoint " + manifest + " is not of the namespace " + state->ns);
  if (hurt_.contains(parent.ns))
    return Status(Code::kFailedPrecondition, "some segments of the namespace " + parent.ns + " are damaged: ask for each");
  for (const IdKey& key : holding.segments) ++index_.Find(parent.ns, key)->refs;
  for (const HeldLeaf& leaf : holding.leaves) ++leaves_[parent.ns].Find(IdKey(leaf.ref.id))->holders;
  std::swap(state->parent, holding);
  Release(parent.ns, holding, lock);
  return Status::Ok();
}

bool LocalStore::AwaitIdle(const std::string& id, Lock& lock) {
  return clock_.WaitUntil(lock, idle_, clock_.Mono() + kBusyPatience, {}, [&] {
    auto open = open_.find(id);
    return closing_ || open == open_.end() || !open->second.busy;
  });
}

Result<CommitResult> LocalStore::Commit(const std::string& id, const Manifest& manifest) {
  HF_RETURN_IF_ERROR(CheckManifest(manifest));
  Lock lock(mutex_);
  if (!AwaitIdle(id, lock)) return Busy(id);
  auto committed = committed_.find(id);
  if (committed != committed_.end()) {
    const CommitResult before{.id = id, .digest = committed->second.digest, .new_bytes = committed->second.new_bytes};
    lock.unlock();
    if (Digest(manifest.Serialize()) == before.digest) return before;
    return Status(Code::kFailedPrecondition, "the session " + id + " was committed with another manifest");
  }
  HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(id));
  if (manifest.ns != state->ns || manifest.checkpoint_uid != id) {
    return Status(Code::kInvalidArgument,
                  "the manifest is of " + manifest.ns + "/" + manifest.checkpoint_uid + ", the session of " + state->ns + "/" + id);
  }
  const std::string ns = state->ns;
  state->busy = true;
  Result<CommitResult> result = CommitLocked(id, ns, manifest, lock);
  if (result.ok()) {
    EndSession(id, lock);
  } else {
    open_[id].busy = false;  // still there: only Commit and Abort end a session, and both wait for busy
    idle_.notify_all();
  }
  return result;
}

// Busy, so that nobody else ends the session; lets go of the lock for the slow parts.
Result<CommitResult> LocalStore::CommitLocked(const std::string& id, const std::string& ns, const Manifest& manifest, Lock& lock) {
  Holding holding;
  Status written = Hold(id, manifest, holding, lock);
  const bool held = written.ok();
  StoredManifest stored{.ns = ns, .text = "", .digest = "", .new_bytes = holding.new_bytes};
  lock.unlock();
  if (written.ok()) stored.text = manifest.Serialize();
  if (stored.text.size() > kMaxManifestBytes) written = Status(Code::kInvalidArgument, "the manifest is too long");
  if (written.ok()) {
    stored.digest = Digest(stored.text);
    HF_FAULT_POINT("store.before_sync");
    for (const PackPointer& pack : holding.unsealed) {
      if (written.ok()) written = SealPack(pack);
    }
    if (written.ok()) written = volume_->WriteManifest(id, stored);
  }
  lock.lock();
  if (!written.ok()) {
    OpenState& state = open_[id];
    if (held) state.maybe_committed = volume_->ReadManifest(id).ok();
    if (held && state.maybe_committed) std::swap(state.maybe, holding);
    Release(ns, holding, lock);
    return written;
  }
  Settle(ns, holding);
  committed_[id] = Committed{.ns = ns, .digest = stored.digest, .new_bytes = stored.new_bytes};
  Status removed = volume_->RemoveMark("sessions", id);
  if (!removed.ok()) LogWarning("the mark of a committed session stays until the next start", {{"error", removed.ToString()}});
  return CommitResult{.id = id, .digest = stored.digest, .new_bytes = stored.new_bytes};
}

void LocalStore::EndSession(const std::string& id, Lock& lock) {
  auto open = open_.find(id);
  if (open == open_.end()) return;
  OpenState state = std::move(open->second);
  open_.erase(open);
  const std::string& ns = state.ns;
  const bool last_inherited = state.inherited && --inherited_[ns] == 0;
  if (last_inherited) inherited_.erase(ns);
  state.pins.ForEach([&](const PinEntry& pin) {
    ObjectInfo* object = index_.Find(ns, pin.key);
    if (object == nullptr || object->pins == 0) return;
    if (--object->pins == 0) EraseUnneeded(ns, pin.key);
  });
  Release(ns, state.parent, lock);
  Release(ns, state.maybe, lock);
  if (last_inherited) EraseAllUnneeded(ns);
  lock.unlock();
  EndFilling(*state.filling);
  lock.lock();
  SweepDead(lock);
  idle_.notify_all();
}

Status LocalStore::AbortOpen(const std::string& id) {
  std::string ns;
  {
    std::lock_guard lock(mutex_);
    auto open = open_.find(id);
    if (open != open_.end()) ns = open->second.ns;
  }
  return Abort(id, ns);
}

Status LocalStore::Abort(const std::string& id, const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  Lock lock(mutex_);
  if (!AwaitIdle(id, lock)) return Busy(id);
  if (closing_) return Status(Code::kUnavailable, "the store is closing");
  if (aborted_.contains(id)) return Status::Ok();
  if (committed_.contains(id) || damaged_.contains(id)) return Status(Code::kFailedPrecondition, "the session " + id + " was committed");
  auto open = open_.find(id);
  if (open == open_.end() && ns.empty()) return Status(Code::kFailedPrecondition, "the session " + id + " is not open");
  if (open != open_.end()) {
    if (!ns.empty() && open->second.ns != ns)
      return Status(Code::kInvalidArgument, "the session " + id + " is of the namespace " + open->second.ns + ", not of " + ns);
    if (open->second.maybe_committed) return Status(Code::kUnavailable, "whether " + id + " was committed is not known: commit it again");
    open->second.busy = true;
  }
  // Under the lock when the session is not open: an OpenSession must not slip in between.
  const bool was_open = open != open_.end();
  if (was_open) lock.unlock();
  Status marked = volume_->WriteMark("aborted", id, "");
  if (was_open) lock.lock();
  if (was_open) open_[id].busy = false;
  idle_.notify_all();
  if (!marked.ok()) {
    [[maybe_unused]] Status undone = volume_->RemoveMark("aborted", id);  // if it comes back after a crash: a manifest wins over it
    return marked;
  }
  aborted_.insert(id);
  Status removed = volume_->RemoveMark("sessions", id);
  if (!removed.ok()) LogWarning("the mark of an aborted session stays until the next start", {{"error", removed.ToString()}});
  EndSession(id, lock);
  return Status::Ok();
}

}  // namespace holdfast::storage
