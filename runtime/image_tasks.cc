#include "runtime/image_tasks.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/criu_entries.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;

// images/core.proto, images/creds.proto, images/rlimit.proto
constexpr uint32_t kTask = 3, kThread = 5, kState = 1, kLimits = 8, kOom = 14, kPolicy = 4, kCreds = 10, kSeccomp = 11, kFilter = 12;
constexpr uint32_t kPid = 1, kThreads = 5;  // images/pstree.proto
constexpr uint64_t kByFilter = 2;
constexpr uint32_t kLastUser = 8, kFirstCaps = 9, kBounding = 12, kGroups = 14, kProfile = 15, kNoNewPrivileges = 18, kAmbient = 19;
constexpr uint64_t kDead = 2, kZombie = 6;
constexpr uint64_t kCapSetgid = Capability(6);

// The order is the kernel's (asm/resource.h).
constexpr std::array<std::string_view, 16> kResources = {"CPU",     "FSIZE", "DATA",  "STACK",      "CORE",     "RSS",  "NPROC",  "NOFILE",
                                                         "MEMLOCK", "AS",    "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME"};

struct Allowed {
  uint64_t capabilities = 0, uid = 0, gid = 0;
  std::vector<uint64_t> groups;
  bool no_new_privileges = false, seccomp = false;
  std::string profile;                // AppArmor's or SELinux'; empty where the node has none
  std::map<size_t, uint64_t> limits;  // by resource; those that the spec names
  const Json* oom = nullptr;
};

// user:role:type of an SELinux label. What follows are categories, of which a runtime may give each pod others.
std::string TypeOf(const std::string& label) {
  size_t end = label.find(':');
  for (int i = 0; i < 2 && end != std::string::npos; ++i) end = label.find(':', end + 1);
  return label.substr(0, end);
}

Allowed AllowedBy(const Json& spec) {
  Allowed allowed;
  allowed.capabilities = BoundingSet(spec);
  allowed.uid = static_cast<uint64_t>(GetInt(spec, {"process", "user", "uid"}));
  allowed.gid = static_cast<uint64_t>(GetInt(spec, {"process", "user", "gid"}));
  allowed.groups.push_back(allowed.gid);
  for (const Json& group : GetArray(spec, {"process", "user", "additionalGids"})) {
    if (group.is_number_integer()) allowed.groups.push_back(group.get<uint64_t>());
  }
  allowed.no_new_privileges = GetBool(spec, {"process", "noNewPrivileges"});
  const std::string action = GetString(spec, {"linux", "seccomp", "defaultAction"});
  allowed.seccomp = !action.empty() && (action != "SCMP_ACT_ALLOW" || !GetArray(spec, {"linux", "seccomp", "syscalls"}).empty());
  allowed.profile = GetString(spec, {"process", "apparmorProfile"}, TypeOf(GetString(spec, {"process", "selinuxLabel"})));
  for (const Json& limit : GetArray(spec, {"process", "rlimits"})) {
    const auto name = std::find(kResources.begin(), kResources.end(), GetString(limit, {"type"}, "RLIMIT_").substr(7));
    const Json* hard = Find(limit, {"hard"});
    if (name == kResources.end() || hard == nullptr || !hard->is_number_integer()) continue;
    allowed.limits[static_cast<size_t>(name - kResources.begin())] = hard->get<uint64_t>();
  }
  const Json* oom = Find(spec, {"process", "oomScoreAdj"});
  if (oom != nullptr && oom->is_number_integer()) allowed.oom = oom;
  return allowed;
}

// As CRIU reads it: the last one of an optional field, both ways of writing a list.
struct Task {
  bool has_creds = false;
  uint64_t state = 0, seccomp = 0, no_new_privileges = 0;
  std::array<uint64_t, kLastUser + 1> users = {};
  std::map<uint32_t, std::vector<uint64_t>> capabilities;
  std::vector<uint64_t> groups, limits;  // limits: hard ones, by resource
  std::string profile;
  uint64_t policy = 0, filter = 0;
  int32_t oom = 0;
  bool has_oom = false;
};

// A list of numbers as protobuf may write it.
bool AddNumbers(const Field& field, std::vector<uint64_t>* numbers) {
  if (field.wire == 0) numbers->push_back(field.value);
  for (std::string_view packed = field.wire == 2 ? field.content : ""; !packed.empty();) {
    uint64_t number;
    if (!protobuf::ReadVarint(&packed, &number)) return false;
    numbers->push_back(number & 0xffffffff);
  }
  return true;
}

