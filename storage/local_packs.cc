// A pack's life in the store: filled by one session, sealed when it is full or when a commit needs it, read, and dropped when all in it is
// dead.
#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "storage/codec.h"
#include "storage/local_store.h"
#include "storage/pack_reader.h"

namespace holdfast::storage {
namespace {

constexpr size_t kFilesOpen = 128;
constexpr int kReadTries = 5;  // a collection may move a segment while we look for it, hardly ever twice

}  // namespace

Result<LocalStore::PackPointer> LocalStore::NewPack(const std::string& ns, bool held, bool tight) {
  if (tight) HF_RETURN_IF_ERROR(volume_->NeedVersion(3));
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(ns));
  PackId id;
  HF_RETURN_IF_ERROR(FillRandom(id.bytes));
  bool known = false;
  {
    std::lock_guard lock(mutex_);
    known = pack_folders_.contains(ns);
  }
  FileSystem& fs = volume_->fs();
  if (!known) {
    HF_RETURN_IF_ERROR(fs.MakeDir(volume_->PackFolder(ns)));
    HF_RETURN_IF_ERROR(fs.SyncDir(volume_->dir() + "/packs"));
  }
  auto pack = std::make_shared<Pack>(id, ns, DerivePackKeys(keys.data, id));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, fs.Create(volume_->PackPath(ns, id)));
  pack->writer = std::make_unique<PackWriter>(std::move(file), id, ns, pack->keys, options_.packs, buffers_, tight);
  pack->held = held;
  pack->tight = tight;
  std::lock_guard lock(mutex_);
  pack_folders_.insert(ns);
  Number(pack);
  return pack;
}

uint32_t LocalStore::Number(const PackPointer& pack) {
  if (free_numbers_.empty()) {
    free_numbers_.push_back(static_cast<uint32_t>(packs_.size()));
    packs_.emplace_back();
  }
  pack->number = free_numbers_.back();
  free_numbers_.pop_back();
  packs_[pack->number] = pack;
  return pack->number;
}

Result<LocalStore::Placed> LocalStore::Append(Filling& filling, const std::string& ns, const PutItem& item) {
  while (true) {
    PackPointer pack;
    {
      std::lock_guard lock(filling.mutex);
      if (filling.ended) return Status(Code::kFailedPrecondition, "the session has ended");
      {
        std::lock_guard store_lock(mutex_);
        if (filling.pack && filling.pack->dropped) filling.pack = nullptr;  // it failed, and somebody was told
      }
      if (!filling.pack) {
        HF_ASSIGN_OR_RETURN(filling.pack, NewPack(ns, filling.held, filling.tight));
      }
      pack = filling.pack;
    }
    Result<std::optional<PackRecord>> record = pack->writer->Append(item.id, item.codec, item.size, item.bytes);
    if (record.ok() && record->has_value()) {
      HF_FAULT_POINT("store.put");
      return Placed{.pack = pack, .record = **record};
    }
    // Full, sealed by somebody's commit, or failed: a pack is not written after an error, what it had is missing from now on.
    {
      std::lock_guard lock(filling.mutex);
      if (filling.pack == pack) filling.pack = nullptr;
    }
    Status sealed = SealPack(pack);
    HF_RETURN_IF_ERROR(record.status());
    HF_RETURN_IF_ERROR(sealed);
  }
}

Status LocalStore::Flush(const std::string& session) {
  std::shared_ptr<Filling> filling;
  {
    std::lock_guard lock(mutex_);
    HF_ASSIGN_OR_RETURN(OpenState * state, FindOpen(session));
    filling = state->filling;
  }
  PackPointer pack;
  {
    std::lock_guard lock(filling->mutex);
    pack = filling->pack;
  }
  return pack ? pack->writer->Flush() : Status::Ok();
}

