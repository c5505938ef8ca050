#include "storage/local_store.h"

#include <algorithm>

#include "base/log.h"
#include "storage/codec.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMembersKept = 8;  // manifests whose ids are kept for readers

std::string Gib(uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

Status Closed() { return Status(Code::kUnavailable, "the store is closing"); }

Status AbortedBefore(const std::string& id) {
  return Status(Code::kFailedPrecondition, "the session " + id + " was aborted: a new checkpoint needs a new id");
}

}  // namespace

// A handle: the state is the store's, so several handles on one id are one session.
class LocalSession final : public Session {
 public:
  LocalSession(LocalStore* store, std::string id, HashKey key) : store_(store), id_(std::move(id)), key_(key) {}
  Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) override { return store_->Missing(id_, ids); }
  Status Put(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) override {
    return store_->Put(id_, {.id = id, .codec = codec, .size = size, .bytes = bytes});
  }
  Result<CommitResult> Commit(const Manifest& manifest) override { return store_->Commit(id_, manifest); }
  Status Abort() override { return store_->AbortOpen(id_); }
  const HashKey& hash_key() const override { return key_; }

 private:
  LocalStore* const store_;
  const std::string id_;
  const HashKey key_;
};

LocalStore::~LocalStore() {
  Close();
  std::vector<std::shared_ptr<Filling>> fillings;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, state] : open_) fillings.push_back(state.filling);
  }
  for (const auto& filling : fillings) EndFilling(*filling);
}

void LocalStore::Close() {
  std::lock_guard lock(mutex_);
  closing_ = true;
  idle_.notify_all();
}

Result<std::unique_ptr<Session>> LocalStore::OpenSession(const std::string& id, const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  std::lock_guard lock(mutex_);
  if (closing_) return Closed();
  if (aborted_.contains(id)) return AbortedBefore(id);
  if (damaged_.contains(id)) return Status(Code::kDataLoss, "the checkpoint " + id + " was committed, and its manifest is damaged");
  auto open = open_.find(id);
  auto committed = committed_.find(id);
  const std::string* taken = open != open_.end() ? &open->second.ns : committed != committed_.end() ? &committed->second.ns : nullptr;
  if (taken != nullptr && *taken != ns) {
    return Status(Code::kInvalidArgument, "the session " + id + " is of the namespace " + *taken + ", not of " + ns);
  }
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(ns));
  if (open != open_.end()) open->second.last_used = clock_.Mono();
  if (taken == nullptr) {
    if (open_.size() >= kMaxOpenSessions) {
      return Status(Code::kResourceExhausted,
                    "the store has " + std::to_string(open_.size()) + " open sessions, its limit: try again when some have ended");
    }
    HF_RETURN_IF_ERROR(RoomFor(0, options_.reserve_bytes));
    HF_RETURN_IF_ERROR(volume_->WriteMark("sessions", id, DumpJson({{"ns", ns}})));
    OpenState& state = open_[id];
    state.ns = ns;
    state.last_used = clock_.Mono();
  }
  return std::unique_ptr<Session>(std::make_unique<LocalSession>(this, id, keys.hash));
}

Result<std::unique_ptr<Session>> LocalStore::FindSession(const std::string& id) {
  std::lock_guard lock(mutex_);
  if (closing_) return Closed();
  if (aborted_.contains(id)) return AbortedBefore(id);
  auto open = open_.find(id);
  auto committed = committed_.find(id);
  if (open == open_.end() && committed == committed_.end())
    return Status(Code::kNotFound, "the store has no session " + id + ": open it first");
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(open != open_.end() ? open->second.ns : committed->second.ns));
  return std::unique_ptr<Session>(std::make_unique<LocalSession>(this, id, keys.hash));
}

Result<std::string> LocalStore::NamespaceOf(const std::string& id) {
  std::lock_guard lock(mutex_);
  if (auto open = open_.find(id); open != open_.end()) return open->second.ns;
  if (auto committed = committed_.find(id); committed != committed_.end()) return committed->second.ns;
  return Status(Code::kNotFound, "the store has no session " + id);
}

