// Looking for damage before somebody needs what it hurts. A pass goes through the packs by their ids, so where it is is one id, which is
// written down with the places that could not be read: a restart goes on from there, and forgets nothing. What nobody needs is not read.
// What can be made anew from memory or from the other copy (FORMAT, keys, index files) is.
#include <algorithm>

#include "base/log.h"
#include "base/time_format.h"
#include "storage/codec.h"
#include "storage/local_store.h"
#include "storage/pace.h"
#include "storage/pack_reader.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMaxSuspects = 10'000, kMaxStateBytes = 4 << 20;
constexpr Duration kSaveEvery = std::chrono::minutes(1);
constexpr Duration kLeastTime = std::chrono::minutes(1);  // a pass that is late is not hurried beyond this

std::string StateText(const Json& json) {
  const std::string line = DumpJson(json) + "\n";
  return line + Digest(line) + "\n";
}

Result<Json> ParseState(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string line = text.substr(0, end == std::string::npos ? text.size() : end + 1);
  if (text != line + Digest(line) + "\n") return Status(Code::kDataLoss, "it is damaged");
  return ParseJson(line);
}

std::string PlaceText(const IdKey& key) {
  char hex[33];
  snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(key.low), static_cast<unsigned long long>(key.high));
  return hex;
}

std::optional<IdKey> ParsePlace(const std::string& text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  IdKey key;
  key.low = strtoull(text.substr(0, 16).c_str(), nullptr, 16);
  key.high = strtoull(text.substr(16).c_str(), nullptr, 16);
  return key;
}

}  // namespace

