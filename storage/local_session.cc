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

void LocalStore::Pin(OpenState& session, const SegmentId& id, ObjectInfo& object) {
  if (session.pins.insert(id).second) ++object.pins;
}

// OK when the object's content is whole; kNotFound when it is not there or was torn, and is now out of the way.
Status LocalStore::Verify(const std::string& ns, const HashKey& key, const SegmentId& id) {
  std::lock_guard one_at_a_time(verify_mutex_);
  {
    std::lock_guard lock(mutex_);
    ObjectInfo* object = index_.Find(ns, id);
    if (object == nullptr) return Status(Code::kNotFound, "not here");
    if (object->verified) return Status::Ok();
  }
  Result<std::string> content = volume_->ReadVerified(ns, id, key);
  std::lock_guard lock(mutex_);
  ObjectInfo* object = index_.Find(ns, id);
  if (object == nullptr) return Status(Code::kNotFound, "not here");
  if (object->verified) return Status::Ok();  // written anew meanwhile
  if (content.ok()) {
    object->verified = true;
    object->size = static_cast<uint32_t>(content->size());
    return Status::Ok();
  }
  if (object->refs == 0) {
    HF_RETURN_IF_ERROR(volume_->RemoveObject(ns, id));
    index_.Erase(ns, id);
  }
  return Status(Code::kNotFound, "torn");
}

Result<std::vector<bool>> LocalStore::Missing(const std::string& session, std::span<const SegmentId> ids) {
  if (ids.size() > kBatchSegments * 16) return Status(Code::kInvalidArgument, "too many ids in one question");
  std::vector<bool> missing(ids.size(), true);
  std::vector<size_t> doubtful;
  std::string ns;
  HashKey key;
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    if (state->pins.size() + ids.size() > 2 * kMaxSegments)
      return Status(Code::kResourceExhausted, "the session " + session + " has too many segments");
    ns = state->ns;
    HF_ASSIGN_OR_RETURN(key, KeyOf(ns));
    for (size_t i = 0; i < ids.size(); ++i) {
      ObjectInfo* object = index_.Find(ns, ids[i]);
      if (object == nullptr) continue;
      if (!object->verified) {
        doubtful.push_back(i);
        continue;
      }
      Pin(*state, ids[i], *object);
      missing[i] = false;
    }
  }
  for (size_t i : doubtful) {
    Status whole = Verify(ns, key, ids[i]);
    if (!whole.ok() && whole.code() != Code::kNotFound) return whole;
    if (!whole.ok()) continue;
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    ObjectInfo* object = index_.Find(ns, ids[i]);
    if (object == nullptr || !object->verified) continue;
    Pin(*state, ids[i], *object);
    missing[i] = false;
  }
  return missing;
}

Status LocalStore::Put(const std::string& session, const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) {
  HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(codec), size, bytes.size()));
  std::string ns;
  HashKey key;
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    ns = state->ns;
    HF_ASSIGN_OR_RETURN(key, KeyOf(ns));
  }
  std::string unpacked;
  std::span<const std::byte> content = bytes;
  if (codec != Codec::kRaw) {
    HF_ASSIGN_OR_RETURN(unpacked, Decode(codec, size, bytes));
    content = AsBytes(unpacked);
  }
  // Before anything else, whether we have it or not: a node must not be able to put its bytes under another content's name.
  if (HashSegment(key, content) != id)
    return Status(Code::kDataLoss, "the segment " + id.Hex() + " does not have the content of its name: refused");
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    if (state->pins.size() >= 2 * kMaxSegments)
      return Status(Code::kResourceExhausted, "the session " + session + " has too many segments");
    ObjectInfo* object = index_.Find(ns, id);
    if (object != nullptr && object->verified) {
      Pin(*state, id, *object);
      return Status::Ok();
    }
    // The second half of the reserve is for manifests and marks, so that what began can end.
    HF_RETURN_IF_ERROR(RoomFor(bytes.size(), options_.reserve_bytes / 2));
  }
  HF_ASSIGN_OR_RETURN(std::string staged, volume_->StageObject(codec, size, bytes));
  std::lock_guard lock(mutex_);
  Result<OpenState*> state = FindOpen(session);
  ObjectInfo* object = index_.Find(ns, id);
  if (!state.ok() || (object != nullptr && object->verified)) {
    volume_->Unstage(staged);
    if (!state.ok()) return state.status();
    Pin(**state, id, *object);
    return Status::Ok();
  }
  Status placed = volume_->PlaceObject(staged, ns, id);
  if (!placed.ok()) {
    volume_->Unstage(staged);
    return placed;
  }
  ObjectInfo& added = index_.Put(ns, id, bytes.size() + 16);
  added.size = size;
  added.verified = true;
  Pin(**state, id, added);
  return Status::Ok();
}

