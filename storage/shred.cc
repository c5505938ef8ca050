#include "storage/shred.h"

#include "storage/limits.h"

namespace holdfast::storage {

Result<ShredReport> Shred(const VolumeOptions& options, const std::string& ns, bool force) {
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Volume> volume, Volume::Open(options, Volume::Mode::kWrite));
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, volume->List("manifests"));
  std::vector<std::string> of_it;
  size_t unknown = 0;
  for (const std::string& id : ids) {
    Result<std::string> owner = volume->NamespaceOf(id);
    // A disk that does not answer is not damage: what is passed over would outlive its keys.
    if (!owner.ok() && owner.status().code() != Code::kDataLoss) return owner.status();
    unknown += owner.ok() ? 0 : 1;
    if (owner.ok() && *owner == ns) of_it.push_back(id);
  }
  if (!force && (!of_it.empty() || unknown > 0)) {
    return Status(Code::kFailedPrecondition, "the namespace " + ns + " has " + std::to_string(of_it.size()) + " checkpoints" +
                                                 (unknown > 0 ? " and " + std::to_string(unknown) + " manifests are damaged" : "") +
                                                 ": delete them first, or give --force");
  }
  // In this order, so that whatever interrupts us leaves no manifest whose key is gone.
  for (const std::string& id : of_it) HF_RETURN_IF_ERROR(volume->RemoveManifest(id));
  HF_RETURN_IF_ERROR(volume->RemoveKeys(ns));
  ShredReport report{.manifests = of_it.size()};
  HF_ASSIGN_OR_RETURN(std::vector<std::string> folders, volume->List("packs"));
  for (const std::string& folder : folders) {
    if (folder != ns) continue;
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, volume->fs().List(volume->PackFolder(ns)));
    for (const std::string& name : names) {
      HF_RETURN_IF_ERROR(volume->fs().Remove(volume->PackFolder(ns) + "/" + name));
      Result<PackId> id = PackId::FromHex(name);
      if (!id.ok()) continue;
      HF_RETURN_IF_ERROR(volume->fs().Remove(volume->IndexPath(*id)));
      ++report.packs;
    }
  }
  return report;
}

}  // namespace holdfast::storage
