#include "runtime/image_rights.h"

#include <array>
#include <map>
#include <vector>

#include "base/file.h"
#include "runtime/criu_entries.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;

constexpr size_t kMaxImage = 16 << 20;
// images/core.proto, images/creds.proto, images/inventory.proto, images/pstree.proto
constexpr uint32_t kTask = 3, kThread = 5, kState = 1, kCreds = 10, kSeccomp = 11;
constexpr uint32_t kLastUser = 8, kFirstCaps = 9, kBounding = 12, kNoNewPrivileges = 18, kAmbient = 19;
constexpr uint32_t kVersion = 1, kRootIds = 3, kPid = 1, kParent = 2;
constexpr uint64_t kDead = 2, kZombie = 6, kImagesV11 = 2;

// The order is the kernel's (linux/capability.h).
constexpr std::array<std::string_view, 41> kCapabilities = {"CAP_CHOWN",
                                                            "CAP_DAC_OVERRIDE",
                                                            "CAP_DAC_READ_SEARCH",
                                                            "CAP_FOWNER",
                                                            "CAP_FSETID",
                                                            "CAP_KILL",
                                                            "CAP_SETGID",
                                                            "CAP_SETUID",
                                                            "CAP_SETPCAP",
                                                            "CAP_LINUX_IMMUTABLE",
                                                            "CAP_NET_BIND_SERVICE",
                                                            "CAP_NET_BROADCAST",
                                                            "CAP_NET_ADMIN",
                                                            "CAP_NET_RAW",
                                                            "CAP_IPC_LOCK",
                                                            "CAP_IPC_OWNER",
                                                            "CAP_SYS_MODULE",
                                                            "CAP_SYS_RAWIO",
                                                            "CAP_SYS_CHROOT",
                                                            "CAP_SYS_PTRACE",
                                                            "CAP_SYS_PACCT",
                                                            "CAP_SYS_ADMIN",
                                                            "CAP_SYS_BOOT",
                                                            "CAP_SYS_NICE",
                                                            "CAP_SYS_RESOURCE",
                                                            "CAP_SYS_TIME",
                                                            "CAP_SYS_TTY_CONFIG",
                                                            "CAP_MKNOD",
                                                            "CAP_LEASE",
                                                            "CAP_AUDIT_WRITE",
                                                            "CAP_AUDIT_CONTROL",
                                                            "CAP_SETFCAP",
                                                            "CAP_MAC_OVERRIDE",
                                                            "CAP_MAC_ADMIN",
                                                            "CAP_SYSLOG",
                                                            "CAP_WAKE_ALARM",
                                                            "CAP_BLOCK_SUSPEND",
                                                            "CAP_AUDIT_READ",
                                                            "CAP_PERFMON",
                                                            "CAP_BPF",
                                                            "CAP_CHECKPOINT_RESTORE"};
constexpr uint64_t kSetuid = 1 << 7;

// The namespaces of task_kobj_ids_entry, by their names in a spec. A cgroup's is none of CRIU's ids, a time's is nobody's right.
constexpr std::array<std::pair<std::string_view, uint32_t>, 5> kNamespaces = {
    {{"pid", 5}, {"network", 6}, {"ipc", 7}, {"uts", 8}, {"mount", 9}}};
constexpr uint32_t kUserNamespace = 10;

struct Allowed {
  uint64_t capabilities = 0, uid = 0;
  bool no_new_privileges = false, seccomp = false;
};

Allowed AllowedBy(const Json& spec) {
  Allowed allowed;
  for (const Json& name : GetArray(spec, {"process", "capabilities", "bounding"})) {
    for (size_t i = 0; i < kCapabilities.size(); ++i) {
      if (name.is_string() && name.get_ref<const std::string&>() == kCapabilities[i]) allowed.capabilities |= uint64_t{1} << i;
    }
  }
  allowed.uid = static_cast<uint64_t>(GetInt(spec, {"process", "user", "uid"}));
  const Json* no_new = Find(spec, {"process", "noNewPrivileges"});
  allowed.no_new_privileges = no_new != nullptr && no_new->is_boolean() && no_new->get<bool>();
  const std::string action = GetString(spec, {"linux", "seccomp", "defaultAction"});
  allowed.seccomp = !action.empty() && (action != "SCMP_ACT_ALLOW" || !GetArray(spec, {"linux", "seccomp", "syscalls"}).empty());
  return allowed;
}

// As CRIU reads it: the last one of an optional field, both ways of writing a list.
struct Task {
  bool has_creds = false;
  uint64_t state = 0, seccomp = 0, no_new_privileges = 0;
  std::array<uint64_t, kLastUser + 1> users = {};
  std::map<uint32_t, std::vector<uint64_t>> capabilities;
};

bool ReadCreds(std::string_view creds, Task* task) {
  task->has_creds = true;
  return ForEachField(creds, [task](const Field& field) {
    if (field.number == 0) return false;
    if (field.number <= kLastUser) task->users[field.number] = field.value;
    if (field.number == kNoNewPrivileges) task->no_new_privileges = field.value;
    if ((field.number < kFirstCaps || field.number > kBounding) && field.number != kAmbient) return true;
    std::vector<uint64_t>& words = task->capabilities[field.number];
    if (field.wire == 0) words.push_back(field.value);
    for (std::string_view packed = field.wire == 2 ? field.content : ""; !packed.empty();) {
      uint64_t word;
      if (!protobuf::ReadVarint(&packed, &word)) return false;
      words.push_back(word);
    }
    return words.size() <= 2;
  });
}

