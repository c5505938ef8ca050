// Giving space back: packs without live data go, packs with little are written anew. Nothing here decides by a clock: what is live is what
// manifests refer to and what open sessions were told of; the clock only slows the copying down.
#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "storage/codec.h"
#include "storage/local_store.h"
#include "storage/pace.h"
#include "storage/pack_reader.h"

namespace holdfast::storage {
namespace {

constexpr uint64_t kSparsePercent = 60, kSparsePercentWhenFull = 95;
constexpr size_t kManySmall = 16;  // sealed packs of a namespace, each less than an eighth of a full one: worth one pack
constexpr uint64_t kSlack = 4 << 20;

}  // namespace

// What lies in the trash is nobody's; readers that still have it open read on. Returns how many packs went.
size_t LocalStore::EmptyTrash() {
  Result<std::vector<std::string>> names = volume_->List("trash");
  if (!names.ok()) return 0;
  size_t removed = 0;
  for (const std::string& name : *names) {
    Status gone = volume_->fs().Remove(volume_->dir() + "/trash/" + name);
    removed += gone.ok() ? 1 : 0;
    if (!gone.ok()) LogWarning("a dropped pack stays for now", {{"error", gone.ToString()}});
  }
  return removed;
}

// A part of the reserve is a file: nobody else on the volume can take it, and a collection can.
void LocalStore::KeepReserve() {
  const uint64_t bytes = options_.reserve_bytes / 4;
  if (bytes == 0) return;
  Status taken = volume_->TakeReserve(bytes);
  std::lock_guard lock(mutex_);
  reserve_held_ = taken.ok() ? bytes : 0;
}

// Those that are worth writing anew, and as what: what belongs together follows each other, the emptiest first.
std::vector<LocalStore::Chosen> LocalStore::ChoosePacks(const CollectOptions& options) {
  std::lock_guard lock(mutex_);
  const uint64_t percent = RoomFor(0, options_.reserve_bytes).ok() ? kSparsePercent : kSparsePercentWhenFull;
  const MonoTime now = clock_.Mono();
  std::map<std::pair<std::string, bool>, size_t> small;
  auto is_small = [&](const Pack& pack) { return pack.file_bytes < options_.packs.pack_bytes / 8; };
  std::vector<Chosen> all;
  for (const PackPointer& pack : packs_) {
    if (!pack || !pack->sealed) continue;
    const bool ripe = options.tighten_after != Duration::max() && now - pack->sealed_at >= options.tighten_after;
    all.push_back({.pack = pack, .tight = pack->tight || ripe});
    if (is_small(*pack)) ++small[{pack->ns, all.back().tight}];
  }
  std::erase_if(all, [&](const Chosen& chosen) {
    const Pack& pack = *chosen.pack;
    if (pack.held || pack.hurt || pack.live_bytes == 0) return true;
    const bool sparse = pack.live_bytes * 100 < pack.record_bytes * percent;
    return !sparse && chosen.tight == pack.tight && !(is_small(pack) && small[{pack.ns, chosen.tight}] >= kManySmall);
  });
  std::sort(all.begin(), all.end(), [](const Chosen& a, const Chosen& b) {
    return std::tie(a.pack->ns, a.tight, a.pack->live_bytes) < std::tie(b.pack->ns, b.tight, b.pack->live_bytes);
  });
  return all;
}

Result<CollectReport> LocalStore::Collect(const CollectOptions& options) {
  std::lock_guard one(collect_mutex_);
  CollectReport report;
  Result<Space> before = volume_->FreeSpace();
  {
    Lock lock(mutex_);
    if (closing_) return Status(Code::kUnavailable, "the store is closing");
    SweepDead(lock);
  }
  report.removed += EmptyTrash();
  const std::vector<Chosen> chosen = ChoosePacks(options);
  Status status;
  for (size_t i = 0; i < chosen.size() && status.ok() && !options.stop.stop_requested();) {
    // All of one namespace that become the same, as far as they fit into one new pack.
    std::vector<PackPointer> group;
    const Chosen& first = chosen[i];
    for (uint64_t bytes = 0; i < chosen.size() && chosen[i].pack->ns == first.pack->ns && chosen[i].tight == first.tight; ++i) {
      bytes += chosen[i].pack->live_bytes;
      if (!group.empty() && bytes > options_.packs.pack_bytes / 10 * 9) break;
      group.push_back(chosen[i].pack);
    }
    status = Repack(group, first.tight, options, report);
    Lock lock(mutex_);
    SweepDead(lock);
    lock.unlock();
    report.removed += EmptyTrash();
  }
  KeepReserve();
  Result<Space> after = volume_->FreeSpace();
  if (before.ok() && after.ok() && after->free > before->free) report.freed_bytes = after->free - before->free;
  HF_RETURN_IF_ERROR(status);
  return report;
}

bool LocalStore::IsAt(const Pack& pack, const SegmentId& id, uint32_t offset) {
  const ObjectInfo* object = index_.Find(pack.ns, id);
  return !pack.dropped && object != nullptr && object->pack == pack.number && object->offset == offset;
}

// Copies what is live, makes the copy durable, and only then says that it lies there. Whatever else happens meanwhile (a delete, a session
// that is told of a segment, a reader) sees the segment at the one place or the other.
Status LocalStore::Repack(const std::vector<PackPointer>& group, bool tight, const CollectOptions& options, CollectReport& report) {
  Filling filling;
  filling.held = true;
  filling.tight = tight;
  std::vector<Move> moves;
  Status status;
  for (const PackPointer& pack : group) {
    if (status.ok() && !options.stop.stop_requested()) status = Copy(pack, filling, options, moves);
  }
  PackSet filled;
  for (const Move& move : moves) filled.insert(move.to.pack);
  for (const PackPointer& pack : filled) {
    Status sealed = SealPack(pack);
    if (status.ok()) status = sealed;
  }
  {
    std::lock_guard lock(mutex_);
    for (const Move& move : moves) {
      const PackRecord& record = move.to.record;
      if (!move.to.pack->sealed || move.to.pack->dropped || !IsAt(*move.from, record.id, move.from_offset)) continue;
      Place(*index_.Find(move.from->ns, record.id), move.to.pack, record);
      report.copied_bytes += RecordBytes(record.stored);
    }
    for (const PackPointer& pack : filled) {
      pack->held = false;
      if (pack->live_bytes == 0 && !pack->dropped) dead_.push_back(pack->number);
    }
    for (const PackPointer& pack : group) {
      report.repacked += pack->live_bytes == 0 ? 1 : 0;
      report.tightened += pack->live_bytes == 0 && tight && !pack->tight ? 1 : 0;
    }
  }
  EndFilling(filling);
  return status;
}

Status LocalStore::Copy(const PackPointer& pack, Filling& filling, const CollectOptions& options, std::vector<Move>& moves) {
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, volume_->Keys(pack->ns));
  HF_ASSIGN_OR_RETURN(std::shared_ptr<const File> file, FileOf(pack));
  Result<Space> space = volume_->FreeSpace();
  if (space.ok() && space->free < pack->live_bytes + kSlack) {
    Status gone = volume_->GiveUpReserve();
    std::lock_guard lock(mutex_);
    if (gone.ok()) reserve_held_ = 0;
  }
  auto leave = [&](const std::string& why) {
    std::lock_guard lock(mutex_);
    pack->hurt = true;
    LogError("a pack stays as it is, some of it cannot be read: run holdfast-store fsck", {{"pack", pack->id.Hex()}, {"error", why}});
  };
  Result<PackIndex> index = ReadFooter(*file, pack->id, pack->ns, pack->keys.index);
  if (!index.ok()) {
    Result<std::string> text = ReadWhole(volume_->fs(), volume_->IndexPath(pack->id), kPackHeaderBytes + kMaxFooterBytes);
    index = text.ok() ? ParseIndexFile(*text, pack->id, pack->ns, pack->keys.index) : Result<PackIndex>(text.status());
  }
  if (!index.ok()) {
    leave(index.status().ToString());
    return Status::Ok();
  }
  Pace pace(options.bytes_per_second, clock_);
  std::string tighter;
  for (const PackRecord& record : index->records) {
    {
      std::lock_guard lock(mutex_);
      if (closing_) return Status(Code::kUnavailable, "the store is closing");
      if (!IsAt(*pack, record.id, record.offset)) continue;
    }
    if (options.stop.stop_requested()) return Status::Ok();
    Result<std::string> bytes = ReadRecord(*file, pack->id, pack->keys.records, record);
    Result<std::string> content = bytes.ok() ? Decode(record.codec, record.size, AsBytes(*bytes)) : bytes;
    if (!content.ok() || HashSegment(keys.hash, AsBytes(*content)) != record.id) {
      leave("segment " + record.id.Hex() + ": " + content.status().ToString());
      continue;
    }
    PutItem item{.id = record.id, .codec = record.codec, .size = record.size, .bytes = AsBytes(*bytes)};
    if (filling.tight && !pack->tight) {
      tighter.resize(record.stored);
      const size_t n = TryCompressMore(AsBytes(*content), record.stored, std::as_writable_bytes(std::span(tighter)));
      if (n > 0) {
        item.codec = Codec::kZstd;
        item.bytes = AsBytes(tighter).first(n);
      }
    }
    HF_ASSIGN_OR_RETURN(Placed placed, Append(filling, pack->ns, item));
    moves.push_back({.to = placed, .from = pack, .from_offset = record.offset});
    pace.Took(RecordBytes(record.stored), options.stop);
  }
  return Status::Ok();
}

}  // namespace holdfast::storage
