#include "runtime/image_rights.h"

#include <sys/stat.h>

#include <array>
#include <map>
#include <vector>

#include "base/file.h"
#include "runtime/criu_entries.h"
#include "runtime/image_cgroups.h"
#include "runtime/image_check.h"
#include "runtime/image_made.h"
#include "runtime/image_names.h"
#include "runtime/image_seccomp.h"
#include "runtime/image_tasks.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;

// images/inventory.proto, images/pstree.proto
constexpr uint32_t kVersion = 1, kRootIds = 3, kPid = 1, kParent = 2;
constexpr uint64_t kImagesV11 = 2;

// The namespaces of task_kobj_ids_entry, by their names in a spec. A cgroup's is none of CRIU's ids, a time's is nobody's right.
constexpr std::array<std::pair<std::string_view, uint32_t>, 5> kNamespaces = {
    {{"pid", 5}, {"network", 6}, {"ipc", 7}, {"uts", 8}, {"mount", 9}}};
constexpr uint32_t kUserNamespace = 10;

using Ids = std::map<uint32_t, uint64_t>;

bool ReadIds(std::string_view message, Ids* ids) {
  return ForEachField(message, [ids](const Field& field) {
    if (field.wire == 0) (*ids)[field.number] = field.value & 0xffffffff;  // as CRIU reads it
    return true;
  });
}

// A pod in the host's network has the node's hostname as well: its containers join what its sandbox has, which is the node's own.
bool SharesTheNodes(const Json& space, const std::string& type) {
  const std::string path = GetString(space, {"path"});
  struct stat theirs, own;
  return !path.empty() && stat(path.c_str(), &theirs) == 0 &&
         stat(("/proc/self/ns/" + (type == "network" ? "net" : type)).c_str(), &own) == 0 && theirs.st_ino == own.st_ino &&
         theirs.st_dev == own.st_dev;
}

Status CheckNamespaces(const std::string& images, const std::string& name, const Ids& node, const Json& spec) {
  HF_ASSIGN_OR_RETURN(const std::string image, ReadImage(images, name));
  Ids ids;
  if (!ForEachEntry(image, kIdsMagic, [&](std::string_view entry) { return ids.empty() && ReadIds(entry, &ids); }) || ids.empty())
    return DamagedImage(images, name);
  auto in_nodes = [&](uint32_t number) {
    const auto own = ids.find(number);
    const auto of_node = node.find(number);
    return own == ids.end() || of_node == node.end() || own->second == 0 || own->second == of_node->second;
  };
  bool user = false;
  for (const Json& space : GetArray(spec, {"linux", "namespaces"})) {
    const std::string type = GetString(space, {"type"});
    user = user || type == "user";
    for (const auto& [kind, number] : kNamespaces) {
      if (type == kind && in_nodes(number) && !SharesTheNodes(space, type))
        return WiderImage(name, "a task stands in the node's " + type + " namespace");
    }
  }
  const auto own = ids.find(kUserNamespace);
  const auto of_node = node.find(kUserNamespace);
  if (!user && own != ids.end() && (of_node == node.end() || own->second != of_node->second))
    return WiderImage(name, "a task has a user namespace of its own, and it has none");
  return Status::Ok();
}

Status CheckAllNamespaces(const std::string& images, const std::string& inventory, const Json& spec) {
  Ids node;
  uint64_t version = 0;
  const bool whole = ForEachEntry(inventory, kInventoryMagic, [&](std::string_view entry) {
    return ForEachField(entry, [&](const Field& field) {
      if (field.number == kVersion) version = field.value;
      return field.number != kRootIds || (node.empty() && field.wire == 2 && ReadIds(field.content, &node));
    });
  });
  if (!whole || version != kImagesV11 || node.empty()) return DamagedImage(images, "inventory.img");
  HF_ASSIGN_OR_RETURN(const std::string tree, ReadImage(images, "pstree.img"));
  Status status = Status::Ok();
  const bool read = ForEachEntry(tree, kPstreeMagic, [&](std::string_view entry) {
    uint64_t pid = 0, parent = 0;
    const bool good = ForEachField(entry, [&](const Field& field) {
      if (field.number == kPid) pid = field.value & 0xffffffff;
      if (field.number == kParent) parent = field.value & 0xffffffff;
      return true;
    });
    const std::string name = "ids-" + std::to_string(pid) + ".img";
    // A zombie has none.
    if (good && status.ok() && (parent == 0 || Exists(images + "/" + name))) status = CheckNamespaces(images, name, node, spec);
    return good;
  });
  if (!status.ok()) return status;
  return read ? Status::Ok() : DamagedImage(images, "pstree.img");
}

}  // namespace

Status CheckImageRights(const std::string& images, const Spec& spec, const std::string& root, ImageView* view) {
  Result<std::string> inventory = ReadImage(images, "inventory.img");
  if (inventory.status().code() == Code::kNotFound) return Status::Ok();
  if (!inventory.ok()) return inventory.status();
  const Json& json = spec.json();
  HF_RETURN_IF_ERROR(CheckImageNames(images, json));
  HF_RETURN_IF_ERROR(CheckAllNamespaces(images, *inventory, json));
  HF_ASSIGN_OR_RETURN(const TaskFilters filters, CheckImageTasks(images, json));
  HF_RETURN_IF_ERROR(CheckImageSeccomp(images, json, filters));
  HF_ASSIGN_OR_RETURN(const std::set<std::string> hierarchies, CgroupHierarchies());
  HF_RETURN_IF_ERROR(CheckImageCgroups(images, hierarchies));
  HF_RETURN_IF_ERROR(CheckImageMade(images, json));
  ImageView found;
  HF_ASSIGN_OR_RETURN(found.mounts, CheckImageMounts(images, json, root));
  HF_ASSIGN_OR_RETURN(found.paths, CheckImageFiles(images, json, found.mounts));
  if (view != nullptr) *view = std::move(found);
  return Status::Ok();
}

}  // namespace holdfast::runtime
