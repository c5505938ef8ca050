#include "runtime/volumes.h"

#include "base/file.h"
#include "runtime/beside.h"
#include "runtime/own_files.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

constexpr char kInUse[] = "/volumes-in-use";
constexpr Duration kFreezesWithin = std::chrono::seconds(2);

struct Kept {
  std::string tar, folder;
};

// What the checkpoint has, and where it belongs.
Result<std::vector<Kept>> KeptFor(const Spec& spec, const CreateAnswer& answer) {
  const Identity who = spec.identity();
  std::vector<Kept> all;
  for (const DumpVolume& volume : answer.volumes) {
    HF_RETURN_IF_ERROR(CheckEmptyDir(volume.path, who.pod_uid, volume.name));
    all.push_back({answer.dir + "/volumes/" + volume.name + ".tar", volume.path});
  }
  HF_ASSIGN_OR_RETURN(std::string shm, SandboxShm(who.sandbox_id));
  if (!shm.empty()) all.push_back({answer.dir + "/shm.tar", shm});
  std::erase_if(all, [](const Kept& kept) { return !Exists(kept.tar); });
  return all;
}

}  // namespace

bool VolumesAreInUse(const std::string& dir) {
  if (Exists(dir + kInUse)) return true;
  for (const std::string& name : ListDir(dir).value_or({})) {
    if (Exists(dir + "/" + name + "/" + kRestoredFile)) return true;
  }
  return false;
}

Status MarkVolumesInUse(const std::string& dir) { return WriteFileDurably(dir + kInUse, ""); }

Status FillVolumes(const Node& node, const std::string& runc_root, const Spec& spec, const CreateAnswer& answer) {
  if (!answer.first || VolumesAreInUse(answer.dir)) return Status::Ok();
  HF_ASSIGN_OR_RETURN(const std::vector<Kept> all, KeptFor(spec, answer));
  if (all.empty()) return Status::Ok();
  HeldBeside beside(node, runc_root, spec.identity().pod_uid);
  beside.Freeze({}, Clock::Real().Mono() + kFreezesWithin);
  for (const Kept& kept : all) HF_RETURN_IF_ERROR(ExtractTree(kept.tar, kept.folder));
  return Status::Ok();
}

Status ResetVolumes(const Node& node, const std::string& runc_root, const Spec& spec, const CreateAnswer& answer) {
  if (!answer.first || VolumesAreInUse(answer.dir)) return Status::Ok();
  if (answer.more) {
    HF_RETURN_IF_ERROR(FillVolumes(node, runc_root, spec, answer));
    return MarkVolumesInUse(answer.dir);
  }
  HF_ASSIGN_OR_RETURN(const std::vector<Kept> all, KeptFor(spec, answer));
  HeldBeside beside(node, runc_root, spec.identity().pod_uid);
  beside.Freeze({}, Clock::Real().Mono() + kFreezesWithin);
  for (const Kept& kept : all) HF_RETURN_IF_ERROR(EmptyDirectory(kept.folder));
  return Status::Ok();
}

}  // namespace holdfast::runtime
