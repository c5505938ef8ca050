#include "api/security.h"

#include <algorithm>
#include <array>
#include <set>

#include "api/fit.h"

namespace holdfast::api {
namespace {

// All that Linux has; and those that containerd and the other runtimes give where nothing is said.
constexpr std::array<std::string_view, 41> kAll = {"AUDIT_CONTROL",   "AUDIT_READ",   "AUDIT_WRITE",
                                                   "BLOCK_SUSPEND",   "BPF",          "CHECKPOINT_RESTORE",
                                                   "CHOWN",           "DAC_OVERRIDE", "DAC_READ_SEARCH",
                                                   "FOWNER",          "FSETID",       "IPC_LOCK",
                                                   "IPC_OWNER",       "KILL",         "LEASE",
                                                   "LINUX_IMMUTABLE", "MAC_ADMIN",    "MAC_OVERRIDE",
                                                   "MKNOD",           "NET_ADMIN",    "NET_BIND_SERVICE",
                                                   "NET_BROADCAST",   "NET_RAW",      "PERFMON",
                                                   "SETFCAP",         "SETGID",       "SETPCAP",
                                                   "SETUID",          "SYSLOG",       "SYS_ADMIN",
                                                   "SYS_BOOT",        "SYS_CHROOT",   "SYS_MODULE",
                                                   "SYS_NICE",        "SYS_PACCT",    "SYS_PTRACE",
                                                   "SYS_RAWIO",       "SYS_RESOURCE", "SYS_TIME",
                                                   "SYS_TTY_CONFIG",  "WAKE_ALARM"};
constexpr std::array<std::string_view, 14> kDefault = {"AUDIT_WRITE", "CHOWN",   "DAC_OVERRIDE",     "FOWNER",    "FSETID",
                                                       "KILL",        "MKNOD",   "NET_BIND_SERVICE", "NET_RAW",   "SETFCAP",
                                                       "SETGID",      "SETPCAP", "SETUID",           "SYS_CHROOT"};

using Names = std::set<std::string>;

Names Capabilities(const Json& context, JsonPath path) {
  Names names;
  for (const Json& json : GetArray(context, path)) {
    if (!json.is_string()) continue;
    std::string name = json.get<std::string>();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    names.insert(name.starts_with("CAP_") ? name.substr(4) : name);
  }
  return names;
}

// As containerd's CRI makes them of add and drop.
Names CapabilitiesOf(const Json& context) {
  const Names added = Capabilities(context, {"capabilities", "add"}), dropped = Capabilities(context, {"capabilities", "drop"});
  if (GetBool(context, {"privileged"})) return {kAll.begin(), kAll.end()};
  Names out(kDefault.begin(), kDefault.end());
  if (added.contains("ALL")) out = Names(kAll.begin(), kAll.end());
  if (dropped.contains("ALL")) out.clear();
  out.insert(added.begin(), added.end());
  for (const std::string& name : dropped) out.erase(name);
  out.erase("ALL");
  return out;
}

std::set<int64_t> GroupsOf(const Json& context) {
  std::set<int64_t> groups;
  for (const Json& json : GetArray(context, {"supplementalGroups"})) {
    if (json.is_number_integer()) groups.insert(json.get<int64_t>());
  }
  if (Find(context, {"fsGroup"}) != nullptr) groups.insert(GetInt(context, {"fsGroup"}));
  return groups;
}

std::string Said(const Json& context, std::string_view key) {
  const Json* said = Find(context, {key});
  return said == nullptr ? "" : DumpJson(*said);
}

// Of a seccomp or AppArmor profile: {type, localhostProfile}. How much two different ones allow cannot be compared; only that none is the
// most, and what the node's default is (nothing said) is at least as much as any.
bool AllowsMore(const Json& then, const Json& now, std::string_view key) {
  const std::string before = Said(then, key), after = Said(now, key);
  const bool free = GetString(now, {key, "type"}) == "Unconfined";
  if (free || before == after) return false;
  return !(after.empty() && GetString(then, {key, "type"}) != "Unconfined");
}

// What a container with the context `then` could do that one with `now` cannot; nothing: nothing.
std::optional<std::string> Wider(const Json& then, const Json& now) {
  const bool privileged = GetBool(now, {"privileged"});
  if (GetBool(then, {"privileged"}) && !privileged) return "it was privileged";
  const Names had = CapabilitiesOf(then), has = CapabilitiesOf(now);
  for (const std::string& name : had) {
    if (!has.contains(name)) return "it had the capability " + name;
  }
  if (privileged) return std::nullopt;  // everything below is less than that
  if (GetBool(then, {"allowPrivilegeEscalation"}, true) && !GetBool(now, {"allowPrivilegeEscalation"}, true))
    return "it could gain privileges (allowPrivilegeEscalation)";
  if (AllowsMore(then, now, "seccompProfile")) return "its seccompProfile was another one";
  if (AllowsMore(then, now, "appArmorProfile")) return "its appArmorProfile was another one";
  if (Said(then, "seLinuxOptions") != Said(now, "seLinuxOptions")) return "its seLinuxOptions were others";
  const bool root = Said(now, "runAsUser") == "0";  // may become anybody
  if (!root && Said(then, "runAsUser") != Said(now, "runAsUser")) return "its runAsUser was another one";
  if (!root && Said(then, "runAsGroup") != Said(now, "runAsGroup")) return "its runAsGroup was another one";
  const bool nobody_special = GetBool(then, {"runAsNonRoot"}) || GetInt(then, {"runAsUser"}) > 0;
  if (GetBool(now, {"runAsNonRoot"}) && !nobody_special) return "it could run as root (runAsNonRoot)";
  const std::set<int64_t> groups = GroupsOf(then), own = GroupsOf(now);
  if (!root && !std::includes(own.begin(), own.end(), groups.begin(), groups.end()))
    return "it was in other groups (fsGroup, supplementalGroups)";
  if (GetString(then, {"procMount"}) == "Unmasked" && GetString(now, {"procMount"}) != "Unmasked") return "its /proc was unmasked";
  if (GetBool(now, {"readOnlyRootFilesystem"}) && !GetBool(then, {"readOnlyRootFilesystem"}))
    return "its root filesystem was writable (readOnlyRootFilesystem)";
  return std::nullopt;
}

Json ContextOf(const kube::Container& container) {
  Result<Json> context = ParseJson(container.security.view());
  return context.ok() && context->is_object() ? std::move(*context) : Json::object();
}

std::string DigestIn(const std::string& image) {
  const size_t at = image.find("@sha256:");
  return at == std::string::npos ? "" : image.substr(at + 1);
}

const kube::Container* Named(const kube::Pod& pod, const std::string& name) {
  const auto all = pod.LastingContainers();
  auto found = std::find_if(all.begin(), all.end(), [&](const kube::Container* one) { return one->name == name; });
  return found == all.end() ? nullptr : *found;
}

constexpr char kHint[] = ": nothing is restored with more rights than the new pod has. Give it the same securityContext, or start it anew";

// `digest`: of the image that ran, where it is known.
std::optional<std::string> CompareContainer(const Json& then, const std::string& digest, const kube::Container& now) {
  const std::string name = now.name, image = GetString(then, {"image"}), pinned = DigestIn(now.image.str());
  if (!image.empty() && now.image != image && (pinned.empty() || pinned != digest)) {
    return "its container " + name + " ran the image " + image + ", and this pod's is " + now.image.str() +
           ": a process goes on only in the image in which it began";
  }
  if (auto wider = Wider(then, ContextOf(now)))
    return "of its container " + name + ": " + *wider + ", and this pod's is not allowed that" + kHint;
  return std::nullopt;
}

}  // namespace

Json SecurityOf(const kube::Pod& pod) {
  Json out = {{"containers", Json::array()}};
  if (pod.host_network) out["hostNetwork"] = true;
  if (pod.host_pid) out["hostPID"] = true;
  if (pod.host_ipc) out["hostIPC"] = true;
  for (const kube::Container* container : pod.LastingContainers()) {
    Json one = ContextOf(*container);
    one["name"] = container->name;
    one["image"] = container->image;
    one.update(FitOf(*container));
    out["containers"].push_back(std::move(one));
  }
  return out;
}

std::optional<std::string> RefusedBySecurity(const Checkpoint& checkpoint, const kube::Pod& pod) {
  if (checkpoint.status.security.empty()) return std::nullopt;
  const Result<Json> record = ParseJson(checkpoint.status.security.view());
  if (!record.ok()) return "what its pod was allowed cannot be read (status.security)";
  const std::array<std::pair<const char*, bool>, 3> host = {
      {{"hostNetwork", pod.host_network}, {"hostPID", pod.host_pid}, {"hostIPC", pod.host_ipc}}};
  for (const auto& [name, own] : host) {
    if (GetBool(*record, {name}) && !own)
      return "its pod was in a namespace of its node (" + std::string(name) + "), and this one is not" + kHint;
  }
  for (const CheckpointContainer& kept : checkpoint.status.containers) {
    const kube::Container* now = Named(pod, kept.name);
    if (now == nullptr) continue;  // it is not restored into this pod
    const Json& all = GetArray(*record, {"containers"});
    auto then = std::find_if(all.begin(), all.end(), [&](const Json& one) { return GetString(one, {"name"}) == kept.name; });
    if (then == all.end()) return "what its container " + kept.name + " was allowed is not recorded (status.security)";
    if (auto why = CompareContainer(*then, kept.image_digest, *now)) return why;
  }
  return std::nullopt;
}

bool MaySetUpNetwork(const kube::Container& container) { return CapabilitiesOf(ContextOf(container)).contains("NET_ADMIN"); }

bool SameImage(const std::string& kept, const std::vector<std::string>& here) {
  return kept.empty() || here.empty() || std::find(here.begin(), here.end(), kept) != here.end();
}

}  // namespace holdfast::api