bool ReadTask(std::string_view core, Task* task) {
  int tasks = 0, threads = 0;
  return ForEachField(core, [&](const Field& field) {
    if (field.number == kTask && field.wire == 2) {
      return ++tasks == 1 && ForEachField(field.content, [&](const Field& inner) {
        if (inner.number == kState) task->state = inner.value;
        return true;
      });
    }
    if (field.number != kThread || field.wire != 2) return true;
    int creds = 0;  // of two CRIU would take what both say together
    return ++threads == 1 && ForEachField(field.content, [&](const Field& inner) {
      if (inner.number == kSeccomp) task->seccomp = inner.value & 0xffffffff;
      return inner.number != kCreds || (++creds == 1 && inner.wire == 2 && ReadCreds(inner.content, task));
    });
  });
}

std::string Names(uint64_t capabilities) {
  std::string names;
  for (size_t i = 0; i < 64; ++i) {
    if ((capabilities >> i & 1) == 0) continue;
    names += (names.empty() ? "" : ", ") + (i < kCapabilities.size() ? std::string(kCapabilities[i]) : "capability " + std::to_string(i));
  }
  return names;
}

// What the task would have beyond it; empty when there is nothing.
std::string Beyond(const Task& task, const Allowed& allowed) {
  uint64_t held = 0;
  for (const auto& [set, words] : task.capabilities) {
    for (size_t i = 0; i < words.size(); ++i) held |= (words[i] & 0xffffffff) << (32 * i);
  }
  if ((held & ~allowed.capabilities) != 0) return "holds " + Names(held & ~allowed.capabilities) + ", which is not in its bounding set";
  if (allowed.no_new_privileges && task.no_new_privileges != 1) return "runs without no_new_privs, which it demands";
  if (allowed.seccomp && task.seccomp == 0) return "runs without a seccomp filter, and it has a profile";
  // Without either a setuid program, as an entrypoint that changes its user, is as it should be.
  if (!allowed.no_new_privileges || (allowed.capabilities & kSetuid) != 0) return "";
  for (uint32_t user : {1U, 3U, 5U, 7U}) {
    if (task.users[user] != allowed.uid)
      return "is user " + std::to_string(task.users[user]) + ", and nothing in it could become another one than " +
             std::to_string(allowed.uid);
  }
  return "";
}

Status Damaged(const std::string& path) { return Status(Code::kDataLoss, path + " is damaged or of another CRIU"); }

Status Wider(const std::string& file, const std::string& what) {
  return Status(Code::kFailedPrecondition,
                "the checkpoint is wider than the container that it is for: by " + file + " a task " + what +
                    ". Nothing was restored; if the node that made it is not to be trusted, delete its checkpoints");
}

using Ids = std::map<uint32_t, uint64_t>;

bool ReadIds(std::string_view message, Ids* ids) {
  return ForEachField(message, [ids](const Field& field) {
    if (field.wire == 0) (*ids)[field.number] = field.value & 0xffffffff;  // as CRIU reads it
    return true;
  });
}

Status CheckNamespaces(const std::string& images, const std::string& name, const Ids& node, const Json& spec) {
  HF_ASSIGN_OR_RETURN(const std::string image, ReadFile(images + "/" + name, kMaxImage));
  Ids ids;
  if (!ForEachEntry(image, kIdsMagic, [&](std::string_view entry) { return ids.empty() && ReadIds(entry, &ids); }) || ids.empty())
    return Damaged(images + "/" + name);
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
      if (type == kind && in_nodes(number)) return Wider(name, "stands in the node's " + type + " namespace");
    }
  }
  const auto own = ids.find(kUserNamespace);
  const auto of_node = node.find(kUserNamespace);
  if (!user && own != ids.end() && (of_node == node.end() || own->second != of_node->second))
    return Wider(name, "has a user namespace of its own, and it has none");
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
  if (!whole || version != kImagesV11 || node.empty()) return Damaged(images + "/inventory.img");
  HF_ASSIGN_OR_RETURN(const std::string tree, ReadFile(images + "/pstree.img", kMaxImage));
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
  return read ? Status::Ok() : Damaged(images + "/pstree.img");
}

}  // namespace

Status CheckImageRights(const std::string& images, const Spec& spec) {
  Result<std::string> inventory = ReadFile(images + "/inventory.img", kMaxImage);
  if (inventory.status().code() == Code::kNotFound) return Status::Ok();
  if (!inventory.ok()) return inventory.status();
  HF_RETURN_IF_ERROR(CheckAllNamespaces(images, *inventory, spec.json()));
  const Allowed allowed = AllowedBy(spec.json());
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(images));
  for (const std::string& name : names) {
    // Of CRIUs before 2.0: what they say comes before what a core says. An AppArmor policy would be loaded into the node's kernel.
    for (const char* other : {"creds-", "apparmor.", "binfmt-misc"}) {
      if (name.starts_with(other)) return Wider(name, "has what no dump of a container of ours writes");
    }
    if (!name.starts_with("core-")) continue;
    HF_ASSIGN_OR_RETURN(const std::string image, ReadFile(images + "/" + name, kMaxImage));
    Task task;
    int entries = 0;
    if (!ForEachEntry(image, kCoreMagic, [&](std::string_view entry) { return ++entries == 1 && ReadTask(entry, &task); }) || entries == 0)
      return Damaged(images + "/" + name);
    if (task.state == kDead || task.state == kZombie) continue;
    if (!task.has_creds) return Damaged(images + "/" + name);
    const std::string beyond = Beyond(task, allowed);
    if (!beyond.empty()) return Wider(name, beyond);
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