// What an earlier life found. A file that does not read is as good as none: a pass finds it all again.
void LocalStore::LoadScrub() {
  Result<std::string> text = ReadWhole(volume_->fs(), volume_->dir() + "/scrub", kMaxStateBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return;
  Result<Json> json = text.ok() ? ParseState(*text) : Result<Json>(text.status());
  if (!json.ok()) {
    LogWarning("where the scrub was is not known: it begins anew", {{"error", json.status().ToString()}});
    return;
  }
  std::lock_guard lock(mutex_);
  scrub_.passes = static_cast<uint64_t>(std::max<int64_t>(GetInt(*json, {"passes"}), 0));
  scrub_.begun = ParseTime(GetString(*json, {"begun"}));
  scrub_.ended = ParseTime(GetString(*json, {"ended"}));
  scrub_.under_way = GetBool(*json, {"underWay"}) && scrub_.begun.has_value();
  scrub_.after = GetString(*json, {"after"});
  std::map<std::string, PackPointer> by_id;
  for (const PackPointer& pack : packs_) {
    if (pack) by_id[pack->id.Hex()] = pack;
  }
  for (const Json& entry : GetArray(*json, {"damaged"})) {
    const std::optional<IdKey> key = ParsePlace(GetString(entry, {"segment"}));
    const auto pack = by_id.find(GetString(entry, {"pack"}));
    if (!key || pack == by_id.end()) continue;
    ObjectInfo* object = index_.Find(pack->second->ns, *key);
    if (object == nullptr || object->pack != pack->second->number || object->offset != GetInt(entry, {"offset"}, -1)) continue;
    object->suspect = 1;
    hurt_.insert(pack->second->ns);
    pack->second->hurt = true;
    suspects_[{pack->second->ns, *key}] = {.pack = pack->second->id, .offset = object->offset};
  }
}

Status LocalStore::SaveScrub() {
  Json json = {{"damaged", Json::array()}};
  {
    std::lock_guard lock(mutex_);
    json["passes"] = scrub_.passes;
    json["underWay"] = scrub_.under_way;
    json["after"] = scrub_.after;
    if (scrub_.begun) json["begun"] = FormatTime(*scrub_.begun);
    if (scrub_.ended) json["ended"] = FormatTime(*scrub_.ended);
    for (const auto& [name, place] : suspects_)
      json["damaged"].push_back({{"segment", PlaceText(name.second)}, {"pack", place.pack.Hex()}, {"offset", place.offset}});
  }
  return WriteDurably(volume_->fs(), volume_->dir() + "/scrub", StateText(json));
}

// A clock that was set back is not waited for.
bool LocalStore::BeginPass(const ScrubOptions& options) {
  const WallTime now = clock_.Wall();
  std::lock_guard lock(mutex_);
  if (scrub_.under_way) return true;
  if (scrub_.begun && *scrub_.begun <= now && now - *scrub_.begun < options.every) return false;
  scrub_.begun = now;
  scrub_.under_way = true;
  scrub_.after.clear();
  return true;
}

std::vector<LocalStore::PackPointer> LocalStore::SealedAfter(const std::string& after) {
  std::vector<PackPointer> packs;
  {
    std::lock_guard lock(mutex_);
    for (const PackPointer& pack : packs_) {
      if (pack && pack->sealed && pack->live_bytes > 0 && pack->id.Hex() > after) packs.push_back(pack);
    }
  }
  std::sort(packs.begin(), packs.end(), [](const PackPointer& a, const PackPointer& b) { return a->id < b->id; });
  return packs;
}

// The limit, or as much more as it takes to be done before the next pass is due.
uint64_t LocalStore::ScrubRate(const std::vector<PackPointer>& packs, const ScrubOptions& options) {
  if (options.bytes_per_second == 0) return 0;
  uint64_t bytes = 0;
  std::lock_guard lock(mutex_);
  for (const PackPointer& pack : packs) bytes += pack->live_bytes;
  const Duration left = std::max<Duration>(options.every - (clock_.Wall() - *scrub_.begun), kLeastTime);
  const double needed = static_cast<double>(bytes) / std::chrono::duration<double>(left).count() * 1.1;
  if (needed <= static_cast<double>(options.bytes_per_second)) return options.bytes_per_second;
  LogInfo("scrub: faster than its limit, or it would not be done when the next pass is due",
          {{"bytes_per_second", static_cast<uint64_t>(needed)}});
  return static_cast<uint64_t>(needed);
}

Status LocalStore::Scrub(const ScrubOptions& options) {
  std::lock_guard one(scrub_mutex_);
  auto examine = [&] {
    bool changed = false;
    {
      std::lock_guard lock(mutex_);
      changed = damage_changes_ != damage_examined_;
    }
    if (changed) FindHurt();
    return changed;
  };
  if (!BeginPass(options)) return examine() ? SaveScrub() : Status::Ok();
  Result<size_t> mended = volume_->Mend();
  if (!mended.ok()) LogError("what is damaged cannot be written anew", {{"error", mended.status().ToString()}});
  std::string after;
  {
    std::lock_guard lock(mutex_);
    scrub_.mended_files += mended.value_or(0);
    after = scrub_.after;
  }
  ScrubManifests(options.stop);
  const std::vector<PackPointer> packs = SealedAfter(after);
  const size_t all = std::max(after.empty() ? 0 : SealedAfter("").size(), packs.size());
  Pace pace(ScrubRate(packs, options), clock_);
  MonoTime saved = clock_.Mono();
  for (size_t i = 0; i < packs.size(); ++i) {
    if (!ScrubPack(packs[i], pace, options.stop)) {
      examine();
      return SaveScrub();
    }
    {
      std::lock_guard lock(mutex_);
      scrub_.after = packs[i]->id.Hex();
      scrub_.done = static_cast<double>(all - packs.size() + i + 1) / static_cast<double>(all);
    }
    if (clock_.Mono() - saved < kSaveEvery) continue;
    saved = clock_.Mono();
    examine();
    HF_RETURN_IF_ERROR(SaveScrub());
  }
  if (options.stop.stop_requested()) return SaveScrub();
  {
    std::lock_guard lock(mutex_);
    scrub_.under_way = false;
    scrub_.ended = clock_.Wall();
    scrub_.done = 0;
    ++scrub_.passes;
  }
  FindHurt();
  HF_RETURN_IF_ERROR(SaveScrub());
  std::lock_guard lock(mutex_);
  LogInfo("scrub: a pass is done",
          {{"passes", scrub_.passes}, {"packs", packs.size()}, {"damaged_segments", suspects_.size()}, {"hurt", hurt_checkpoints_.size()}});
  return Status::Ok();
}

void LocalStore::ScrubManifests(const std::stop_token& stop) {
  std::vector<std::string> ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, committed] : committed_) ids.push_back(id);
  }
  for (const std::string& id : ids) {
    if (stop.stop_requested()) return;
    Result<Manifest> read = GetManifest(id);
    if (!read.ok()) read = GetManifest(id);
    const bool bad = !read.ok() && read.status().code() != Code::kNotFound && read.status().code() != Code::kUnavailable;
    std::lock_guard lock(mutex_);
    if (bad ? unreadable_.insert(id).second : unreadable_.erase(id) > 0) ++damage_changes_;
  }
}

