#include "tests/sim/store.h"

#include <algorithm>
#include <filesystem>

#include "api/stores.h"
#include "base/file.h"
#include "storage/hash.h"

namespace holdfast::sim {

using storage::SessionState;

class Store::Session final : public storage::Session {
 public:
  Session(Store& store, std::string id, std::string ns) : store_(store), id_(std::move(id)), ns_(std::move(ns)) {}

  Result<std::vector<bool>> Missing(std::span<const storage::SegmentId> ids) override {
    HF_RETURN_IF_ERROR(Usable());
    std::vector<bool> missing;
    for (const storage::SegmentId& id : ids) missing.push_back(!store_.segments_.contains(id));
    return missing;
  }
  Status Put(const storage::SegmentId& id, storage::Codec, uint32_t, std::span<const std::byte> bytes) override {
    HF_RETURN_IF_ERROR(Usable());
    store_.segments_[id] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  }
  Result<storage::CommitResult> Commit(const storage::Manifest& manifest) override {
    HF_RETURN_IF_ERROR(Usable());
    uint64_t bytes = 0;
    for (const storage::FileEntry& file : manifest.files) {
      for (const storage::SegmentRef& segment : file.segments) {
        if (!store_.segments_.contains(segment.id)) return Status(Code::kInvalidArgument, "a segment is missing: " + segment.id.Hex());
        bytes += segment.size;
      }
    }
    const auto [known, fresh] = store_.manifests_.try_emplace(id_, manifest);
    if (!fresh && known->second.Serialize() != manifest.Serialize())
      return Status(Code::kInvalidArgument, "another manifest was committed");
    store_.sessions_[id_] = SessionState::kCommitted;
    return storage::CommitResult{id_, storage::Digest(manifest.Serialize()), bytes};
  }
  Status Abort() override { return store_.Abort(id_, ns_); }
  const std::array<uint8_t, 32>& hash_key() const override { return key_; }

