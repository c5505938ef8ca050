// What a start finds: committed manifests give the reference counts, index files the places, open sessions go on, everything else goes.
// Only packs that were not sealed, or whose index is damaged, are read.
#include <algorithm>

#include "base/log.h"
#include "storage/bytes.h"
#include "storage/limits.h"
#include "storage/local_store.h"
#include "storage/pack_reader.h"

namespace holdfast::storage {
namespace {

constexpr size_t kManyTombstones = 100'000;  // an empty file each, kept for ever: worth a line in the log
constexpr size_t kMaxIndexBytes = kPackHeaderBytes + kMaxFooterBytes;

}  // namespace

Result<std::unique_ptr<LocalStore>> LocalStore::Open(const LocalStoreOptions& options, Clock& clock) {
  std::unique_ptr<LocalStore> store(new LocalStore(options, clock));
  HF_ASSIGN_OR_RETURN(store->volume_, Volume::Open({.dir = options.dir, .keks = options.keks, .fs = options.fs}, Volume::Mode::kWrite));
  HF_RETURN_IF_ERROR(store->Load().With("the store in " + options.dir));
  return store;
}

Status LocalStore::Load() {
  HF_RETURN_IF_ERROR(LoadManifests());
  HF_RETURN_IF_ERROR(LoadSessions());
  HF_RETURN_IF_ERROR(LoadPacks());
  HF_RETURN_IF_ERROR(LoadLeaves());
  LoadScrub();
  FindHurt();
  EmptyTrash();
  KeepReserve();
  LogInfo("store opened", {{"dir", volume_->dir()},
                           {"id", volume_->store_id()},
                           {"checkpoints", committed_.size()},
                           {"damaged", damaged_.size()},
                           {"open_sessions", open_.size()},
                           {"segments", index_.count()},
                           {"bytes", live_bytes_},
                           {"packs", packs_.size() - free_numbers_.size()},
                           {"pack_bytes", pack_bytes_}});
  return Status::Ok();
}

Status LocalStore::LoadManifests() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume_->List("manifests"));
  for (const std::string& id : ids) {
    Result<StoredManifest> stored = volume_->ReadManifest(id);
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (!manifest.ok()) {
      damaged_.insert(id);
      LogError("a manifest cannot be read: nothing unreferenced will be dropped; run holdfast-store fsck",
               {{"checkpoint", id}, {"error", manifest.status().ToString()}});
      continue;
    }
    committed_[id] = Committed{.ns = manifest->ns, .digest = stored->digest, .new_bytes = stored->new_bytes};
    IdSet own, leaves;
    for (const FileEntry& file : manifest->files) {
      for (const SegmentRef& segment : file.segments) {
        if (segment.zero || !own.Insert(IdKey(segment.id)).second) continue;
        ++index_.Insert(manifest->ns, segment.id).refs;  // its place follows
      }
      for (const LeafRef& leaf : file.leaves) {
        if (!leaves.Insert(IdKey(leaf.id)).second) continue;
        LeafInfo& info = *leaves_[manifest->ns].Insert(IdKey(leaf.id)).first;
        info.bytes = static_cast<uint32_t>(leaf.bytes) & LeafInfo::kBytesMask;
        if (info.holders++ > 0) continue;
        ++index_.Insert(manifest->ns, leaf.id).refs;
        loading_[manifest->ns].push_back(leaf);
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
    state.node = GetString(*json, {"node"});
    state.inherited = true;
    state.last_used = clock_.Mono();
    ++inherited_[ns];
  }
  return Status::Ok();
}

Status LocalStore::LoadPacks() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, volume_->List("packs"));
  std::set<std::string> known;
  for (const std::string& ns : namespaces) {
    Result<NamespaceKeys> keys = volume_->ExistingKeys(ns);
    const bool shredded = !keys.ok() && keys.status().code() == Code::kNotFound && damaged_.empty();
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, volume_->fs().List(volume_->PackFolder(ns)));
    pack_folders_.insert(ns);
    for (const std::string& name : names) {
      Result<PackId> id = PackId::FromHex(name);
      if (!id.ok()) continue;
      known.insert(name + ".ix");
      if (shredded) {
        HF_RETURN_IF_ERROR(volume_->fs().Rename(volume_->PackPath(ns, *id), volume_->TrashPath(*id)));
      } else if (keys.ok()) {
        Status loaded = LoadPack(ns, *id, *keys);
        if (!loaded.ok()) LogError("a pack cannot be used", {{"namespace", ns}, {"pack", name}, {"error", loaded.ToString()}});
      }
    }
  }
  HF_ASSIGN_OR_RETURN(std::vector<std::string> indexes, volume_->fs().List(volume_->dir() + "/index"));
  for (const std::string& name : indexes) {
    if (!known.contains(name)) HF_RETURN_IF_ERROR(volume_->fs().Remove(volume_->dir() + "/index/" + name));
  }
  return Status::Ok();
}

// Now that all packs are known: what leaves name is needed, and what nobody needs goes.
Status LocalStore::LoadLeaves() {
  size_t unreadable = 0;
  for (const auto& [ns, leaves] : std::exchange(loading_, {})) unreadable += CountLeaves(ns, leaves);
  for (const auto& [id, committed] : committed_) {
    if (unreadable == 0) break;
    HF_ASSIGN_OR_RETURN(Manifest manifest, GetManifest(id));
    LeafTable& leaves = leaves_[manifest.ns];
    for (const auto& [leaf, segments] : HoldingOf(manifest).leaves) {
      if (leaves.Find(IdKey(leaf.id))->state != LeafInfo::kUncounted || !unknown_.insert(id).second) continue;
      LogError("a leaf of a checkpoint cannot be read: nothing unreferenced will be dropped; run holdfast-store fsck",
               {{"checkpoint", id}, {"namespace", manifest.ns}, {"segment", leaf.id.Hex()}});
    }
  }
  Lock lock(mutex_);
  DropUndurable();
  for (const std::string& ns : index_.Namespaces()) {
    EraseAllUnneeded(ns);
    if (index_.Lost(ns) > 0) hurt_.insert(ns);
  }
  SweepDead(lock);
  return Status::Ok();
}