bool LocalStore::AwaitIdle(const std::string& id, std::unique_lock<std::mutex>& lock) {
  return clock_.WaitUntil(lock, idle_, clock_.Mono() + kBusyPatience, {}, [&] {
    auto open = open_.find(id);
    return closing_ || open == open_.end() || !open->second.busy;
  });
}

Result<CommitResult> LocalStore::Commit(const std::string& id, const Manifest& manifest) {
  HF_RETURN_IF_ERROR(CheckManifest(manifest));
  std::unique_lock lock(mutex_);
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
Result<CommitResult> LocalStore::CommitLocked(const std::string& id, const std::string& ns, const Manifest& manifest,
                                              std::unique_lock<std::mutex>& lock) {
  HF_RETURN_IF_ERROR(PinAll(id, ns, manifest, lock));
  SegmentSet ids;
  StoredManifest stored;
  for (const FileEntry& file : manifest.files) {
    for (const SegmentRef& segment : file.segments) {
      if (segment.zero || !ids.insert(segment.id).second) continue;
      const ObjectInfo* object = index_.Find(ns, segment.id);
      if (object->refs == 0) stored.new_bytes += object->stored_bytes;
    }
  }
  lock.unlock();
  stored.text = manifest.Serialize();
  Status written = stored.text.size() <= kMaxManifestBytes ? Status::Ok() : Status(Code::kInvalidArgument, "the manifest is too long");
  if (written.ok()) {
    stored.digest = Digest(stored.text);
    HF_FAULT_POINT("store.before_sync");
    written = volume_->Sync();
  }
  if (written.ok()) written = volume_->WriteManifest(id, stored);
  lock.lock();
  if (!written.ok()) {
    open_[id].maybe_committed = volume_->ReadManifest(id).ok();
    return written;
  }
  for (const SegmentId& segment : ids) ++index_.Find(ns, segment)->refs;  // pinned: all are there
  committed_[id] = Committed{.ns = ns, .digest = stored.digest, .new_bytes = stored.new_bytes};
  Status removed = volume_->RemoveMark("sessions", id);
  if (!removed.ok()) LogWarning("the mark of a committed session stays until the next start", {{"error", removed.ToString()}});
  return CommitResult{.id = id, .digest = stored.digest, .new_bytes = stored.new_bytes};
}

Status LocalStore::PinAll(const std::string& id, const std::string& ns, const Manifest& manifest, std::unique_lock<std::mutex>& lock) {
  HF_ASSIGN_OR_RETURN(HashKey key, KeyOf(ns));
  for (const FileEntry& file : manifest.files) {
    for (const SegmentRef& segment : file.segments) {
      if (segment.zero) continue;
      ObjectInfo* object = index_.Find(ns, segment.id);
      if (object != nullptr && !object->verified) {
        lock.unlock();
        Status whole = Verify(ns, key, segment.id);
        lock.lock();
        if (!whole.ok() && whole.code() != Code::kNotFound) return whole;
        object = index_.Find(ns, segment.id);
      }
      if (object == nullptr || !object->verified) {
        return Status(Code::kInvalidArgument,
                      "the store lacks the segment " + segment.id.Hex() + " of \"" + file.path + "\": send it, then commit again");
      }
      if (object->size != segment.size) {
        return Status(Code::kInvalidArgument, "the segment " + segment.id.Hex() + " has " + std::to_string(object->size) +
                                                  " bytes, the manifest says " + std::to_string(segment.size));
      }
      Pin(open_[id], segment.id, *object);
    }
  }
  return Status::Ok();
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
  std::unique_lock lock(mutex_);
  if (!AwaitIdle(id, lock)) return Busy(id);
  if (closing_) return Status(Code::kUnavailable, "the store is closing");
  if (aborted_.contains(id)) return Status::Ok();
  if (committed_.contains(id)) return Status(Code::kFailedPrecondition, "the session " + id + " was committed");
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