Result<SessionState> LocalStore::StateOf(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  std::lock_guard lock(mutex_);
  if (closing_) return Closed();
  if (committed_.contains(id) || damaged_.contains(id)) return SessionState::kCommitted;
  if (aborted_.contains(id)) return SessionState::kAborted;
  return open_.contains(id) ? SessionState::kOpen : SessionState::kUnknown;
}

Result<StoredManifest> LocalStore::GetManifestText(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Closed();
  }
  return volume_->ReadManifest(id);
}

Result<Manifest> LocalStore::GetManifest(const std::string& id) {
  HF_ASSIGN_OR_RETURN(StoredManifest stored, GetManifestText(id));
  return Manifest::Parse(stored.text);
}

Result<std::array<uint8_t, 32>> LocalStore::HashKeyOf(const std::string& manifest) {
  HF_ASSIGN_OR_RETURN(std::shared_ptr<const Members> members, MembersOf(manifest));
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(members->ns));
  return keys.hash;
}

Result<std::shared_ptr<const LocalStore::Members>> LocalStore::MembersOf(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Closed();
    for (auto it = members_.begin(); it != members_.end(); ++it) {
      if ((*it)->id != id) continue;
      members_.splice(members_.begin(), members_, it);
      return members_.front();
    }
  }
  HF_ASSIGN_OR_RETURN(Manifest manifest, GetManifest(id));
  auto members = std::make_shared<Members>();
  members->id = id;
  members->ns = manifest.ns;
  for (const FileEntry& file : manifest.files) {
    for (const SegmentRef& segment : file.segments) {
      if (!segment.zero) members->ids.push_back(segment.id);
    }
  }
  std::sort(members->ids.begin(), members->ids.end());
  std::lock_guard lock(mutex_);
  if (!committed_.contains(id)) return Status(Code::kNotFound, "the store has no checkpoint " + id);  // deleted meanwhile
  members_.push_front(members);
  if (members_.size() > kMembersKept) members_.pop_back();
  return std::shared_ptr<const Members>(members);
}

Result<StoredSegment> LocalStore::GetStored(const std::string& manifest, const SegmentId& id) {
  HF_ASSIGN_OR_RETURN(std::shared_ptr<const Members> members, MembersOf(manifest));
  if (!std::binary_search(members->ids.begin(), members->ids.end(), id)) {
    return Status(Code::kInvalidArgument, "the checkpoint " + manifest + " has no segment " + id.Hex());
  }
  Result<StoredSegment> stored = ReadStored(members->ns, id);
  if (stored.ok()) return stored;
  {
    std::lock_guard lock(mutex_);
    if (!committed_.contains(manifest)) return Status(Code::kNotFound, "the store has no checkpoint " + manifest);  // deleted meanwhile
  }
  return stored.status().With("the segment " + id.Hex() + " of the checkpoint " + manifest);
}

Result<std::string> LocalStore::GetSegment(const std::string& manifest, const SegmentRef& segment) {
  if (segment.zero) return std::string(std::min<size_t>(segment.size, kMaxSegmentBytes), '\0');
  HF_ASSIGN_OR_RETURN(StoredSegment stored, GetStored(manifest, segment.id));
  HF_ASSIGN_OR_RETURN(HashKey key, HashKeyOf(manifest));
  std::string content;
  if (stored.codec == Codec::kRaw) {
    content = std::move(stored.bytes);
  } else {
    HF_ASSIGN_OR_RETURN(content, Decode(stored.codec, stored.size, AsBytes(stored.bytes)));
  }
  if (content.size() != segment.size || HashSegment(key, AsBytes(content)) != segment.id)
    return Status(Code::kDataLoss, "the segment " + segment.id.Hex() + " of the checkpoint " + manifest + " does not have its content");
  return content;
}

