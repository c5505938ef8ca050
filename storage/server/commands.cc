#include "storage/server/commands.h"

#include <cstdio>

#include "storage/fsck.h"
#include "storage/local_store.h"

namespace holdfast::storage {
namespace {

int Complain(const Status& status) {
  fprintf(stderr, "holdfast-store: %s\n", status.ToString().c_str());
  return 2;
}

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int PrintStat(const std::string& dir) {
  Result<std::unique_ptr<Volume>> volume = Volume::Open(dir, Volume::Mode::kInspect);
  if (!volume.ok()) return Complain(volume.status());
  Result<std::vector<std::string>> ids = (*volume)->List("manifests");
  if (!ids.ok()) return Complain(ids.status());
  printf("%-40s %-20s %-30s %-20s %10s %10s\n", "ID", "NAMESPACE", "CHECKPOINT", "CREATED", "SIZE MiB", "OWN MiB");
  for (const std::string& id : *ids) {
    Result<StoredManifest> stored = (*volume)->ReadManifest(id);
    if (!stored.ok() && stored.status().code() == Code::kNotFound) continue;
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (!manifest.ok()) {
      printf("%-40s DAMAGED %s\n", id.c_str(), manifest.status().ToString().c_str());
      continue;
    }
    printf("%-40s %-20s %-30s %-20s %10.1f %10.1f\n", id.c_str(), manifest->ns.c_str(), manifest->checkpoint.c_str(),
           manifest->created.c_str(), Mib(manifest->TotalBytes()), Mib(stored->new_bytes));
  }
  uint64_t bytes = 0, objects = 0;
  Result<std::vector<std::string>> namespaces = (*volume)->Namespaces();
  if (!namespaces.ok()) return Complain(namespaces.status());
  for (const std::string& ns : *namespaces) {
    Status visited = (*volume)->VisitObjects(ns, [&](const SegmentId&, uint64_t stored) {
      bytes += stored;
      ++objects;
    });
    if (!visited.ok()) return Complain(visited);
  }
  Result<Space> space = (*volume)->FreeSpace();
  if (!space.ok()) return Complain(space.status());
  printf("%zu checkpoints, %llu segments in %.1f MiB; the volume has %.1f of %.1f MiB free\n", ids->size(),
         static_cast<unsigned long long>(objects), Mib(bytes), Mib(space->free), Mib(space->total));
  return 0;
}

int PrintFsck(const std::string& dir) {
  Result<FsckReport> report = Fsck(dir);
  if (!report.ok()) return Complain(report.status());
  for (const HurtCheckpoint& hurt : report->hurt) {
    printf("HURT %s (%s/%s): %zu segments lost; %s\n", hurt.id.c_str(), hurt.ns.c_str(), hurt.name.c_str(), hurt.lost_segments,
           hurt.why.c_str());
  }
  printf("%zu checkpoints, %zu hurt; %zu segments (%.1f MiB) hashed, %zu damaged, %zu that no checkpoint uses\n", report->manifests,
         report->hurt.size(), report->objects, Mib(report->bytes), report->damaged_objects, report->unreferenced_objects);
  return report->hurt.empty() ? 0 : 1;
}

int DeleteOffline(const std::string& dir, const std::string& id) {
  Result<std::unique_ptr<LocalStore>> store = LocalStore::Open({.dir = dir});
  if (!store.ok()) return Complain(store.status());
  Result<SessionState> state = (*store)->StateOf(id);
  if (!state.ok()) return Complain(state.status());
  Result<StoreUsage> before = (*store)->Usage();
  Status deleted = (*store)->Delete(id);
  if (!deleted.ok()) return Complain(deleted);
  Result<StoreUsage> after = (*store)->Usage();
  if (!before.ok() || !after.ok()) return Complain(before.ok() ? after.status() : before.status());
  printf("%s %s: %.1f MiB freed\n", id.c_str(), *state == SessionState::kCommitted ? "deleted" : "was not there",
         Mib(before->object_bytes - after->object_bytes));
  return 0;
}

}  // namespace holdfast::storage