// Of a sealed pack, from its index file or its footer, whichever reads; a lost index file is written anew. Empty: neither does.
Result<std::vector<PackRecord>> LocalStore::RecordsOf(const PackPointer& pack, const File& file) {
  FileSystem& fs = volume_->fs();
  const std::string path = volume_->IndexPath(pack->id);
  Result<std::string> text = ReadWhole(fs, path, kPackHeaderBytes + kMaxFooterBytes);
  Result<PackIndex> index = text.ok() ? ParseIndexFile(*text, pack->id, pack->ns, pack->keys.index) : Result<PackIndex>(text.status());
  Result<PackIndex> footer = ReadFooter(file, pack->id, pack->ns, pack->keys.index);
  Lock lock(mutex_);
  if (pack->dropped) return Status(Code::kNotFound, "dropped meanwhile");
  const bool footer_news = !footer.ok() && !std::exchange(pack->footer_lost, !footer.ok());
  lock.unlock();
  if (footer_news)
    LogError("the footer of a pack is damaged: its index file says the same",
             {{"pack", pack->id.Hex()}, {"error", footer.status().ToString()}});
  if (index.ok()) return std::move(index->records);
  if (!footer.ok()) return std::vector<PackRecord>();
  if (pack->undurable) return std::move(footer->records);  // an index file would say that it was synced
  const Status written =
      WriteDurably(fs, path, EncodePackHeader(pack->id, pack->ns) + EncodeFooter(*footer, pack->id, pack->ns, pack->keys.index));
  LogError("an index file was damaged, and is written anew",
           {{"pack", pack->id.Hex()}, {"error", index.status().ToString()}, {"result", written.ToString()}});
  lock.lock();
  scrub_.mended_files += written.ok() ? 1 : 0;
  return std::move(footer->records);
}

Status LocalStore::Verify(const File& file, const Pack& pack, const HashKey& key, const PackRecord& record) {
  HF_ASSIGN_OR_RETURN(std::string bytes, ReadRecord(file, pack.id, pack.keys.records, record));
  HF_ASSIGN_OR_RETURN(std::string content, Decode(record.codec, record.size, AsBytes(bytes)));
  return HashSegment(key, AsBytes(content)) == record.id
             ? Status::Ok()
             : Status(Code::kDataLoss, "the segment " + record.id.Hex() + " does not have the content of its name");
}

bool LocalStore::ScrubPack(const PackPointer& pack, Pace& pace, const std::stop_token& stop) {
  Result<NamespaceKeys> keys = volume_->Keys(pack->ns);
  auto open = [&] { return volume_->fs().Open(volume_->PackPath(pack->ns, pack->id), FileSystem::For::kReading); };
  Result<std::unique_ptr<File>> opened = open();
  if (!opened.ok()) opened = open();  // a disk may do better the second time, here and below
  {
    std::lock_guard lock(mutex_);
    if (closing_) return false;
    if (pack->dropped || !keys.ok()) return true;
  }
  std::vector<PackRecord> records;
  Status first = opened.status();
  if (opened.ok()) {
    (*opened)->Forget();
    Result<std::vector<PackRecord>> known = RecordsOf(pack, **opened);
    if (known.status().code() == Code::kNotFound) return true;
    records = known.value_or({});
  }
  size_t damaged = 0;
  if (records.empty()) {
    // Nothing says what is in it but the records themselves: of those that are needed, what is not found whole is lost.
    Result<ScannedPack> scanned = opened.ok() ? ScanPack(**opened, pack->id, pack->keys.records) : Result<ScannedPack>(opened.status());
    std::set<IdKey> whole;
    if (scanned.ok()) {
      for (const PackRecord& record : scanned->records) whole.insert(IdKey(record.id));
    }
    if (first.ok()) first = scanned.ok() ? Status(Code::kDataLoss, "neither its index file nor its footer reads") : scanned.status();
    std::lock_guard lock(mutex_);
    for (const IdKey& key : pack->dropped ? std::vector<IdKey>() : index_.In(pack->ns, pack->number)) {
      if (!whole.contains(key)) damaged += Suspect(pack, key, index_.Find(pack->ns, key)->offset) ? 1 : 0;
    }
  }
  std::sort(records.begin(), records.end(), [](const PackRecord& a, const PackRecord& b) { return a.offset < b.offset; });
  for (const PackRecord& record : records) {
    {
      std::lock_guard lock(mutex_);
      if (closing_ || stop.stop_requested()) return false;
      if (!IsAt(*pack, record.id, record.offset)) continue;
    }
    Status whole = Verify(**opened, *pack, keys->hash, record);
    if (!whole.ok()) whole = Verify(**opened, *pack, keys->hash, record);
    pace.Took(RecordBytes(record.stored), stop);
    std::lock_guard lock(mutex_);
    scrub_.read_bytes += RecordBytes(record.stored);
    if (!IsAt(*pack, record.id, record.offset)) continue;
    if (!whole.ok()) {
      if (first.ok()) first = whole;
      damaged += Suspect(pack, IdKey(record.id), record.offset) ? 1 : 0;
    } else if (ObjectInfo* object = index_.Find(pack->ns, record.id); object->suspect != 0) {
      object->suspect = 0;
      ++damage_changes_;
    }
  }
  if (opened.ok()) (*opened)->Forget();
  if (damaged > 0) {
    LogError("scrub: a pack is damaged",
             {{"pack", pack->id.Hex()}, {"namespace", pack->ns}, {"segments", damaged}, {"error", first.ToString()}});
  }
  return true;
}

