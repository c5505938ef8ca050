#include "storage/server/commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "storage/fsck.h"
#include "storage/local_store.h"
#include "storage/server/local_socket.h"
#include "storage/shred.h"

namespace holdfast::storage {
namespace {

int Complain(const Status& status) {
  fprintf(stderr, "holdfast-store: %s\n", status.ToString().c_str());
  return 2;
}

// Without a reserve: a command may have to work on a full volume.
Result<std::unique_ptr<LocalStore>> Offline(const VolumeOptions& options) {
  return LocalStore::Open({.dir = options.dir, .reserve_bytes = 0, .keks = options.keks});
}

Status WriteFully(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {Code::kInternal, std::string("cannot write the archive: ") + strerror(errno)};
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status::Ok();
}

Result<size_t> ReadOnce(int fd, std::span<std::byte> bytes) {
  while (true) {
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return Status(Code::kInternal, std::string("cannot read the archive: ") + strerror(errno));
  }
}

// As crds/checkpoint.yaml has it. The controller finds the rest under the annotation (reconcilers/checkpoint/step.cc), and takes nothing
// but snapshots so. Pinned, since nobody has looked yet at what retention would take first.
Json CheckpointObject(const Manifest& manifest) {
  return {
      {"apiVersion", "holdfast.dev/v1alpha1"},
      {"kind", "Checkpoint"},
      {"metadata",
       {{"name", manifest.checkpoint}, {"namespace", manifest.ns}, {"annotations", {{"holdfast.dev/manifest", manifest.checkpoint_uid}}}}},
      {"spec",
       {{"podRef", {{"name", GetString(manifest.info, {"pod"})}, {"uid", GetString(manifest.info, {"podUID"})}}},
        {"final", false},
        {"trigger", "Manual"},
        {"pinned", true}}}};
}

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int PrintStat(const VolumeOptions& options) {
  Result<std::unique_ptr<Volume>> volume = Volume::Open(options, Volume::Mode::kInspect);
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
  uint64_t bytes = 0, packs = 0;
  Result<std::vector<std::string>> namespaces = (*volume)->List("packs");
  if (!namespaces.ok()) return Complain(namespaces.status());
  for (const std::string& ns : *namespaces) {
    Result<std::vector<std::string>> names = (*volume)->fs().List((*volume)->PackFolder(ns));
    if (!names.ok()) return Complain(names.status());
    for (const std::string& name : *names) {
      Result<std::unique_ptr<File>> file = (*volume)->fs().Open((*volume)->PackFolder(ns) + "/" + name, FileSystem::For::kReading);
      if (!file.ok()) continue;  // dropped meanwhile
      bytes += (*file)->Size().value_or(0);
      ++packs;
    }
  }
  Result<Space> space = (*volume)->FreeSpace();
  if (!space.ok()) return Complain(space.status());
  printf("store %s: %zu checkpoints, %llu packs with %.1f MiB; the volume has %.1f of %.1f MiB free\n", (*volume)->store_id().c_str(),
         ids->size(), static_cast<unsigned long long>(packs), Mib(bytes), Mib(space->free), Mib(space->total));
  return 0;
}

int PrintFsck(const VolumeOptions& options, bool repair) {
  if (repair) {
    // A start makes the index files that are missing or damaged from the packs.
    Result<std::unique_ptr<LocalStore>> store = Offline(options);
    if (!store.ok()) return Complain(store.status());
  }
  Result<FsckReport> report = Fsck(options);
  if (!report.ok()) return Complain(report.status());
  for (const HurtCheckpoint& hurt : report->hurt) {
    printf("HURT %s (%s/%s): %zu segments lost; %s\n", hurt.id.c_str(), hurt.ns.c_str(), hurt.name.c_str(), hurt.lost_segments,
           hurt.why.c_str());
  }
  if (report->damaged_indexes > 0)
    printf("%zu index files or footers are damaged: nothing is lost, \"fsck --repair\" or the next start makes index files anew\n",
           report->damaged_indexes);
  printf("%zu checkpoints, %zu hurt; %zu segments (%.1f MiB, %zu packs) hashed, %zu damaged, %zu that no checkpoint uses\n",
         report->manifests, report->hurt.size(), report->objects, Mib(report->bytes), report->packs, report->damaged_objects,
         report->unreferenced_objects);
  return report->hurt.empty() ? 0 : 1;
}

int PrintCheckpoints(const VolumeOptions& options, const std::string& ns) {
  Result<std::unique_ptr<Volume>> volume = Volume::Open(options, Volume::Mode::kInspect);
  if (!volume.ok()) return Complain(volume.status());
  Result<std::vector<std::string>> ids = (*volume)->List("manifests");
  if (!ids.ok()) return Complain(ids.status());
  int failed = 0;
  // One after the other: a store may have more than one would keep in memory.
  printf("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [");
  const char* between = "\n";
  for (const std::string& id : *ids) {
    Result<StoredManifest> stored = (*volume)->ReadManifest(id);
    if (!stored.ok() && stored.status().code() == Code::kNotFound) continue;  // deleted meanwhile
    Result<Manifest> manifest = stored.ok() ? Manifest::Parse(stored->text) : Result<Manifest>(stored.status());
    if (manifest.ok() && GetString(manifest->info, {"podUID"}).empty())
      manifest = Status(Code::kInvalidArgument, "it does not say of which pod it is");
    if (!manifest.ok()) {
      fprintf(stderr, "holdfast-store: %s: %s\n", id.c_str(), manifest.status().ToString().c_str());
      failed = 1;
      continue;
    }
    if (!ns.empty() && manifest->ns != ns) continue;
    printf("%s%s", between, DumpJson(CheckpointObject(*manifest)).c_str());
    between = ",\n";
  }
  printf("\n]}\n");
  return fflush(stdout) == 0 ? failed : Complain(Status(Code::kInternal, "the list could not be written"));
}

int ExportCheckpoint(const VolumeOptions& options, const std::string& name, const std::string& output) {
  if (output.empty() && isatty(STDOUT_FILENO) == 1)
    return Complain({Code::kInvalidArgument, "an archive is not for a terminal: give --output, or redirect it"});
  const std::string tmp = output + ".tmp";
  Descriptor file;
  if (!output.empty()) {
    file = Descriptor(open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) return Complain({Code::kInternal, "cannot write " + tmp + ": " + strerror(errno)});
  }
  const int fd = output.empty() ? STDOUT_FILENO : file.get();
  uint64_t bytes = 0;
  auto write_out = [&](std::span<const std::byte> part) {
    bytes += part.size();
    return WriteFully(fd, part);
  };
  Result<std::string> id = ExportFromServer(SocketPath(options.dir), name, write_out);
  if (id.status().code() == Code::kUnavailable && bytes == 0) {
    Result<std::unique_ptr<LocalStore>> store = Offline(options);
    if (!store.ok()) return Complain(store.status());
    id = FindCheckpoint(**store, name);
    if (id.ok()) {
      if (Status written = Export(**store, *id, write_out); !written.ok()) id = written;
    }
  }
  if (id.ok() && !output.empty() && (fsync(fd) != 0 || rename(tmp.c_str(), output.c_str()) != 0))
    id = Status(Code::kInternal, "cannot write " + output + ": " + strerror(errno));
  if (!id.ok()) {
    if (!output.empty()) unlink(tmp.c_str());
    return Complain(id.status());
  }
  fprintf(stderr, "%s exported: %.1f MiB, not encrypted\n", id->c_str(), Mib(bytes));
  return 0;
}

int ImportCheckpoint(const VolumeOptions& options, const std::string& ns, const std::string& input) {
  Descriptor file;
  if (!input.empty()) {
    file = Descriptor(open(input.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) return Complain({Code::kInternal, "cannot read " + input + ": " + strerror(errno)});
  }
  const int fd = input.empty() ? STDIN_FILENO : file.get();
  auto read_some = [&](std::span<std::byte> part) { return ReadOnce(fd, part); };
  Result<std::string> said = ImportByServer(SocketPath(options.dir), ns, read_some);
  if (said.status().code() == Code::kUnavailable) {
    Result<std::unique_ptr<LocalStore>> store = Offline(options);
    if (!store.ok()) return Complain(store.status());
    Result<Imported> imported = Import(**store, ns, [&](std::span<std::byte> part) -> Status {
      while (!part.empty()) {
        HF_ASSIGN_OR_RETURN(const size_t n, read_some(part));
        if (n == 0) return {Code::kDataLoss, "it was cut off"};
        part = part.subspan(n);
      }
      return Status::Ok();
    });
    said = imported.ok() ? Result<std::string>(SayImported(*imported)) : Result<std::string>(imported.status());
  }
  if (!said.ok()) return Complain(said.status());
  printf("%s\n", said->c_str());
  return 0;
}

int DeleteOffline(const VolumeOptions& options, const std::string& id) {
  Result<std::unique_ptr<LocalStore>> store = Offline(options);
  if (!store.ok()) return Complain(store.status());
  Result<SessionState> state = (*store)->StateOf(id);
  if (!state.ok()) return Complain(state.status());
  Result<StoreUsage> before = (*store)->Usage();
  Status deleted = (*store)->Delete(id);
  if (!deleted.ok()) return Complain(deleted);
  Result<CollectReport> collected = (*store)->Collect({});
  if (!collected.ok()) return Complain(collected.status());
  Result<StoreUsage> after = (*store)->Usage();
  if (!before.ok() || !after.ok()) return Complain(before.ok() ? after.status() : before.status());
  printf("%s %s: %.1f MiB freed\n", id.c_str(), *state == SessionState::kCommitted ? "deleted" : "was not there",
         Mib(before->pack_bytes) - Mib(after->pack_bytes));
  return 0;
}

int CollectOffline(const VolumeOptions& options) {
  Result<std::unique_ptr<LocalStore>> store = Offline(options);
  if (!store.ok()) return Complain(store.status());
  Result<CollectReport> report = (*store)->Collect({});
  if (!report.ok()) return Complain(report.status());
  Result<StoreUsage> usage = (*store)->Usage();
  if (!usage.ok()) return Complain(usage.status());
  printf("%zu packs written anew (%.1f MiB copied), %zu removed; %.1f MiB in packs, of which %.1f MiB are in use\n", report->repacked,
         Mib(report->copied_bytes), report->removed, Mib(usage->pack_bytes), Mib(usage->object_bytes));
  return 0;
}

int RewrapOffline(const VolumeOptions& options) {
  Result<std::unique_ptr<Volume>> volume = Volume::Open(options, Volume::Mode::kWrite);
  if (!volume.ok()) return Complain(volume.status());
  Result<size_t> changed = (*volume)->Rewrap();
  if (!changed.ok()) return Complain(changed.status());
  printf("the keys of %zu namespaces were wrapped anew\n", *changed);
  return 0;
}

int ShredOffline(const VolumeOptions& options, const std::string& ns, bool force) {
  Result<ShredReport> report = Shred(options, ns, force);
  if (!report.ok()) return Complain(report.status());
  printf("the keys of %s are gone, with %zu checkpoints and %zu packs\n", ns.c_str(), report->manifests, report->packs);
  return 0;
}

}  // namespace holdfast::storage
