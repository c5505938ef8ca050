#include "storage/fsck.h"

#include "storage/object_index.h"
#include "storage/volume.h"

namespace holdfast::storage {
namespace {

struct Objects {
  SegmentSet whole, damaged;
};

Result<Objects> HashAll(const Volume& volume, const std::string& ns, const HashKey& key, FsckReport& report) {
  Objects objects;
  std::vector<SegmentId> ids;
  HF_RETURN_IF_ERROR(volume.VisitObjects(ns, [&](const SegmentId& id, uint64_t bytes) {
    ids.push_back(id);
    report.bytes += bytes;
  }));
  for (const SegmentId& id : ids) {
    Result<std::string> content = volume.ReadVerified(ns, id, key);
    if (!content.ok() && content.status().code() == Code::kNotFound) continue;
    ++report.objects;
    (content.ok() ? objects.whole : objects.damaged).insert(id);
  }
  report.damaged_objects += objects.damaged.size();
  return objects;
}

}  // namespace

Result<FsckReport> Fsck(const std::string& dir) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Volume> volume, Volume::Open(dir, Volume::Mode::kInspect));
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
      report.hurt.push_back({.id = id, .ns = "", .name = "", .why = manifest.status().ToString()});
    }
  }
  HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, volume->Namespaces());
  for (const std::string& ns : namespaces) by_namespace.try_emplace(ns);
  for (const auto& [ns, manifests] : by_namespace) {
    Objects objects;
    std::string why;
    Result<HashKey> key = volume->Key(ns);
    if (key.ok() && std::find(namespaces.begin(), namespaces.end(), ns) != namespaces.end()) {
      HF_ASSIGN_OR_RETURN(objects, HashAll(*volume, ns, *key, report));
    } else if (!key.ok()) {
      why = key.status().ToString();
    }
    SegmentSet needed;
    for (const auto& [id, manifest] : manifests) {
      HurtCheckpoint hurt{.id = id, .ns = ns, .name = manifest.checkpoint, .why = why};
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
