#include "api/checkpoint.h"

#include <algorithm>
#include <cstdio>

#include "api/stores.h"
#include "kube/utf8.h"

namespace holdfast::api {
namespace {

constexpr std::string_view kPhases[] = {"Pending", "Assigned", "Freezing", "Dumping", "Storing", "Ready", "Failed", "Deleting"};
constexpr std::string_view kTriggers[] = {"Manual", "Interval", "Drain", "Stop", "Spot", "Preemption", "Suspend", "Idle", "Schedule"};
constexpr size_t kMaxName = 63;
constexpr size_t kMaxMessage = 2048;
constexpr int64_t kMostBytes = int64_t{1} << 48;  // of one checkpoint

template <class Enum, size_t N>
Enum ParseEnum(const std::string_view (&names)[N], const std::string& text, Enum otherwise) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return otherwise;
}

// A size, as a node says it, and so anything at all: of thousands of them the sum is still one.
int64_t ReadBytes(const Json& object, JsonPath path) { return std::clamp<int64_t>(GetInt(object, path), 0, kMostBytes); }

// A duration as Go writes it, or a number of milliseconds.
int64_t ReadMilliseconds(const Json& object, JsonPath path) {
  const Json* value = Find(object, path);
  if (value == nullptr) return 0;
  if (value->is_string()) {
    auto duration = ParseDuration(value->get<std::string>());
    return duration ? std::chrono::duration_cast<std::chrono::milliseconds>(*duration).count() : 0;
  }
  return GetInt(object, path);
}

CheckpointContainer ReadContainer(const Json& json) {
  CheckpointContainer container;
  container.name = GetString(json, {"name"});
  container.image = GetString(json, {"image"});
  container.image_digest = GetString(json, {"imageDigest"});
  container.pages = GetInt(json, {"pages"});
  container.restorable = GetBool(json, {"restorable"});
  container.reason = GetString(json, {"reason"});
  return container;
}

Restore ReadRestore(const Json& json) {
  Restore restore;
  restore.pod_name = GetString(json, {"podName"});
  restore.pod_uid = GetString(json, {"podUID"});
  restore.node = GetString(json, {"node"});
  restore.at = GetString(json, {"at"});
  restore.outcome = GetString(json, {"outcome"});
  restore.reason = GetString(json, {"reason"});
  restore.seconds = GetDouble(json, {"seconds"});
  restore.ran = GetBool(json, {"ran"});
  restore.attempts = static_cast<int>(std::clamp<int64_t>(GetInt(json, {"attempts"}), 0, 1'000'000));
  return restore;
}

// FNV-1a: a short fingerprint for names, not for secrets.
uint32_t Fingerprint(std::string_view text) {
  uint32_t hash = 2166136261U;
  for (unsigned char c : text) hash = (hash ^ c) * 16777619U;
  return hash;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

void SetUnlessEmpty(Json& json, const char* key, std::string_view value) {
  if (!value.empty()) json[key] = value;
}

}  // namespace

const kube::Resource Checkpoint::kResource{kGroup, kVersion, "checkpoints", "Checkpoint", true};

std::string_view PhaseName(Phase phase) { return kPhases[static_cast<size_t>(phase)]; }
std::string_view TriggerName(Trigger trigger) { return kTriggers[static_cast<size_t>(trigger)]; }

Checkpoint Checkpoint::FromJson(const Json& object) {
  Checkpoint out;
  out.meta = kube::ObjectMeta::FromJson(object);

  const Json& spec = GetObject(object, {"spec"});
  out.spec.pod_name = GetString(spec, {"podRef", "name"});
  out.spec.pod_uid = GetString(spec, {"podRef", "uid"});
  out.spec.containers.reserve(GetArray(spec, {"containers"}).size());
  for (const Json& name : GetArray(spec, {"containers"})) {
    if (name.is_string()) out.spec.containers.push_back(name.get<std::string>());
  }
  out.spec.final = GetBool(spec, {"final"});
  out.spec.trigger = ParseEnum(kTriggers, GetString(spec, {"trigger"}), Trigger::kManual);
  if (auto deadline = ParseDuration(GetString(spec, {"deadline"}))) out.spec.deadline = *deadline;
  out.spec.pinned = GetBool(spec, {"pinned"});
  out.spec.ttl = ParseDuration(GetString(spec, {"ttl"}));

  out.spec.cut.group = GetString(spec, {"cut", "group"});
  out.spec.cut.id = GetString(spec, {"cut", "id"});
  for (const Json& member : GetArray(spec, {"cut", "members"})) {
    out.spec.cut.members.push_back({GetString(member, {"pod"}), GetString(member, {"podUID"}), GetString(member, {"checkpoint"})});
  }

  const Json& status = GetObject(object, {"status"});
  out.status.phase = ParseEnum(kPhases, GetString(status, {"phase"}), Phase::kPending);
  out.status.conditions.reserve(GetArray(status, {"conditions"}).size());
  for (const Json& condition : GetArray(status, {"conditions"})) out.status.conditions.push_back(Condition::FromJson(condition));
  out.status.node_name = GetString(status, {"nodeName"});
  out.status.pod_uid = GetString(status, {"podUID"});
  out.status.term = GetInt(status, {"term"});
  out.status.started_at = GetString(status, {"startedAt"});
  out.status.completed_at = GetString(status, {"completedAt"});
  out.status.deadline_at = GetString(status, {"deadlineAt"});
  out.status.queued_until = GetString(status, {"queue", "until"});
  out.status.owner = {GetString(status, {"owner", "kind"}), GetString(status, {"owner", "name"}), GetString(status, {"owner", "uid"}),
                      GetString(status, {"owner", "templateHash"}), GetString(status, {"owner", "ordinal"})};
  if (const Json& security = GetObject(status, {"security"}); !security.empty()) out.status.security = DumpJson(security);
  out.status.policy = GetString(status, {"policy"});
  out.status.memory_bytes = ReadBytes(status, {"size", "memory"});
  out.status.files_bytes = ReadBytes(status, {"size", "files"});
  out.status.stored_bytes = ReadBytes(status, {"size", "stored"});
  out.status.frozen_ms = ReadMilliseconds(status, {"timings", "frozen"});
  out.status.dump_ms = ReadMilliseconds(status, {"timings", "dump"});
  out.status.store_ms = ReadMilliseconds(status, {"timings", "store"});
  out.status.frozen_at = GetString(status, {"barrier", "frozenAt"});
  out.status.all_frozen_at = GetString(status, {"barrier", "allFrozenAt"});
  out.status.dumped_at = GetString(status, {"barrier", "dumpedAt"});
  out.status.all_dumped_at = GetString(status, {"barrier", "allDumpedAt"});
  out.status.progress_bytes = ReadBytes(status, {"progress", "bytes"});
  out.status.progress_total = ReadBytes(status, {"progress", "total"});
  out.status.arch = GetString(status, {"platform", "arch"});
  out.status.cpu_features = GetString(status, {"platform", "cpuFeatures"});
  out.status.criu = GetString(status, {"platform", "criu"});
  out.status.kernel = GetString(status, {"platform", "kernel"});
  out.status.containers.reserve(GetArray(status, {"containers"}).size());
  for (const Json& container : GetArray(status, {"containers"})) out.status.containers.push_back(ReadContainer(container));
  out.status.manifest_store = GetString(status, {"manifest", "store"});
  out.status.manifest_id = GetString(status, {"manifest", "id"});
  out.status.manifest_digest = GetString(status, {"manifest", "digest"});
  // A claim without a uid gives nothing to anybody, so it reads as none.
  if (!GetString(status, {"claim", "podUID"}).empty()) {
    out.status.claim =
        Claim{GetString(status, {"claim", "podName"}), GetString(status, {"claim", "podUID"}), GetString(status, {"claim", "at"})};
  }
  for (const Json& restore : GetArray(status, {"restores"})) out.status.restores.push_back(ReadRestore(restore));
  return out;
}

void Checkpoint::Share(kube::StringPool* pool) {
  meta.Share(pool);
  for (kube::SharedString* text :
       {&spec.pod_name, &spec.pod_uid, &status.node_name, &status.pod_uid, &status.owner.kind, &status.owner.name, &status.owner.uid,
        &status.owner.template_hash, &status.owner.ordinal, &status.security, &status.policy, &status.arch, &status.cpu_features,
        &status.criu, &status.kernel, &status.manifest_store, &spec.cut.group, &spec.cut.id}) {
    pool->Share(text);
  }
  for (CutMember& member : spec.cut.members) {
    for (kube::SharedString* text : {&member.pod_name, &member.pod_uid, &member.checkpoint}) pool->Share(text);
  }
  for (Condition& condition : status.conditions) condition.Share(pool);
  for (CheckpointContainer& container : status.containers) {
    for (kube::SharedString* text : {&container.name, &container.image, &container.image_digest, &container.reason}) pool->Share(text);
  }
}

std::string Checkpoint::store() const {
  const std::string_view said = status.manifest_store;
  return said.empty() || said == kAdoptedStore ? kDefaultStore : std::string(said);
}

const Condition* Checkpoint::Ready() const { return kube::FindCondition(status.conditions, "Ready"); }

std::optional<WallTime> Checkpoint::DeadlineAt() const {
  if (auto written = ParseTime(status.deadline_at)) return written;
  const auto started = ParseTime(status.started_at);
  return started ? std::optional(*started + spec.deadline) : std::nullopt;
}

Json ToJson(const Claim& claim) { return {{"podName", claim.pod_name}, {"podUID", claim.pod_uid}, {"at", claim.at}}; }

Json ToJson(const Restore& restore) {
  Json json = {{"podName", restore.pod_name}, {"at", restore.at}, {"outcome", restore.outcome}, {"seconds", restore.seconds}};
  SetUnlessEmpty(json, "podUID", restore.pod_uid);
  SetUnlessEmpty(json, "node", restore.node);
  SetUnlessEmpty(json, "reason", restore.reason);
  if (restore.ran) json["ran"] = true;
  if (restore.attempts > 0) json["attempts"] = restore.attempts;
  return json;
}

Json ToJson(const Owner& owner) {
  Json json = {{"kind", owner.kind}, {"name", owner.name}, {"uid", owner.uid}};
  SetUnlessEmpty(json, "templateHash", owner.template_hash);
  SetUnlessEmpty(json, "ordinal", owner.ordinal);
  return json;
}

Json ToJson(const CheckpointContainer& container) {
  Json json = {{"name", container.name}, {"image", container.image}, {"pages", container.pages}, {"restorable", container.restorable}};
  SetUnlessEmpty(json, "imageDigest", container.image_digest);
  SetUnlessEmpty(json, "reason", container.reason);
  return json;
}

Json ToJson(const Cut& cut) {
  Json members = Json::array();
  for (const CutMember& member : cut.members) {
    members.push_back({{"pod", member.pod_name}, {"podUID", member.pod_uid}, {"checkpoint", member.checkpoint}});
  }
  return {{"group", cut.group}, {"id", cut.id}, {"members", members}};
}

Json SizeJson(int64_t memory_bytes, int64_t files_bytes, int64_t stored_bytes) {
  return {{"memory", memory_bytes}, {"files", files_bytes}, {"stored", stored_bytes}};
}

Json TimingsJson(int64_t frozen_ms, int64_t dump_ms, int64_t store_ms, std::optional<int64_t> barrier_ms) {
  // Two digits are what people compare; FormatDuration drops fractions of seconds.
  auto text = [](int64_t ms) -> std::string {
    if (ms < 1000) return std::to_string(ms) + "ms";
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.2fs", static_cast<double>(ms) / 1000);
    return seconds;
  };
  Json timings = {{"frozen", text(frozen_ms)}, {"dump", text(dump_ms)}, {"store", text(store_ms)}};
  if (barrier_ms) timings["barrier"] = text(*barrier_ms);
  return timings;
}

Json ProgressJson(int64_t bytes, int64_t total) { return {{"bytes", bytes}, {"total", total}}; }

Json QueueJson(int64_t position, WallTime until, std::optional<Duration> about) {
  Json queue = {{"position", position}, {"until", FormatTime(until)}};
  queue["about"] = about ? Json(FormatDuration(*about)) : Json();  // a merge patch: null takes what was said before away
  return queue;
}

Json SummaryJson(int64_t size_bytes, int64_t stored_bytes) {
  auto text = [](int64_t bytes) -> std::string {
    if (bytes < (1 << 10)) return std::to_string(bytes);
    if (bytes < (10 << 20)) return std::to_string(bytes >> 10) + "Ki";
    if (bytes < (10LL << 30)) return std::to_string(bytes >> 20) + "Mi";
    return std::to_string(bytes >> 30) + "Gi";
  };
  return {{"size", text(size_bytes)}, {"stored", text(stored_bytes)}};
}

Json PhasePatch(const Checkpoint& previous, Phase phase, const std::string& reason, const std::string& message, WallTime now) {
  // A merge patch replaces the whole list, so the others go with it.
  std::vector<Condition> conditions = previous.status.conditions;
  // What others say may be long; the line is for people, and the CRD has a limit.
  kube::SetCondition(conditions,
                     {.type = "Ready",
                      .status = phase == Phase::kReady ? "True" : "False",
                      .reason = reason,
                      .message = kube::Clip(message, kMaxMessage),
                      .observed_generation = previous.meta.generation},
                     now);
  return {{"status", {{"phase", PhaseName(phase)}, {"conditions", ToJson(conditions)}}}};
}

std::string CheckpointName(Trigger trigger, const std::string& pod_name, const std::string& pod_uid, int ordinal) {
  const std::string head = Lower(TriggerName(trigger)) + "-";
  std::string tail = "-" + pod_uid.substr(0, 8);
  if (ordinal > 0) tail += "-" + std::to_string(ordinal);
  if (head.size() + pod_name.size() + tail.size() <= kMaxName) return head + pod_name + tail;
  char hash[12];
  std::snprintf(hash, sizeof hash, "-%08x", Fingerprint(pod_name));
  tail = hash + tail;
  std::string cut = pod_name.substr(0, kMaxName - head.size() - tail.size());
  // A label of a DNS name ends neither in '-' nor in '.'.
  while (!cut.empty() && (cut.back() == '-' || cut.back() == '.')) cut.pop_back();
  return head + cut + tail;
}

}  // namespace holdfast::api
