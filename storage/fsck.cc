#include "storage/fsck.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "storage/bytes.h"
#include "storage/codec.h"
#include "storage/object_index.h"
#include "storage/pack_reader.h"

namespace holdfast::storage {
namespace {

constexpr int kRounds = 4;  // a collection beside us moves segments into packs that were not there when we looked

struct Job {
  std::string ns;
  PackId id;
  NamespaceKeys keys;
};

struct Objects {
  SegmentSet whole, damaged;
};

class Checker {
 public:
  Checker(Volume& volume, FsckReport& report) : volume_(volume), report_(report) {}

  // Reads every pack that was not there the last time; false when there was none.
  Result<bool> Round(int threads) {
    HF_ASSIGN_OR_RETURN(std::vector<Job> jobs, NewPacks());
    if (jobs.empty()) return false;
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i = next++; i < jobs.size(); i = next++) Check(jobs[i]);
    };
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    others.clear();
    HF_RETURN_IF_ERROR(error_);
    return true;
  }
  const Objects& Of(const std::string& ns) { return objects_[ns]; }
  std::vector<std::string> Namespaces() const {
    std::vector<std::string> names;
    for (const auto& [ns, objects] : objects_) names.push_back(ns);
    return names;
  }

 private:
  Result<std::vector<Job>> NewPacks() {
    std::vector<Job> jobs;
    HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, volume_.List("packs"));
    for (const std::string& ns : namespaces) {
      Result<NamespaceKeys> keys = volume_.ExistingKeys(ns);
      if (!keys.ok()) continue;  // whoever needs its packs cannot read his manifest either
      Result<std::vector<std::string>> names = volume_.fs().List(volume_.PackFolder(ns));
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        Result<PackId> id = PackId::FromHex(name);
        if (id.ok() && seen_.insert(*id).second) jobs.push_back({.ns = ns, .id = *id, .keys = *keys});
      }
    }
    return jobs;
  }

  void Check(const Job& job) {
    Status status = TryCheck(job);
    if (status.ok() || status.code() == Code::kNotFound) return;  // dropped while we looked
    std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
  }

  Status TryCheck(const Job& job) {
    const PackKeys keys = DerivePackKeys(job.keys.data, job.id);
    HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, volume_.fs().Open(volume_.PackPath(job.ns, job.id), FileSystem::For::kReading));
    Result<std::string> text = ReadWhole(volume_.fs(), volume_.IndexPath(job.id), kPackHeaderBytes + kMaxFooterBytes);
    Result<PackIndex> index = text.ok() ? ParseIndexFile(*text, job.id, job.ns, keys.index) : Result<PackIndex>(text.status());
    Result<PackIndex> footer = ReadFooter(*file, job.id, job.ns, keys.index);
    std::vector<PackRecord> records;
    size_t damaged_indexes = (index.ok() ? 0 : 1) + (footer.ok() ? 0 : 1);
    if (index.ok() || footer.ok()) {
      records = index.ok() ? std::move(index->records) : std::move(footer->records);
    } else {
      HF_ASSIGN_OR_RETURN(ScannedPack scanned, ScanPack(*file, job.id, keys.records));
      records = std::move(scanned.records);
      damaged_indexes = 0;  // being written now, or left by a crash
    }
    std::sort(records.begin(), records.end(), [](const PackRecord& a, const PackRecord& b) { return a.offset < b.offset; });
    uint64_t bytes = 0;
    std::vector<SegmentId> whole, damaged;
    for (const PackRecord& record : records) {
      bytes += RecordBytes(record.stored);
      (IsWhole(*file, job, keys, record) ? whole : damaged).push_back(record.id);
    }
    std::lock_guard lock(mutex_);
    Objects& objects = objects_[job.ns];
    objects.whole.insert(whole.begin(), whole.end());
    objects.damaged.insert(damaged.begin(), damaged.end());
    ++report_.packs;
    report_.objects += records.size();
    report_.damaged_objects += damaged.size();
    report_.damaged_indexes += damaged_indexes;
    report_.bytes += bytes;
    return Status::Ok();
  }

  static bool IsWhole(const File& file, const Job& job, const PackKeys& keys, const PackRecord& record) {
    Result<std::string> bytes = ReadRecord(file, job.id, keys.records, record);
    if (!bytes.ok()) return false;
    if (record.codec == Codec::kRaw) return HashSegment(job.keys.hash, AsBytes(*bytes)) == record.id;
    Result<std::string> content = Decode(record.codec, record.size, AsBytes(*bytes));
    return content.ok() && HashSegment(job.keys.hash, AsBytes(*content)) == record.id;
  }

  Volume& volume_;
  FsckReport& report_;
  std::set<PackId> seen_;
  std::mutex mutex_;
  std::map<std::string, Objects> objects_;
  Status error_;
};

}  // namespace

Result<FsckReport> Fsck(const VolumeOptions& options, int threads) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Volume> volume, Volume::Open(options, Volume::Mode::kInspect));
  FsckReport report;
  // Manifests first: an object that a checkpoint committed later needs is not in question.
  std::map<std::string, std::map<std::string, Manifest>> by_namespace;
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume->List("manifests"));
  for (const std::string& id : ids) {
    Result<StoredManifest> stored = volume->ReadManifest(id);
    if (!stored.ok() && stored.status().code() == Code::kNotFound) continue;
    ++report.manifests;
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (manifest.ok()) {
      by_namespace[manifest->ns][id] = std::move(*manifest);
    } else {
      report.hurt.push_back({.id = id, .ns = volume->NamespaceOf(id).value_or(""), .name = "", .why = manifest.status().ToString()});
    }
  }
  Checker checker(*volume, report);
  bool more = true;
  for (int round = 0; round < kRounds && more; ++round) {
    HF_ASSIGN_OR_RETURN(more, checker.Round(threads));
  }
  for (const std::string& ns : checker.Namespaces()) by_namespace.try_emplace(ns);
  for (const auto& [ns, manifests] : by_namespace) {
    const Objects& objects = checker.Of(ns);
    SegmentSet needed;
    for (const auto& [id, manifest] : manifests) {
      HurtCheckpoint hurt{.id = id, .ns = ns, .name = manifest.checkpoint, .why = ""};
      SegmentSet lost;
      for (const FileEntry& file : manifest.files) {
        for (const SegmentRef& segment : file.segments) {
          if (segment.zero) continue;
          needed.insert(segment.id);
          if (objects.whole.contains(segment.id) || !lost.insert(segment.id).second) continue;
          const char* what = objects.damaged.contains(segment.id) ? " is damaged" : " is missing";
          if (hurt.why.empty()) hurt.why = "segment " + segment.id.Hex() + " of \"" + file.path + "\"" + what;
        }
      }
      hurt.lost_segments = lost.size();
      // Deleted while we looked: not hurt.
      if (!lost.empty() && volume->ReadManifest(id).status().code() != Code::kNotFound) report.hurt.push_back(hurt);
    }
    for (const SegmentId& id : objects.whole) report.unreferenced_objects += needed.contains(id) ? 0 : 1;
  }
  return report;
}

}  // namespace holdfast::storage