 private:
  Status Usable() const {
    HF_RETURN_IF_ERROR(store_.Reached());
    const SessionState state = store_.sessions_.at(id_);
    return state == SessionState::kAborted ? Status(Code::kFailedPrecondition, "it was aborted") : Status::Ok();
  }
  Store& store_;
  const std::string id_, ns_;
  const std::array<uint8_t, 32> key_{};
};

Status Store::Carry(Turns& turns, int64_t bytes, const storage::IngestOptions& options) {
  constexpr Duration kPart = std::chrono::milliseconds(100);
  if (pace == 0) return Status::Ok();
  ++senders_;
  Status carried;
  for (int64_t sent = 0; sent < bytes && carried.ok(); sent = std::min(bytes, sent + pace / 10 / senders_)) {
    if (options.progress) options.progress({static_cast<uint64_t>(sent), static_cast<uint64_t>(bytes)});
    turns.Pause(kPart);
    carried = options.stop.stop_requested() ? Status(Code::kCancelled, "stopped") : Reached();
  }
  --senders_;
  return carried;
}

Status Store::Reached() const { return reachable() ? Status::Ok() : Status(Code::kUnavailable, "the store does not answer"); }

Result<std::unique_ptr<storage::Session>> Store::OpenSession(const std::string& id, const std::string& ns) {
  HF_RETURN_IF_ERROR(Reached());
  const SessionState state = sessions_.try_emplace(id, SessionState::kOpen).first->second;
  if (state == SessionState::kAborted) return Status(Code::kFailedPrecondition, "it was aborted");
  return std::unique_ptr<storage::Session>(new Session(*this, id, ns));
}

Result<SessionState> Store::StateOf(const std::string& id) {
  HF_RETURN_IF_ERROR(Reached());
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? SessionState::kUnknown : found->second;
}

Result<storage::Manifest> Store::GetManifest(const std::string& id) {
  HF_RETURN_IF_ERROR(Reached());
  const auto found = manifests_.find(id);
  if (found == manifests_.end()) return Status(Code::kNotFound, "no manifest " + id);
  return found->second;
}

Result<std::string> Store::GetSegment(const std::string&, const storage::SegmentRef& segment) {
  HF_RETURN_IF_ERROR(Reached());
  const auto found = segments_.find(segment.id);
  if (found == segments_.end()) return Status(Code::kDataLoss, "no segment " + segment.id.Hex());
  return found->second;
}

Status Store::Abort(const std::string& id, const std::string&) {
  HF_RETURN_IF_ERROR(Reached());
  SessionState& state = sessions_[id];
  if (state == SessionState::kCommitted) return {Code::kFailedPrecondition, "it was committed"};
  state = SessionState::kAborted;
  return Status::Ok();
}

Status Store::Delete(const std::string& manifest) {
  HF_RETURN_IF_ERROR(Reached());
  manifests_.erase(manifest);
  sessions_[manifest] = SessionState::kAborted;
  // Its collection comes at once, without the grace that a real one has.
  std::set<storage::SegmentId> live;
  for (const auto& [id, kept] : manifests_) {
    for (const storage::FileEntry& file : kept.files) {
      for (const storage::SegmentRef& segment : file.segments) live.insert(segment.id);
    }
  }
  const bool written = std::any_of(sessions_.begin(), sessions_.end(), [](const auto& s) { return s.second == SessionState::kOpen; });
  if (!written) std::erase_if(segments_, [&](const auto& segment) { return !live.contains(segment.first); });
  return Status::Ok();
}

Result<reconcilers::checkpoint::Content> Store::Read(const std::string& manifest_id, std::stop_token) {
  HF_ASSIGN_OR_RETURN(storage::Manifest manifest, GetManifest(manifest_id));
  return reconcilers::checkpoint::Content{api::kDefaultStore, manifest.ns, manifest.checkpoint, storage::Digest(manifest.Serialize()),
                                          manifest.created,   1,           manifest.info};
}

Status Store::Delete(const std::string& store, const std::string& manifest_id, int64_t, std::stop_token) {
  if (!store.empty() && store != api::kDefaultStore) return {Code::kNotFound, "no store " + store};
  return Delete(manifest_id);
}

std::string Store::FileOf(const std::string& manifest, const std::string& path) const {
  const auto found = manifests_.find(manifest);
  if (found == manifests_.end()) return "";
  std::string content;
  for (const storage::FileEntry& file : found->second.files) {
    if (file.path != path) continue;
    for (const storage::SegmentRef& segment : file.segments) {
      const auto part = segments_.find(segment.id);
      content += part == segments_.end() ? "" : part->second;
    }
  }
  return content;
}

std::map<std::string, Result<reconcilers::checkpoint::Damages>> Store::Damaged(std::stop_token) {
  std::map<std::string, Result<reconcilers::checkpoint::Damages>> all;
  if (const Status reached = Reached(); !reached.ok()) {
    all.emplace(api::kDefaultStore, reached);
  } else {
    all.emplace(api::kDefaultStore, reconcilers::checkpoint::Damages());
  }
  return all;
}

std::map<std::string, Result<reconcilers::restorepolicy::VolumeUse>> Store::Use(std::stop_token) {
  std::map<std::string, Result<reconcilers::restorepolicy::VolumeUse>> all;
  all.emplace(api::kDefaultStore, reconcilers::restorepolicy::VolumeUse{.live = 1, .packs = 1, .room = int64_t{1} << 40});
  return all;
}

Result<std::vector<storage::FileEntry>> Ingest(const std::string& dir, storage::Session& session) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir, error)) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string().substr(dir.size() + 1));
  }
  if (error) return Status(Code::kNotFound, "cannot read " + dir);
  std::sort(paths.begin(), paths.end());
  std::vector<storage::FileEntry> files;
  for (const std::string& path : paths) {
    HF_ASSIGN_OR_RETURN(std::string content, ReadFile(dir + "/" + path, 1 << 20));
    storage::FileEntry file{.path = path, .size = content.size()};
    if (!content.empty()) {
      const auto bytes = std::as_bytes(std::span(content));
      const storage::SegmentId id = storage::HashSegment(session.hash_key(), bytes);
      HF_RETURN_IF_ERROR(session.Put(id, storage::Codec::kRaw, static_cast<uint32_t>(content.size()), bytes));
      file.segments.push_back({id, static_cast<uint32_t>(content.size())});
    }
    files.push_back(std::move(file));
  }
  return files;
}

Status Fetch(storage::Store& store, const std::string& manifest_id, const std::string& dir) {
  HF_ASSIGN_OR_RETURN(storage::Manifest manifest, store.GetManifest(manifest_id));
  HF_RETURN_IF_ERROR(MakeDirs(dir));
  for (const storage::FileEntry& file : manifest.files) {
    std::string content;
    for (const storage::SegmentRef& segment : file.segments) {
      HF_ASSIGN_OR_RETURN(std::string part, store.GetSegment(manifest_id, segment));
      content += part;
    }
    const std::string path = dir + "/" + file.path;
    HF_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.rfind('/'))));
    HF_RETURN_IF_ERROR(WriteFileAtomically(path, content));
  }
  return Status::Ok();
}

}  // namespace holdfast::sim
