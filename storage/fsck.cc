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
#include "storage/recipe.h"

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
  SegmentSet lists;                                                    // that manifests name as leaves
  std::unordered_map<SegmentId, std::string, SegmentIdHash> contents;  // of those that are whole
};

class Checker {
 public:
  Checker(Volume& volume, FsckReport& report) : volume_(volume), report_(report) {}

  void Expect(const Manifest& manifest) {
    for (const FileEntry& file : manifest.files) {
      for (const LeafRef& leaf : file.leaves) objects_[manifest.ns].lists.insert(leaf.id);
    }
  }

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
    std::vector<std::pair<SegmentId, std::string>> lists;
    const SegmentSet* expected = nullptr;
    {
      std::lock_guard lock(mutex_);
      expected = &objects_[job.ns].lists;  // all known before the first round
    }
    for (const PackRecord& record : records) {
      bytes += RecordBytes(record.stored);
      Result<std::string> content = Read(*file, job, keys, record);
      (content.ok() ? whole : damaged).push_back(record.id);
      if (content.ok() && expected->contains(record.id)) lists.emplace_back(record.id, std::move(*content));
    }
    std::lock_guard lock(mutex_);
    Objects& objects = objects_[job.ns];
    for (auto& [id, content] : lists) objects.contents.try_emplace(id, std::move(content));
    objects.whole.insert(whole.begin(), whole.end());
    objects.damaged.insert(damaged.begin(), damaged.end());
    ++report_.packs;
    report_.objects += records.size();
    report_.damaged_objects += damaged.size();
    report_.damaged_indexes += damaged_indexes;
    report_.bytes += bytes;
    return Status::Ok();
  }

  static Result<std::string> Read(const File& file, const Job& job, const PackKeys& keys, const PackRecord& record) {
    Result<std::string> content = ReadRecord(file, job.id, keys.records, record);
    if (content.ok() && record.codec != Codec::kRaw) content = Decode(record.codec, record.size, AsBytes(*content));
    if (content.ok() && HashSegment(job.keys.hash, AsBytes(*content)) != record.id)
      return Status(Code::kDataLoss, "a segment does not have the content of its name");
    return content;
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
  Checker checker(*volume, report);
  // Manifests first: an object that a checkpoint committed later needs is not in question.
  std::map<std::string, std::map<std::string, Manifest>> by_namespace;
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume->List("manifests"));
  for (const std::string& id : ids) {
    Result<StoredManifest> stored = volume->ReadManifest(id);
    if (!stored.ok() && stored.status().code() == Code::kNotFound) continue;
    ++report.manifests;
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (manifest.ok()) {
      checker.Expect(*manifest);
      by_namespace[manifest->ns][id] = std::move(*manifest);
    } else {
      report.hurt.push_back({.id = id, .ns = volume->NamespaceOf(id).value_or(""), .name = "", .why = manifest.status().ToString()});
    }
  }
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
        auto lose = [&](const SegmentId& segment, const std::string& what) {
          if (lost.insert(segment).second && hurt.why.empty()) hurt.why = "segment " + segment.Hex() + " of \"" + file.path + "\" " + what;
        };
        auto look = [&](const SegmentId& segment) {
          needed.insert(segment);
          if (!objects.whole.contains(segment)) lose(segment, objects.damaged.contains(segment) ? "is damaged" : "is missing");
        };
        for (const SegmentRef& segment : file.segments) {
          if (!segment.zero) look(segment.id);
        }
        for (const LeafRef& leaf : file.leaves) {
          look(leaf.id);
          const auto content = objects.contents.find(leaf.id);
          if (content == objects.contents.end()) continue;
          Result<std::vector<SegmentRef>> segments = ParseLeaf(content->second, leaf.bytes);
          if (!segments.ok()) lose(leaf.id, segments.status().message());
          for (const SegmentRef& segment : segments.value_or({})) {
            if (!segment.zero) look(segment.id);
          }
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