// Pack, its folder, index file, its folder: in this order. Whoever comes second waits for the first and hears the same.
Status LocalStore::SealPack(const PackPointer& pack) {
  std::lock_guard sealing(pack->seal_mutex);
  if (pack->finished || pack->writer == nullptr) return pack->outcome;
  pack->finished = true;
  {
    std::lock_guard lock(mutex_);
    if (pack->dropped) return pack->outcome = Status(Code::kFailedPrecondition, "the session has ended");
  }
  FileSystem& fs = volume_->fs();
  Status status = pack->writer->Finish();
  if (status.ok()) status = fs.SyncDir(volume_->PackFolder(pack->ns));
  if (status.ok()) status = WriteDurably(fs, volume_->IndexPath(pack->id), pack->writer->IndexFile());
  pack->outcome = status.ok() ? status : status.With("writing segments of the namespace " + pack->ns);
  {
    std::lock_guard lock(mutex_);
    if (status.ok() && !pack->dropped) {
      pack->sealed = true;
      pack->sealed_at = clock_.Mono();
      pack_bytes_ += pack->writer->file_bytes() - pack->file_bytes;
      pack->file_bytes = pack->writer->file_bytes();
      pack->record_bytes = 0;
      for (const PackRecord& record : pack->writer->Records()) pack->record_bytes += RecordBytes(record.stored);
      if (pack->live_bytes == 0) dead_.push_back(pack->number);
    }
    if (!status.ok()) FailPack(pack);
  }
  if (!status.ok()) {
    LogError("a pack could not be written: what it had has to be sent again", {{"pack", pack->id.Hex()}, {"error", status.ToString()}});
    [[maybe_unused]] Status removed = fs.Remove(volume_->PackPath(pack->ns, pack->id));  // else a start does it
    removed = fs.Remove(volume_->IndexPath(pack->id));
  }
  pack->writer->Forget();
  return pack->outcome;
}

void LocalStore::FailPack(const PackPointer& pack) {
  if (pack->dropped) return;
  for (const PackRecord& record : pack->writer->Records()) {
    ObjectInfo* object = index_.Find(pack->ns, record.id);
    if (object == nullptr || object->pack != pack->number || object->offset != record.offset) continue;
    Unplace(*object);
    if (object->refs > 0) {
      hurt_.insert(pack->ns);
      ++damage_changes_;
    }
    EraseUnneeded(pack->ns, IdKey(record.id));
  }
  DropPack(pack);
}

void LocalStore::DropPack(const PackPointer& pack) {
  if (pack->dropped) return;
  pack->dropped = true;
  pack_bytes_ -= pack->file_bytes;
  packs_[pack->number] = nullptr;
  free_numbers_.push_back(pack->number);
}

void LocalStore::Place(ObjectInfo& object, const PackPointer& pack, const PackRecord& record) {
  if (object.suspect != 0 || (!object.here() && object.refs > 0)) ++damage_changes_;
  Unplace(object);
  object.Place(pack->number, record);
  pack->live_bytes += RecordBytes(record.stored);
  live_bytes_ += RecordBytes(record.stored);
}

void LocalStore::Unplace(ObjectInfo& object) {
  if (!object.here()) return;
  const PackPointer& pack = packs_[object.pack];
  pack->live_bytes -= RecordBytes(object.stored);
  live_bytes_ -= RecordBytes(object.stored);
  if (pack->live_bytes == 0) dead_.push_back(object.pack);
  object.pack = kNoPack;
}

void LocalStore::EraseUnneeded(const std::string& ns, const IdKey& key) {
  ObjectInfo* object = index_.Find(ns, key);
  if (object == nullptr || object->needed() || (object->here() && KeepsAll(ns))) return;
  Unplace(*object);
  index_.Erase(ns, key);
}

void LocalStore::EraseAllUnneeded(const std::string& ns) {
  for (const IdKey& key : index_.Unneeded(ns)) EraseUnneeded(ns, key);
}

