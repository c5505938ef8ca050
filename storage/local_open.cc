// What a start finds: committed manifests give the reference counts, open sessions go on, everything else is dropped.
#include <algorithm>

#include "base/log.h"
#include "storage/local_store.h"

namespace holdfast::storage {
namespace {

constexpr size_t kManyTombstones = 100'000;  // an empty file each, kept for ever: worth a line in the log

}  // namespace

Result<std::unique_ptr<LocalStore>> LocalStore::Open(const LocalStoreOptions& options, Clock& clock) {
  std::unique_ptr<LocalStore> store(new LocalStore(options, clock));
  HF_ASSIGN_OR_RETURN(store->volume_, Volume::Open(options.dir, Volume::Mode::kWrite));
  HF_RETURN_IF_ERROR(store->Load().With("the store in " + options.dir));
  return store;
}

Status LocalStore::Load() {
  HF_RETURN_IF_ERROR(LoadManifests());
  HF_RETURN_IF_ERROR(LoadSessions());
  return LoadObjects();
}

Status LocalStore::LoadManifests() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume_->List("manifests"));
  for (const std::string& id : ids) {
    Result<StoredManifest> stored = volume_->ReadManifest(id);
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (!manifest.ok()) {
      ++damaged_;
      LogError("a manifest cannot be read: nothing unreferenced will be dropped; run holdfast-store fsck",
               {{"checkpoint", id}, {"error", manifest.status().ToString()}});
      continue;
    }
    committed_[id] = Committed{.ns = manifest->ns, .digest = stored->digest, .new_bytes = stored->new_bytes};
    SegmentSet seen;
    for (const FileEntry& file : manifest->files) {
      for (const SegmentRef& segment : file.segments) {
        if (segment.zero || !seen.insert(segment.id).second) continue;
        ObjectInfo& object = index_.Put(manifest->ns, segment.id, 0);  // its bytes are counted when the object itself is seen
        ++object.refs;
        object.size = segment.size;
      }
    }
  }
  return Status::Ok();
}

Status LocalStore::LoadSessions() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> aborted, volume_->List("aborted"));
  if (aborted.size() > kManyTombstones) {
    LogWarning("many tombstones of aborted sessions", {{"count", aborted.size()}, {"folder", volume_->dir() + "/aborted"}});
  }
  for (const std::string& id : aborted) {
    if (!committed_.contains(id)) aborted_.insert(id);
  }
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume_->List("sessions"));
  for (const std::string& id : ids) {
    Result<std::string> text = volume_->ReadMark("sessions", id);
    Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    const std::string ns = json.ok() ? GetString(*json, {"ns"}) : "";
    if (ns.empty() || committed_.contains(id) || aborted_.contains(id)) {
      HF_RETURN_IF_ERROR(volume_->RemoveMark("sessions", id));
      continue;
    }
    OpenState& state = open_[id];
    state.ns = ns;
    state.inherited = true;
    state.last_used = clock_.Mono();
    ++inherited_[ns];
  }
  return Status::Ok();
}

Status LocalStore::LoadObjects() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, volume_->Namespaces());
  size_t dropped = 0;
  for (const std::string& ns : namespaces) {
    const bool keep = inherited_.contains(ns) || damaged_ > 0;
    std::vector<SegmentId> drop;
    HF_RETURN_IF_ERROR(volume_->VisitObjects(ns, [&](const SegmentId& id, uint64_t bytes) {
      ObjectInfo* known = index_.Find(ns, id);
      if (known == nullptr && !keep) {
        drop.push_back(id);
        return;
      }
      ObjectInfo& object = index_.Put(ns, id, bytes);
      object.verified = object.refs > 0;  // the commit synced it
    }));
    for (const SegmentId& id : drop) HF_RETURN_IF_ERROR(volume_->RemoveObject(ns, id));
    dropped += drop.size();
  }
  // A reference without its object: the checkpoint is hurt, and the segment must be taken again when somebody offers it.
  size_t lost = 0;
  for (const auto& [id, committed] : committed_) {
    HF_ASSIGN_OR_RETURN(StoredManifest stored, volume_->ReadManifest(id));
    HF_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(stored.text));
    bool hurt = false;
    for (const FileEntry& file : manifest.files) {
      for (const SegmentRef& segment : file.segments) {
        ObjectInfo* object = segment.zero ? nullptr : index_.Find(manifest.ns, segment.id);
        hurt = hurt || (object != nullptr && !object->verified);
      }
    }
    lost += hurt ? 1 : 0;
    if (hurt) LogError("a checkpoint has lost segments: run holdfast-store fsck", {{"checkpoint", id}, {"namespace", manifest.ns}});
  }
  LogInfo("store opened", {{"dir", volume_->dir()},
                           {"checkpoints", committed_.size()},
                           {"hurt", lost + damaged_},
                           {"open_sessions", open_.size()},
                           {"objects", index_.count()},
                           {"bytes", index_.bytes()},
                           {"dropped", dropped}});
  return Status::Ok();
}

}  // namespace holdfast::storage
