#include "api/fit.h"

#include <algorithm>
#include <cmath>

#include "api/restore_policy.h"

namespace holdfast::api {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kMi = 1 << 20;

std::string Plain(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path);
}

int64_t Mi(int64_t bytes) { return (bytes + kMi - 1) / kMi; }

// Nothing: it has no limit, or what is said is none.
std::optional<double> Limit(std::string_view text) { return text.empty() ? std::nullopt : ParseAmount(text); }

std::string MemoryOf(const kube::Container& container) {
  const auto said = container.limits.find("memory");
  return said == container.limits.end() ? "" : said->second.str();
}

std::optional<std::string> TooSmall(const CheckpointContainer& kept, const Json& record, const kube::Container& now) {
  const auto limit = Limit(MemoryOf(now));
  if (Find(record, {"memory"}) == nullptr || !limit || kept.pages <= 0 || kept.pages > INT64_MAX / kPageBytes) return std::nullopt;
  const auto before = Limit(GetString(record, {"memory"}));
  const int64_t resident = kept.pages * kPageBytes;
  if ((before && *limit >= *before) || *limit >= static_cast<double>(resident)) return std::nullopt;
  return "its container " + kept.name + " has " + std::to_string(Mi(resident)) + "Mi in memory, and this pod's may have " + MemoryOf(now) +
         ": it would be killed as it is restored. Raise resources.limits.memory to more than " + std::to_string(Mi(resident)) + "Mi";
}

std::optional<std::string> LacksMount(const std::string& name, const Json& record, const kube::Container& now) {
  for (const Json& mount : GetArray(record, {"mounts"})) {
    const std::string path = GetString(mount, {"path"});
    const auto here = std::find_if(now.mounts.begin(), now.mounts.end(),
                                   [&](const kube::VolumeMount& one) { return Plain(one.mount_path.view()) == path; });
    if (here == now.mounts.end()) {
      return "its container " + name + " had a volume mounted at " + path + ", and this pod's has none there: mount one, or start it anew";
    }
    if (here->read_only && !GetBool(mount, {"readOnly"})) {
      return "its container " + name + " could write to its volume at " + path +
             ", and this pod's may not: take readOnly off, or start it anew";
    }
  }
  return std::nullopt;
}

}  // namespace

Json FitOf(const kube::Container& container) {
  Json out = {{"memory", MemoryOf(container)}};
  for (const kube::VolumeMount& mount : container.mounts) {
    Json one = {{"path", Plain(mount.mount_path.view())}};
    if (mount.read_only) one["readOnly"] = true;
    out["mounts"].push_back(std::move(one));
  }
  return out;
}

std::optional<std::string> RefusedByFit(const Checkpoint& checkpoint, const kube::Pod& pod) {
  const Result<Json> record = ParseJson(checkpoint.status.security.view());
  const Json& containers = record.ok() ? GetArray(*record, {"containers"}) : GetArray(Json::object(), {"containers"});
  for (const CheckpointContainer& kept : checkpoint.status.containers) {
    const auto all = pod.LastingContainers();
    const auto now = std::find_if(all.begin(), all.end(), [&](const kube::Container* one) { return one->name == kept.name; });
    if (now == all.end()) continue;  // it is not restored into this pod
    const auto then =
        std::find_if(containers.begin(), containers.end(), [&](const Json& one) { return GetString(one, {"name"}) == kept.name; });
    if (then == containers.end()) continue;
    if (auto why = TooSmall(kept, *then, **now)) return why;
    if (auto why = LacksMount(kept.name, *then, **now)) return why;
  }
  return std::nullopt;
}

}  // namespace holdfast::api
