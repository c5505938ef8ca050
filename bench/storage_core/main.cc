// storage_core SOURCE STORE OUT: the store's own speed, without a network. Ingests the folder SOURCE (first, and again unchanged), fetches
// it to OUT and verifies the store, all in this process; prints GB/s, what it took on disk and in memory.
// STORE and OUT are made and removed.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "storage/fsck.h"
#include "storage/local_store.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Status Measured(const char* what, uint64_t bytes, const std::function<Status()>& work) {
  const double wall = Seconds(), cpu = CpuSeconds();
  Status done = work();
  const double took = Seconds() - wall, used = CpuSeconds() - cpu;
  printf("%-22s %7.3f s wall %7.3f s CPU %6.2f GB/s %6.2f GB/s of two whole cores\n", what, took, used,
         static_cast<double>(bytes) / took / 1e9, static_cast<double>(bytes) / (used / 2) / 1e9);
  return done.With(what);
}

Status Keep(LocalStore& store, const std::string& uid, const std::string& dir, uint64_t& bytes) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(uid, "bench"));
  HF_ASSIGN_OR_RETURN(std::vector<FileEntry> files, Ingest(dir, *session, {}));
  Manifest manifest;
  manifest.ns = "bench";
  manifest.checkpoint = manifest.checkpoint_uid = uid;
  manifest.files = std::move(files);
  bytes = manifest.TotalBytes();
  HF_ASSIGN_OR_RETURN(CommitResult result, session->Commit(manifest));
  printf("%-22s %.1f MiB new of %.1f MiB\n", "", static_cast<double>(result.new_bytes) / (1 << 20), static_cast<double>(bytes) / (1 << 20));
  return Status::Ok();
}

Status Run(const std::string& source, const std::string& dir, const std::string& out) {
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  HF_RETURN_IF_ERROR(RemoveAll(out));
  uint64_t bytes = 0;
  {
    // The size, and the source in memory: the store of the real run is new again.
    HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> warm, LocalStore::Open({.dir = dir, .reserve_bytes = 0}));
    HF_RETURN_IF_ERROR(Keep(*warm, "warm", source, bytes));
  }
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, LocalStore::Open({.dir = dir, .reserve_bytes = 0}));
    HF_RETURN_IF_ERROR(Measured("ingest, first", bytes, [&] { return Keep(*store, "first", source, bytes); }));
    HF_RETURN_IF_ERROR(Measured("ingest, unchanged", bytes, [&] { return Keep(*store, "again", source, bytes); }));
    HF_RETURN_IF_ERROR(Measured("restore", bytes, [&] { return Fetch(*store, "first", out, {}); }));
    HF_ASSIGN_OR_RETURN(StoreUsage usage, store->Usage());
    printf("%-22s %llu segments, %.1f MiB live in %llu packs of %.1f MiB; index in memory %.1f bytes a segment\n", "",
           static_cast<unsigned long long>(usage.objects), static_cast<double>(usage.object_bytes) / (1 << 20),
           static_cast<unsigned long long>(usage.packs), static_cast<double>(usage.pack_bytes) / (1 << 20),
           static_cast<double>(usage.index_memory_bytes) / static_cast<double>(usage.objects));
  }
  std::unique_ptr<LocalStore> reopened;
  HF_RETURN_IF_ERROR(Measured("start", bytes, [&]() -> Status {
    HF_ASSIGN_OR_RETURN(reopened, LocalStore::Open({.dir = dir, .reserve_bytes = 0}));
    return Status::Ok();
  }));
  HF_RETURN_IF_ERROR(Measured("verify", bytes, [&]() -> Status {
    HF_ASSIGN_OR_RETURN(FsckReport report, Fsck({.dir = dir}));
    return report.hurt.empty() ? Status::Ok() : Status(Code::kDataLoss, report.hurt[0].why);
  }));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  printf("largest memory: %.1f MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
  reopened.reset();
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  return RemoveAll(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s SOURCE STORE OUT\n", argv[0]);
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  Status status = Run(argv[1], argv[2], argv[3]);
  if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