void LocalStore::SweepDead(Lock& lock) {
  std::vector<PackPointer> gone;
  for (uint32_t number : std::exchange(dead_, {})) {
    const PackPointer pack = packs_[number];
    if (!pack || !pack->sealed || pack->held || pack->live_bytes > 0) continue;
    DropPack(pack);
    gone.push_back(pack);
  }
  if (gone.empty()) return;
  lock.unlock();
  FileSystem& fs = volume_->fs();
  for (const PackPointer& pack : gone) {
    Status moved = fs.Rename(volume_->PackPath(pack->ns, pack->id), volume_->TrashPath(pack->id));
    if (moved.ok()) moved = fs.Remove(volume_->IndexPath(pack->id));
    if (!moved.ok()) LogWarning("a pack without live data stays until the next start", {{"error", moved.ToString()}});
  }
  lock.lock();
  if (RoomFor(0, options_.reserve_bytes).ok()) return;
  lock.unlock();
  EmptyTrash();  // somebody may be waiting for the space
  lock.lock();
}

void LocalStore::EndFilling(Filling& filling) {
  PackPointer pack;
  {
    std::lock_guard lock(filling.mutex);
    filling.ended = true;
    pack = std::exchange(filling.pack, nullptr);
  }
  if (!pack) return;
  bool needed = false;
  {
    std::lock_guard lock(mutex_);
    if (pack->sealed || pack->dropped) return;
    needed = pack->live_bytes > 0;
    if (!needed) DropPack(pack);
  }
  if (needed) {  // another session was told of what is in it
    [[maybe_unused]] Status sealed = SealPack(pack);
    return;
  }
  Status removed = volume_->fs().Remove(volume_->PackPath(pack->ns, pack->id));
  if (!removed.ok()) LogWarning("a pack without live data stays until the next start", {{"error", removed.ToString()}});
}

Result<std::shared_ptr<const File>> LocalStore::FileOf(const PackPointer& pack) {
  {
    std::lock_guard lock(pack->file_mutex);
    if (pack->file) return pack->file;
  }
  HF_ASSIGN_OR_RETURN(std::unique_ptr<File> opened, volume_->fs().Open(volume_->PackPath(pack->ns, pack->id), FileSystem::For::kReading));
  std::shared_ptr<const File> file(std::move(opened));
  {
    std::lock_guard lock(pack->file_mutex);
    if (pack->file) return pack->file;
    pack->file = file;
  }
  PackPointer oldest;
  {
    std::lock_guard lock(files_mutex_);
    with_file_.push_back(pack);
    if (with_file_.size() > kFilesOpen) {
      oldest = with_file_.front().lock();
      with_file_.pop_front();
    }
  }
  if (oldest && oldest != pack) {
    std::lock_guard lock(oldest->file_mutex);
    oldest->file = nullptr;
  }
  return file;
}

Status LocalStore::ReadStored(const std::string& ns, const SegmentId& id, StoredSegment* segment) {
  for (int tries = 0; tries < kReadTries; ++tries) {
    PackPointer pack;
    PackRecord record;
    {
      std::lock_guard lock(mutex_);
      const ObjectInfo* object = index_.Find(ns, id);
      if (object == nullptr || !object->here()) break;
      pack = packs_[object->pack];
      record = object->Record(id);
    }
    HF_RETURN_IF_ERROR(SealPack(pack));  // nothing to do, but for what was just given
    Result<std::shared_ptr<const File>> file = FileOf(pack);
    if (!file.ok() && file.status().code() == Code::kNotFound) continue;  // moved meanwhile, or lost
    if (!file.ok()) return file.status();
    Status read = ReadRecord(**file, pack->id, pack->keys.records, record, &segment->bytes);
    segment->codec = record.codec;
    segment->size = record.size;
    if (read.ok() || read.code() != Code::kDataLoss) return read;
    std::lock_guard lock(mutex_);
    Suspect(pack, IdKey(id), record.offset);
    return read;
  }
  return Status(Code::kDataLoss, "the segment " + id.Hex() + " is lost");
}

}  // namespace holdfast::storage