// What no manifest refers to may be referred to by the next: only when it is durable.
void LocalStore::DropUndurable() {
  for (const PackPointer& pack : packs_) {
    if (!pack || !pack->undurable) continue;
    for (const IdKey& key : index_.In(pack->ns, pack->number)) {
      ObjectInfo* object = index_.Find(pack->ns, key);
      if (object->refs > 0) continue;
      Unplace(*object);
      index_.Erase(pack->ns, key);
    }
  }
}

Status LocalStore::LoadPack(const std::string& ns, const PackId& id, const NamespaceKeys& keys) {
  auto pack = std::make_shared<Pack>(id, ns, DerivePackKeys(keys.data, id));
  Result<std::string> text = ReadWhole(volume_->fs(), volume_->IndexPath(id), kMaxIndexBytes);
  Result<PackIndex> index = text.ok() ? ParseIndexFile(*text, id, ns, pack->keys.index) : Result<PackIndex>(text.status());
  HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, volume_->fs().Open(volume_->PackPath(ns, id), FileSystem::For::kWriting));
  if (!index.ok()) {
    index = Rebuild(*pack, *file);
    if (!index.ok() && index.status().code() == Code::kNotFound) {  // nobody's
      HF_RETURN_IF_ERROR(volume_->fs().Remove(volume_->PackPath(ns, id)));
      return volume_->fs().Remove(volume_->IndexPath(id));
    }
    HF_RETURN_IF_ERROR(index.status());
  }
  HF_ASSIGN_OR_RETURN(pack->file_bytes, file->Size());
  pack->sealed = true;
  pack->sealed_at = clock_.Mono();
  pack->tight = index->tight;
  pack_bytes_ += pack->file_bytes;
  Number(pack);
  for (const PackRecord& record : index->records) {  // who needs them is known when the leaves were read
    pack->record_bytes += RecordBytes(record.stored);
    ObjectInfo& object = index_.Insert(ns, record.id);
    if (object.here()) {
      // Twice: it was taken anew because it was damaged, or a collection was cut short. Not the one that does not read.
      const PackPointer& other = packs_[object.pack];
      Result<std::shared_ptr<const File>> opened = FileOf(other);
      if (opened.ok() && ReadRecord(**opened, other->id, other->keys.records, object.Record(record.id)).ok()) continue;
    }
    Place(object, pack, record);
  }
  if (pack->live_bytes == 0) dead_.push_back(pack->number);
  return Status::Ok();
}

// A pack whose index file is not there or damaged: what its footer says, else what can be found in it, as far as it is whole. Its index
// file would say that the pack was synced; without it, a kill or a power cut may have come between footer and sync: so every record is
// read, and the pack is synced now. kNotFound: there is nothing in it.
Result<PackIndex> LocalStore::Rebuild(Pack& pack, File& file) {
  FileSystem& fs = volume_->fs();
  Result<PackIndex> footer = ReadFooter(file, pack.id, pack.ns, pack.keys.index);
  if (!footer.ok() && footer.status().code() != Code::kDataLoss) return footer;
  PackIndex index;
  size_t damaged = 0;
  if (footer.ok()) {
    index.footer_offset = footer->footer_offset;
    index.tight = footer->tight;
    for (const PackRecord& record : footer->records) {
      // Not even when a manifest refers to it: this may be a collection's copy that was not finished, and the good one lies elsewhere.
      Result<std::string> bytes = ReadRecord(file, pack.id, pack.keys.records, record);
      if (!bytes.ok() && bytes.status().code() != Code::kDataLoss) return bytes.status();
      damaged += bytes.ok() ? 0 : 1;
      if (bytes.ok()) index.records.push_back(record);
    }
  } else {
    HF_ASSIGN_OR_RETURN(ScannedPack scanned, ScanPack(file, pack.id, pack.keys.records));
    index.records = std::move(scanned.records);
    damaged = scanned.damaged;
    // Behind what is there, damaged or not: nothing is written over.
    HF_ASSIGN_OR_RETURN(uint64_t size, file.Size());
    index.footer_offset = (size + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
  }
  if (index.records.empty()) return Status(Code::kNotFound, "there is nothing in it");
  const std::string text = EncodeFooter(index, pack.id, pack.ns, pack.keys.index);
  Status durable = footer.ok() ? Status::Ok() : file.WriteAt(index.footer_offset, AsBytes(text));
  if (durable.ok()) durable = file.Sync();
  if (durable.ok()) durable = fs.SyncDir(volume_->PackFolder(pack.ns));
  LogWarning("a pack without an index was read from end to end", {{"pack", pack.id.Hex()},
                                                                  {"namespace", pack.ns},
                                                                  {"segments", index.records.size()},
                                                                  {"damaged", damaged},
                                                                  {"result", durable.ToString()}});
  pack.undurable = !durable.ok();
  Status kept = durable.ok() ? WriteDurably(fs, volume_->IndexPath(pack.id), EncodePackHeader(pack.id, pack.ns) + text) : durable;
  if (!kept.ok()) LogWarning("an index file could not be made: the next start tries again", {{"error", kept.ToString()}});
  return index;
}

}  // namespace holdfast::storage