bool LocalStore::Suspect(const PackPointer& pack, const IdKey& key, uint32_t offset) {
  ObjectInfo* object = index_.Find(pack->ns, key);
  if (pack->dropped || object == nullptr || object->pack != pack->number || object->offset != offset) return false;
  hurt_.insert(pack->ns);
  pack->hurt = true;
  if (object->suspect != 0) return false;
  object->suspect = 1;
  ++damage_changes_;
  if (suspects_.size() < kMaxSuspects) suspects_[{pack->ns, key}] = {.pack = pack->id, .offset = offset};
  return true;
}

HurtCheckpoint LocalStore::Examine(const std::string& id, const std::string& ns) {
  HurtCheckpoint hurt{.id = id, .ns = ns, .name = "", .why = ""};
  Result<Manifest> manifest = GetManifest(id);
  if (!manifest.ok()) {
    const Code code = manifest.status().code();
    if (code != Code::kNotFound && code != Code::kUnavailable) hurt.why = manifest.status().message();
    return hurt;
  }
  hurt.name = manifest->checkpoint;
  SegmentSet lost;
  auto look = [&](const SegmentId& segment, const std::string& path) {
    const ObjectInfo* object = index_.Find(ns, segment);
    const bool good = object != nullptr && object->here() && object->suspect == 0;
    if (good || !lost.insert(segment).second) return;
    if (hurt.why.empty()) hurt.why = "segment " + segment.Hex() + " of \"" + path + "\" cannot be read";
  };
  for (const FileEntry& file : manifest->files) {
    {
      std::lock_guard lock(mutex_);
      for (const SegmentRef& segment : file.segments) {
        if (!segment.zero) look(segment.id, file.path);
      }
    }
    for (const LeafRef& leaf : file.leaves) {
      Result<std::vector<SegmentRef>> segments = ReadLeaf(ns, leaf);
      std::lock_guard lock(mutex_);
      look(leaf.id, file.path);
      for (const SegmentRef& segment : segments.value_or({})) {
        if (!segment.zero) look(segment.id, file.path);
      }
    }
  }
  hurt.lost_segments = lost.size();
  return hurt;
}

// Reads the manifests and leaves of namespaces in which something is damaged: only after that changed.
void LocalStore::FindHurt() {
  std::vector<std::pair<std::string, std::string>> candidates;
  std::map<std::string, HurtCheckpoint> hurt;
  uint64_t changes = 0;
  {
    std::lock_guard lock(mutex_);
    changes = damage_changes_;
    std::erase_if(suspects_, [&](const auto& suspect) {
      const ObjectInfo* object = index_.Find(suspect.first.first, suspect.first.second);
      return object == nullptr || object->suspect == 0;
    });
    std::erase_if(unreadable_, [&](const std::string& id) { return !committed_.contains(id); });
    for (const auto& [id, committed] : committed_) {
      if (hurt_.contains(committed.ns) || unreadable_.contains(id)) candidates.emplace_back(id, committed.ns);
    }
  }
  for (const auto& [id, ns] : candidates) {
    HurtCheckpoint found = Examine(id, ns);
    if (!found.why.empty()) hurt[id] = std::move(found);
  }
  std::vector<HurtCheckpoint> news;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(hurt, [&](const auto& found) { return !committed_.contains(found.first); });  // deleted meanwhile
    for (const std::string& id : damaged_) {
      hurt[id] = {.id = id, .ns = volume_->NamespaceOf(id).value_or(""), .name = "", .why = "its manifest could not be read at the start"};
    }
    for (const auto& [id, found] : hurt) {
      if (!hurt_checkpoints_.contains(id)) news.push_back(found);
    }
    hurt_checkpoints_ = std::move(hurt);
    damage_examined_ = changes;
  }
  for (const HurtCheckpoint& found : news) {
    LogError(
        "a checkpoint is damaged",
        {{"checkpoint", found.id}, {"namespace", found.ns}, {"name", found.name}, {"segments", found.lost_segments}, {"why", found.why}});
  }
}

std::vector<HurtCheckpoint> LocalStore::Hurt() {
  std::lock_guard lock(mutex_);
  std::vector<HurtCheckpoint> all;
  for (const auto& [id, hurt] : hurt_checkpoints_) all.push_back(hurt);
  return all;
}

}  // namespace holdfast::storage
