#include "storage/local_store.h"

#include <algorithm>

#include "base/log.h"
#include "storage/codec.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMembersKept = 64, kMemberIdsKept = 4 << 20;  // manifests whose ids are kept for readers, and ids of them together

bool ByKey(const IdKey& a, const IdKey& b) { return a.low != b.low ? a.low < b.low : a.high < b.high; }

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
  Status Hold(const std::string& manifest) override { return store_->HoldParent(id_, manifest); }
  Result<std::vector<bool>> Secure(std::span<const SegmentId> ids) override { return store_->Secure(id_, ids); }
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

Result<std::unique_ptr<Session>> LocalStore::OpenSession(const std::string& id, const std::string& ns) { return OpenSession(id, ns, ""); }

Result<std::unique_ptr<Session>> LocalStore::OpenSession(const std::string& id, const std::string& ns, const std::string& node) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  Lock lock(mutex_);
  if (closing_) return Closed();
  if (!open_.contains(id) && !committed_.contains(id) && !aborted_.contains(id))
    HF_RETURN_IF_ERROR(PlaceFor(node, lock));  // which lets go of the lock
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
    HF_RETURN_IF_ERROR(RoomFor(0, options_.reserve_bytes));
    HF_RETURN_IF_ERROR(volume_->WriteMark("sessions", id, DumpJson({{"ns", ns}, {"node", node}})));
    OpenState& state = open_[id];
    state.ns = ns;
    state.node = node;
    state.last_used = clock_.Mono();
  }
  return std::unique_ptr<Session>(std::make_unique<LocalSession>(this, id, keys.hash));
}

// Of those of the node, where it has reached its bound, else of all: the one that was unused for longest.
Status LocalStore::PlaceFor(const std::string& node, Lock& lock) {
  for (;;) {
    size_t of_node = 0;
    for (const auto& [id, state] : open_) of_node += !node.empty() && state.node == node ? 1 : 0;
    const bool node_full = of_node >= kMaxOpenSessionsOfNode;
    if (!node_full && open_.size() < kMaxOpenSessions) return Status::Ok();
    auto oldest = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      const OpenState& state = it->second;
      const bool abandoned = !state.busy && !state.maybe_committed && clock_.Mono() - state.last_used > options_.session_abandoned;
      if (!abandoned || (node_full && state.node != node)) continue;
      if (oldest == open_.end() || state.last_used < oldest->second.last_used) oldest = it;
    }
    // Not that the store is full: this passes.
    if (oldest == open_.end()) {
      return Status(Code::kUnavailable,
                    (node_full ? "node " + node + " has " + std::to_string(of_node) : "the store has " + std::to_string(open_.size())) +
                        " open sessions, its limit: try again when some have ended");
    }
    const std::string id = oldest->first;
    LogWarning("a session that nobody used gave way to another", {{"session", id}, {"node", oldest->second.node}});
    HF_RETURN_IF_ERROR(volume_->RemoveMark("sessions", id));
    EndSession(id, lock);
  }
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

std::vector<std::string> LocalStore::CommittedIn(const std::string& ns) {
  std::lock_guard lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, committed] : committed_) {
    if (committed.ns == ns) ids.push_back(id);
  }
  return ids;
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
  HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
  std::string ns;
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Closed();
    auto committed = committed_.find(manifest);
    if (committed != committed_.end()) ns = committed->second.ns;
  }
  if (ns.empty()) return Status(Code::kNotFound, "the store has no checkpoint " + manifest);
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(ns));
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
  bool whole = true;
  auto add = [&](const std::vector<SegmentRef>& segments) {
    for (const SegmentRef& segment : segments) {
      if (!segment.zero) members->ids.emplace_back(segment.id);
    }
  };
  for (const FileEntry& file : manifest.files) {
    add(file.segments);
    for (const LeafRef& leaf : file.leaves) {
      members->ids.emplace_back(leaf.id);
      Result<std::vector<SegmentRef>> segments = ReadLeaf(manifest.ns, leaf);
      if (segments.ok()) add(*segments);
      whole = whole && segments.ok();  // whoever asks for the leaf hears why, and it may be mended later
    }
  }
  std::sort(members->ids.begin(), members->ids.end(), ByKey);
  members->ids.erase(std::unique(members->ids.begin(), members->ids.end()), members->ids.end());
  std::lock_guard lock(mutex_);
  if (!committed_.contains(id)) return Status(Code::kNotFound, "the store has no checkpoint " + id);  // deleted meanwhile
  if (!whole) return std::shared_ptr<const Members>(members);
  members_.push_front(members);
  size_t kept = 0;
  for (auto it = members_.begin(); it != members_.end();) {
    kept += (*it)->ids.size();
    const bool keep = it == members_.begin() || (kept <= kMemberIdsKept && members_.size() <= kMembersKept);
    it = keep ? std::next(it) : members_.erase(it);
  }
  return std::shared_ptr<const Members>(members);
}