bool ReadCreds(std::string_view creds, Task* task) {
  task->has_creds = true;
  return ForEachField(creds, [task](const Field& field) {
    if (field.number == 0) return false;
    if (field.number <= kLastUser) task->users[field.number] = field.value & 0xffffffff;
    if (field.number == kNoNewPrivileges) task->no_new_privileges = field.value;
    if (field.number == kProfile) task->profile = field.content.substr(0, field.content.find('\0'));
    if (field.number == kGroups) return AddNumbers(field, &task->groups);
    if ((field.number < kFirstCaps || field.number > kBounding) && field.number != kAmbient) return true;
    std::vector<uint64_t>& words = task->capabilities[field.number];
    return AddNumbers(field, &words) && words.size() <= 2;
  });
}

bool ReadLimits(std::string_view limits, Task* task) {
  return ForEachField(limits, [task](const Field& field) {
    Message limit;
    if (field.number != 1 || !limit.Read(field.content)) return false;
    task->limits.push_back(limit.Number(2));
    return task->limits.size() <= kResources.size();
  });
}

bool ReadTask(std::string_view core, Task* task) {
  int tasks = 0, threads = 0, limits = 0;
  return ForEachField(core, [&](const Field& field) {
    if (field.number == kTask && field.wire == 2) {
      return ++tasks == 1 && ForEachField(field.content, [&](const Field& inner) {
        if (inner.number == kState) task->state = inner.value;
        if (inner.number == kOom) task->has_oom = true, task->oom = static_cast<int32_t>(inner.value);
        return inner.number != kLimits || (++limits == 1 && ReadLimits(inner.content, task));
      });
    }
    if (field.number != kThread || field.wire != 2) return true;
    int creds = 0;  // of two CRIU would take what both say together
    return ++threads == 1 && ForEachField(field.content, [&](const Field& inner) {
      if (inner.number == kSeccomp) task->seccomp = inner.value & 0xffffffff;
      if (inner.number == kFilter) task->filter = inner.value & 0xffffffff;
      if (inner.number == kPolicy) task->policy = inner.value & 0xffffffff;
      return inner.number != kCreds || (++creds == 1 && inner.wire == 2 && ReadCreds(inner.content, task));
    });
  });
}

// How soon the kernel ends it when memory is short. Of a burstable pod it is what the node's size makes of its request, so another one
// there.
bool IsSpared(int64_t score, int64_t by_spec) { return score < by_spec && (by_spec >= 1000 || score < 2); }

// Limits and times; empty when there is nothing.
std::string BeyondLimits(const Task& task, const Allowed& allowed) {
  if ((allowed.capabilities & kCapSysResource) == 0) {
    for (const auto& [resource, hard] : allowed.limits) {
      if (resource < task.limits.size() && task.limits[resource] > hard)
        return "has a limit RLIMIT_" + std::string(kResources[resource]) + " above its own";
    }
    if (allowed.oom != nullptr && task.has_oom && IsSpared(task.oom, allowed.oom->get<int64_t>()))
      return "has the OOM score " + std::to_string(task.oom) + ", and it has " + allowed.oom->dump();
  }
  const bool real_time = task.policy == SCHED_FIFO || task.policy == SCHED_RR || task.policy == 6;  // SCHED_DEADLINE
  if (real_time && (allowed.capabilities & kCapSysNice) == 0 && allowed.limits.count(14) == 0) return "runs in real time, and it may not";
  return "";
}

// What the task would have beyond it; empty when there is nothing.
std::string Beyond(const Task& task, const Allowed& allowed) {
  uint64_t held = 0;
  for (const auto& [set, words] : task.capabilities) {
    for (size_t i = 0; i < words.size(); ++i) held |= (words[i] & 0xffffffff) << (32 * i);
  }
  if ((held & ~allowed.capabilities) != 0)
    return "holds " + CapabilityNames(held & ~allowed.capabilities) + ", which is not in its bounding set";
  if (allowed.no_new_privileges && task.no_new_privileges != 1) return "runs without no_new_privs, which it demands";
  if (allowed.seccomp && task.seccomp == 0) return "runs without a seccomp filter, and it has a profile";
  if (!allowed.profile.empty() && task.profile != allowed.profile && TypeOf(task.profile) != allowed.profile)
    return "is confined by \"" + Shown(task.profile) + "\", and it by \"" + allowed.profile + "\"";
  if (std::string limits = BeyondLimits(task, allowed); !limits.empty()) return limits;
  // Without either a setuid program, as an entrypoint that changes its user, is as it should be.
  if (!allowed.no_new_privileges) return "";
  if ((allowed.capabilities & (kCapSetgid | kCapSetuid)) == 0) {
    std::vector<uint64_t> groups = task.groups;
    for (uint32_t group : {2U, 4U, 6U, 8U}) groups.push_back(task.users[group]);
    for (uint64_t group : groups) {
      if (std::find(allowed.groups.begin(), allowed.groups.end(), group) == allowed.groups.end())
        return "is of group " + std::to_string(group) + ", and nothing in it could come into that one";
    }
  }
  if ((allowed.capabilities & kCapSetuid) != 0) return "";
  for (uint32_t user : {1U, 3U, 5U, 7U}) {
    if (task.users[user] != allowed.uid)
      return "is user " + std::to_string(task.users[user]) + ", and nothing in it could become another one than " +
             std::to_string(allowed.uid);
  }
  return "";
}