Status LocalStore::Delete(const std::string& manifest) {
  HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
  Result<Manifest> content = GetManifest(manifest);
  // Neither whole nor damaged: the disk did not say.
  if (!content.ok() && (content.status().code() == Code::kUnavailable || content.status().code() == Code::kInternal))
    return content.status();
  Lock lock(mutex_);
  auto begun = deleting_.find(manifest);
  if (begun != deleting_.end()) content = begun->second;
  if (!content.ok()) {
    if (content.status().code() == Code::kNotFound && !damaged_.contains(manifest)) return Status::Ok();
    // Unreadable: gone is all it can be.
    LogWarning("deleting a damaged manifest", {{"checkpoint", manifest}, {"error", content.status().ToString()}});
    HF_RETURN_IF_ERROR(volume_->RemoveManifest(manifest));
    committed_.erase(manifest);  // read at start, damaged since: its references are forgotten at the next start
    const bool last = damaged_.erase(manifest) > 0 && damaged_.empty();
    if (last) {
      for (const std::string& ns : index_.Namespaces()) EraseAllUnneeded(ns);
      SweepDead(lock);
    }
    return Status::Ok();
  }
  if (!committed_.contains(manifest)) return Status::Ok();  // somebody else was faster
  Status removed = volume_->RemoveManifest(manifest);
  if (!removed.ok()) {
    deleting_[manifest] = *content;
    return removed;
  }
  committed_.erase(manifest);
  deleting_.erase(manifest);
  members_.remove_if([&](const auto& members) { return members->id == manifest; });
  IdSet seen;
  for (const FileEntry& file : content->files) {
    for (const SegmentRef& segment : file.segments) {
      const IdKey key(segment.id);
      if (segment.zero || !seen.Insert(key).second) continue;
      ObjectInfo* object = index_.Find(content->ns, key);
      if (object == nullptr || object->refs == 0) continue;
      if (--object->refs == 0) EraseUnneeded(content->ns, key);
    }
  }
  SweepDead(lock);
  return Status::Ok();
}

Result<LocalStore::OpenState*> LocalStore::FindOpen(const std::string& id) {
  if (closing_) return Closed();
  if (aborted_.contains(id)) return AbortedBefore(id);
  auto open = open_.find(id);
  if (open == open_.end()) {
    return Status(Code::kFailedPrecondition, "the session " + id + (committed_.contains(id) ? " was committed" : " is not open"));
  }
  open->second.last_used = clock_.Mono();
  return &open->second;
}

Status LocalStore::RoomFor(uint64_t bytes, uint64_t reserve) {
  if (options_.max_bytes > 0 && pack_bytes_ + bytes + reserve > options_.max_bytes) {
    return Status(Code::kResourceExhausted, "the store is full: it holds " + Gib(pack_bytes_) + " of " + Gib(options_.max_bytes) +
                                                " (--max-bytes) and keeps " + Gib(reserve) +
                                                " free: delete checkpoints or raise the limit");
  }
  HF_ASSIGN_OR_RETURN(Space space, volume_->FreeSpace());
  space.free -= std::min(space.free, buffers_.bytes());  // taken, but not written yet
  if (space.free + std::min(reserve, reserve_held_) < bytes + reserve) {
    return Status(Code::kResourceExhausted, "the store is full: its volume of " + Gib(space.total) + " has " + Gib(space.free) +
                                                " left, of which " + Gib(reserve) +
                                                " are kept free: delete checkpoints or enlarge the volume");
  }
  return Status::Ok();
}

Status LocalStore::CheckRoom() {
  std::lock_guard lock(mutex_);
  return RoomFor(0, options_.reserve_bytes);
}

Result<StoreUsage> LocalStore::Usage() {
  HF_ASSIGN_OR_RETURN(Space space, volume_->FreeSpace());
  std::lock_guard lock(mutex_);
  return StoreUsage{.object_bytes = live_bytes_,
                    .objects = index_.count(),
                    .pack_bytes = pack_bytes_,
                    .packs = packs_.size() - free_numbers_.size(),
                    .index_memory_bytes = index_.memory_bytes(),
                    .max_bytes = options_.max_bytes,
                    .volume_total = space.total,
                    .volume_free = space.free,
                    .manifests = committed_.size(),
                    .open_sessions = open_.size(),
                    .damaged_manifests = damaged_.size()};
}

void LocalStore::ExpireSessions() {
  std::vector<std::string> idle;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, state] : open_) {
      if (!state.busy && clock_.Mono() - state.last_used > options_.session_idle) idle.push_back(id);
    }
  }
  for (const std::string& id : idle) {
    Status aborted = AbortOpen(id);
    LogWarning("a session that nobody used was aborted", {{"session", id}, {"result", aborted.ToString()}});
  }
}

}  // namespace holdfast::storage