Status LocalStore::ReadMember(const Members& members, const SegmentId& id, StoredSegment* segment) {
  if (!std::binary_search(members.ids.begin(), members.ids.end(), IdKey(id), ByKey))
    return Status(Code::kInvalidArgument, "the checkpoint " + members.id + " has no segment " + id.Hex());
  Status read = ReadStored(members.ns, id, segment);
  if (read.ok()) return read;
  std::lock_guard lock(mutex_);
  if (!committed_.contains(members.id)) return Status(Code::kNotFound, "the store has no checkpoint " + members.id);  // deleted meanwhile
  return read.With("the segment " + id.Hex() + " of the checkpoint " + members.id);
}

Result<StoredSegment> LocalStore::GetStored(const std::string& manifest, const SegmentId& id) {
  HF_ASSIGN_OR_RETURN(std::shared_ptr<const Members> members, MembersOf(manifest));
  StoredSegment segment;
  HF_RETURN_IF_ERROR(ReadMember(*members, id, &segment));
  return segment;
}

Status LocalStore::GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink) {
  HF_ASSIGN_OR_RETURN(std::shared_ptr<const Members> members, MembersOf(manifest));
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(members->ns));
  StoredSegment stored;
  std::string unpacked;
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentRef& segment = segments[i];
    if (segment.zero) {
      HF_RETURN_IF_ERROR(sink(i, std::vector<std::byte>(std::min<size_t>(segment.size, kMaxSegmentBytes))));
      continue;
    }
    HF_RETURN_IF_ERROR(ReadMember(*members, segment.id, &stored));
    std::span<const std::byte> content = AsBytes(stored.bytes);
    if (stored.codec != Codec::kRaw) {
      HF_RETURN_IF_ERROR(Decode(stored.codec, stored.size, content, &unpacked));
      content = AsBytes(unpacked);
    }
    if (content.size() != segment.size || HashSegment(keys.hash, content) != segment.id)
      return Status(Code::kDataLoss, "the segment " + segment.id.Hex() + " of the checkpoint " + manifest + " does not have its content");
    HF_RETURN_IF_ERROR(sink(i, content));
  }
  return Status::Ok();
}

Result<std::string> LocalStore::GetSegment(const std::string& manifest, const SegmentRef& segment) {
  std::string content;
  HF_RETURN_IF_ERROR(GetSegments(manifest, std::span(&segment, 1), [&](size_t, std::span<const std::byte> bytes) {
    content.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  }));
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
    hurt_checkpoints_.erase(manifest);
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
  hurt_checkpoints_.erase(manifest);
  members_.remove_if([&](const auto& members) { return members->id == manifest; });
  Release(content->ns, HoldingOf(*content), lock);
  if (unknown_.erase(manifest) > 0 && unknown_.empty()) {
    for (const std::string& ns : index_.Namespaces()) EraseAllUnneeded(ns);
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
  size_t leaves = 0;
  for (const auto& [ns, table] : leaves_) leaves += table.memory_bytes();
  const uint64_t reserve = options_.reserve_bytes;
  const uint64_t free = space.free - std::min(space.free, buffers_.bytes()) + std::min(reserve, reserve_held_);
  uint64_t room = free - std::min(free, reserve);
  if (options_.max_bytes > 0) room = std::min(room, options_.max_bytes - std::min(options_.max_bytes, pack_bytes_ + reserve));
  return StoreUsage{.object_bytes = live_bytes_,
                    .objects = index_.count(),
                    .pack_bytes = pack_bytes_,
                    .packs = packs_.size() - free_numbers_.size(),
                    .index_memory_bytes = index_.memory_bytes() + leaves,
                    .max_bytes = options_.max_bytes,
                    .volume_total = space.total,
                    .volume_free = space.free,
                    .room_bytes = room,
                    .manifests = committed_.size(),
                    .open_sessions = open_.size(),
                    .damaged_manifests = damaged_.size(),
                    .scrub = {.passes = scrub_.passes,
                              .read_bytes = scrub_.read_bytes,
                              .mended_files = scrub_.mended_files,
                              .begun = scrub_.begun,
                              .ended = scrub_.ended,
                              .done = scrub_.under_way ? scrub_.done : 1,
                              .damaged_segments = suspects_.size(),
                              .hurt_checkpoints = hurt_checkpoints_.size()}};
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
