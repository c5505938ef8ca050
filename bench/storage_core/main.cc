// The store without a network, for benchmarks. STORE and OUT are folders that it makes.
//   storage_core put STORE UID SOURCE [PARENT]   keeps the folder SOURCE as the checkpoint UID
//   storage_core get STORE UID OUT               brings it back
//   storage_core tighten STORE                   does what a server does with what was stored an hour ago
//   storage_core verify STORE                    hashes everything
//   storage_core about SOURCE STORE              what the index of a store with SOURCE takes in memory, as JSON
//   storage_core run SOURCE STORE OUT            all of it in one process, with GB/s; removes STORE and OUT
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "storage/fsck.h"
#include "storage/local_store.h"
#include "storage/recipe.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

namespace {

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A virtual machine's free memory may have gone back to its host: the first touch would be what is measured.
void WarmMemory(uint64_t bytes) {
  const std::unique_ptr<char[]> memory(new char[bytes]);
  for (uint64_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory.get())[at] = 1;
}

Status Measured(const char* what, uint64_t bytes, const std::function<Status()>& work) {
  WarmMemory(2 * bytes);
  const double wall = Seconds(), cpu = CpuSeconds();
  Status done = work();
  const double took = Seconds() - wall, used = CpuSeconds() - cpu;
  printf("%-22s %7.3f s wall %7.3f s CPU %6.2f GB/s %6.2f GB/s of two whole cores\n", what, took, used,
         static_cast<double>(bytes) / took / 1e9, static_cast<double>(bytes) / (used / 2) / 1e9);
  return done.With(what);
}

Result<std::unique_ptr<LocalStore>> Open(const std::string& dir) { return LocalStore::Open({.dir = dir, .reserve_bytes = 0}); }

// `parent`: the last checkpoint, or empty.
Status Keep(LocalStore& store, const std::string& uid, const std::string& dir, const std::string& parent, uint64_t& bytes) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(uid, "bench"));
  IngestOptions options;
  options.parent = parent;
  options.store = &store;
  HF_ASSIGN_OR_RETURN(std::vector<FileEntry> files, Ingest(dir, *session, options));
  Manifest manifest;
  manifest.ns = "bench";
  manifest.checkpoint = manifest.checkpoint_uid = uid;
  manifest.files = std::move(files);
  bytes = manifest.TotalBytes();
  HF_ASSIGN_OR_RETURN(CommitResult result, session->Commit(manifest));
  printf("%-22s %.1f MiB new of %.1f MiB\n", "", Mib(result.new_bytes), Mib(bytes));
  return Status::Ok();
}

Status Put(const std::string& dir, const std::string& uid, const std::string& source, const std::string& parent) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, Open(dir));
  uint64_t bytes = 0;
  return Keep(*store, uid, source, parent, bytes);
}

Status Get(const std::string& dir, const std::string& uid, const std::string& out) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, Open(dir));
  return Fetch(*store, uid, out, {});
}

Status Tighten(const std::string& dir) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, Open(dir));
  return store->Collect({.tighten_after = Duration(0), .stop = {}}).status();
}

Status Verify(const std::string& dir) {
  HF_ASSIGN_OR_RETURN(FsckReport report, Fsck({.dir = dir}));
  return report.hurt.empty() ? Status::Ok() : Status(Code::kDataLoss, report.hurt[0].why);
}

Status About(const std::string& source, const std::string& dir) {
  HF_RETURN_IF_ERROR(Put(dir, "uid", source, ""));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, Open(dir));
  HF_ASSIGN_OR_RETURN(StoreUsage usage, store->Usage());
  HF_ASSIGN_OR_RETURN(Manifest manifest, store->GetManifest("uid"));
  IdSet seen;
  uint64_t unique = 0;  // uncompressed
  auto add = [&](const std::vector<SegmentRef>& segments) {
    for (const SegmentRef& segment : segments) unique += !segment.zero && seen.Insert(IdKey(segment.id)).second ? segment.size : 0;
    return Status::Ok();
  };
  for (const FileEntry& file : manifest.files) {
    HF_RETURN_IF_ERROR(add(file.segments));
    HF_RETURN_IF_ERROR(ReadLeaves(*store, "uid", file.leaves, [&](size_t, const auto& segments) { return add(segments); }));
  }
  printf("{\"segments\": %llu, \"index_mib_per_gib\": %.3f}\n", static_cast<unsigned long long>(usage.objects),
         Mib(usage.index_memory_bytes) / (Mib(unique) / 1024));
  return RemoveAll(dir);
}

Status Run(const std::string& source, const std::string& dir, const std::string& out) {
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  HF_RETURN_IF_ERROR(RemoveAll(out));
  uint64_t bytes = 0;
  {
    // The size, and the source in memory: the store of the real run is new again.
    HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> warm, Open(dir));
    HF_RETURN_IF_ERROR(Keep(*warm, "warm", source, "", bytes));
  }
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, Open(dir));
    HF_RETURN_IF_ERROR(Measured("ingest, first", bytes, [&] { return Keep(*store, "first", source, "", bytes); }));
    HF_RETURN_IF_ERROR(Measured("ingest, unchanged", bytes, [&] { return Keep(*store, "again", source, "first", bytes); }));
    HF_RETURN_IF_ERROR(Measured("restore", bytes, [&] { return Fetch(*store, "first", out, {}); }));
    HF_RETURN_IF_ERROR(RemoveAll(out));
    HF_RETURN_IF_ERROR(Measured("tighten", bytes, [&] { return store->Collect({.tighten_after = Duration(0), .stop = {}}).status(); }));
    HF_RETURN_IF_ERROR(Measured("restore, tightened", bytes, [&] { return Fetch(*store, "first", out, {}); }));
    HF_ASSIGN_OR_RETURN(StoreUsage usage, store->Usage());
    printf("%-22s %llu segments, %.1f MiB live in %llu packs of %.1f MiB; index in memory %.1f bytes a segment\n", "",
           static_cast<unsigned long long>(usage.objects), Mib(usage.object_bytes), static_cast<unsigned long long>(usage.packs),
           Mib(usage.pack_bytes), static_cast<double>(usage.index_memory_bytes) / static_cast<double>(usage.objects));
  }
  std::unique_ptr<LocalStore> reopened;
  HF_RETURN_IF_ERROR(Measured("start", bytes, [&]() -> Status {
    HF_ASSIGN_OR_RETURN(reopened, Open(dir));
    return Status::Ok();
  }));
  HF_RETURN_IF_ERROR(Measured("verify", bytes, [&] { return Verify(dir); }));
  reopened.reset();
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  return RemoveAll(out);
}

Status Command(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  if (command == "put" && (words.size() == 4 || words.size() == 5))
    return Put(words[1], words[2], words[3], words.size() == 5 ? words[4] : "");
  if (command == "get" && words.size() == 4) return Get(words[1], words[2], words[3]);
  if (command == "tighten" && words.size() == 2) return Tighten(words[1]);
  if (command == "verify" && words.size() == 2) return Verify(words[1]);
  if (command == "about" && words.size() == 3) return About(words[1], words[2]);
  if (command == "run" && words.size() == 4) return Run(words[1], words[2], words[3]);
  return {Code::kInvalidArgument,
          "storage_core put STORE UID SOURCE [PARENT] | get STORE UID OUT | tighten STORE | verify STORE | about SOURCE STORE | run SOURCE "
          "STORE OUT"};
}

}  // namespace

int main(int argc, char** argv) {
  SetLogLevel(LogLevel::kError);
  Status status = Command({argv + 1, argv + argc});
  if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