class Checker {
 public:
  Checker(const std::string& images, const Json& spec) : images_(images), allowed_(AllowedBy(spec)) {}

  // An entry of pstree.img: a process and its threads, each with a core of its own.
  Status Read(std::string_view entry) {
    Message process;
    if (!process.Read(entry, Repeated(kThreads))) return DamagedImage(images_, "pstree.img");
    const uint32_t pid = process.Word(kPid);
    Task leader;
    HF_RETURN_IF_ERROR(ReadCore(pid, &leader));
    if (leader.state == kDead || leader.state == kZombie) return Status::Ok();
    HF_RETURN_IF_ERROR(Check(pid, leader));
    std::vector<uint64_t> threads;
    for (const Field& field : process.fields()) {
      if (field.number == kThreads && !AddNumbers(field, &threads)) return DamagedImage(images_, "pstree.img");
    }
    for (uint64_t number : threads) {
      const auto thread = static_cast<uint32_t>(number);
      if (thread == pid) continue;
      Task task;
      HF_RETURN_IF_ERROR(ReadCore(thread, &task));
      // CRIU notes the filters of a process whose threads all have the same with the first of them, to be set for all at once.
      if (task.seccomp == 0 && leader.seccomp == kByFilter) {
        task.seccomp = leader.seccomp;
        filters_.shared.insert(static_cast<uint32_t>(leader.filter));
      } else if (task.seccomp == kByFilter) {
        filters_.last.insert(static_cast<uint32_t>(task.filter));
      }
      HF_RETURN_IF_ERROR(Check(thread, task));
    }
    if (leader.seccomp == kByFilter) filters_.last.insert(static_cast<uint32_t>(leader.filter));
    return Status::Ok();
  }

  TaskFilters TakeFilters() { return allowed_.seccomp ? std::move(filters_) : TaskFilters(); }

 private:
  static std::string Name(uint32_t id) { return "core-" + std::to_string(id) + ".img"; }

  Status ReadCore(uint32_t id, Task* task) {
    if (!seen_.insert(id).second) return DamagedImage(images_, "pstree.img");
    HF_ASSIGN_OR_RETURN(const std::string image, ReadImage(images_, Name(id)));
    int entries = 0;
    const bool whole = ForEachEntry(image, kCoreMagic, [&](std::string_view entry) { return ++entries == 1 && ReadTask(entry, task); });
    return whole && entries == 1 ? Status::Ok() : DamagedImage(images_, Name(id));
  }

  Status Check(uint32_t id, const Task& task) const {
    if (!task.has_creds) return DamagedImage(images_, Name(id));
    const std::string beyond = Beyond(task, allowed_);
    return beyond.empty() ? Status::Ok() : WiderImage(Name(id), "a task " + beyond);
  }

  const std::string& images_;
  const Allowed allowed_;
  std::set<uint32_t> seen_;
  TaskFilters filters_;
};

}  // namespace

Result<TaskFilters> CheckImageTasks(const std::string& images, const Json& spec) {
  HF_ASSIGN_OR_RETURN(const std::string tree, ReadImage(images, "pstree.img"));
  Checker checker(images, spec);
  Status status;
  const bool whole = ForEachEntry(tree, kPstreeMagic, [&](std::string_view entry) {
    status = checker.Read(entry);
    return status.ok();
  });
  if (!status.ok()) return status;
  if (!whole) return DamagedImage(images, "pstree.img");
  return checker.TakeFilters();
}

}  // namespace holdfast::runtime
