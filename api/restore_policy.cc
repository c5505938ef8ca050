#include "api/restore_policy.h"

#include <algorithm>
#include <charconv>

namespace holdfast::api {
namespace {

template <class Enum, size_t N>
Enum ReadEnum(const Json& json, JsonPath path, const std::string_view (&names)[N]) {
  const std::string text = GetString(json, path);
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return static_cast<Enum>(0);  // the first one is the CRD's default
}

constexpr std::string_view kOnFailure[] = {"ColdStart", "Retry", "Fail"};
constexpr std::string_view kOnCrash[] = {"ColdStart", "Latest"};
constexpr std::string_view kOnNodeLost[] = {"Confirm", "Assume"};
constexpr std::string_view kVolumes[] = {"FinalOnly", "IgnoreDrift", "Snapshot"};
constexpr std::string_view kEstablished[] = {"KeepLoopback", "CloseAll"};

struct Suffix {
  std::string_view name;
  int64_t factor;
};
constexpr Suffix kSuffixes[] = {
    {"Ki", 1LL << 10}, {"Mi", 1LL << 20}, {"Gi", 1LL << 30}, {"Ti", 1LL << 40},    {"Pi", 1LL << 50},       {"Ei", 1LL << 60},
    {"k", 1000},       {"M", 1000000},    {"G", 1000000000}, {"T", 1000000000000}, {"P", 1000000000000000}, {"", 1}};

bool Contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool Holds(const SelectorRequirement& requirement, const kube::StringMap& labels) {
  auto label = labels.find(requirement.key);
  const bool there = label != labels.end();
  if (requirement.op == "Exists") return there;
  if (requirement.op == "DoesNotExist") return !there;
  if (requirement.op == "In") return there && Contains(requirement.values, label->second);
  if (requirement.op == "NotIn") return !there || !Contains(requirement.values, label->second);
  return false;
}

int64_t ReadBytes(const Json& json, JsonPath path) {
  const Json* value = Find(json, path);
  if (value == nullptr) return 0;
  if (value->is_string()) return ParseQuantity(value->get<std::string>()).value_or(0);
  return GetInt(json, path);
}

void ReadSpec(const Json& spec, RestorePolicy* out) {
  out->spec.selector = LabelSelector::FromJson(Find(spec, {"selector"}));
  auto& triggers = out->spec.triggers;
  triggers.drain = GetBool(spec, {"triggers", "drain"}, true);
  triggers.stop = GetBool(spec, {"triggers", "stop"}, true);
  triggers.spot = GetBool(spec, {"triggers", "spot"}, true);
  triggers.preemption = GetBool(spec, {"triggers", "preemption"});
  const std::string interval = GetString(spec, {"triggers", "interval"});
  triggers.interval_auto = interval == "auto";
  triggers.interval = ParseDuration(interval);

  auto& restore = out->spec.restore;
  restore.options = RestoreOptions::FromJson(GetObject(spec, {"restore"}));
  restore.max_age = ParseDuration(GetString(spec, {"restore", "maxAge"}));
  restore.on_crash = ReadEnum<OnCrash>(spec, {"restore", "onCrash"}, kOnCrash);
  restore.on_node_lost = ReadEnum<OnNodeLost>(spec, {"restore", "onNodeLost"}, kOnNodeLost);
  restore.volumes = ReadEnum<Volumes>(spec, {"restore", "volumes"}, kVolumes);
  restore.options.established = ReadEnum<Established>(spec, {"network", "established"}, kEstablished);

  auto& retention = out->spec.retention;
  retention.keep_last = std::max<int64_t>(GetInt(spec, {"retention", "keepLast"}, 3), 1);
  retention.keep_within = ParseDuration(GetString(spec, {"retention", "keepWithin"}));
  retention.keep_daily = std::max<int64_t>(GetInt(spec, {"retention", "keepDaily"}), 0);
  retention.max_bytes = ReadBytes(spec, {"retention", "maxBytes"});
  if (auto orphans = ParseDuration(GetString(spec, {"retention", "keepOrphans"}))) retention.keep_orphans = *orphans;
  retention.dry_run = GetBool(spec, {"retention", "dryRun"});
}

}  // namespace

const kube::Resource RestorePolicy::kResource{kGroup, kVersion, "restorepolicies", "RestorePolicy", true};

std::string_view OnFailureName(OnFailure on_failure) { return kOnFailure[static_cast<size_t>(on_failure)]; }

Json RestoreOptions::ToJson() const {
  return {{"onFailure", OnFailureName(on_failure)}, {"attempts", attempts}, {"established", EstablishedName(established)}};
}

RestoreOptions RestoreOptions::FromJson(const Json& json) {
  return {.on_failure = ReadEnum<OnFailure>(json, {"onFailure"}, kOnFailure),
          .attempts = static_cast<int>(std::clamp<int64_t>(GetInt(json, {"attempts"}, 3), 1, 10)),
          .established = ReadEnum<Established>(json, {"established"}, kEstablished)};
}

std::string_view EstablishedName(Established established) { return kEstablished[static_cast<size_t>(established)]; }

LabelSelector LabelSelector::FromJson(const Json* json) {
  LabelSelector selector;
  if (json == nullptr || !json->is_object()) return selector;
  selector.present = true;
  for (const auto& [key, value] : GetObject(*json, {"matchLabels"}).items()) {
    if (value.is_string()) selector.match_labels[key] = value.get<std::string>();
  }
  for (const Json& expression : GetArray(*json, {"matchExpressions"})) {
    SelectorRequirement requirement{GetString(expression, {"key"}), GetString(expression, {"operator"}), {}};
    for (const Json& value : GetArray(expression, {"values"})) {
      if (value.is_string()) requirement.values.push_back(value.get<std::string>());
    }
    selector.match_expressions.push_back(std::move(requirement));
  }
  return selector;
}

bool LabelSelector::Matches(const kube::StringMap& labels) const {
  if (!present) return false;
  for (const auto& [key, value] : match_labels) {
    auto label = labels.find(key);
    if (label == labels.end() || label->second != value) return false;
  }
  return std::all_of(match_expressions.begin(), match_expressions.end(),
                     [&](const SelectorRequirement& requirement) { return Holds(requirement, labels); });
}

RestorePolicy RestorePolicy::FromJson(const Json& object) {
  RestorePolicy out;
  out.meta = kube::ObjectMeta::FromJson(object);
  ReadSpec(GetObject(object, {"spec"}), &out);
  const Json& status = GetObject(object, {"status"});
  out.status.matched = GetInt(status, {"matched"});
  out.status.protected_pods = GetInt(status, {"protected"});
  out.status.last_checkpoint = GetString(status, {"lastCheckpoint"});
  out.status.stored_bytes = GetInt(status, {"stored"});
  out.status.retention = GetObject(status, {"retention"});
  for (const Json& pod : GetArray(status, {"unprotected"})) {
    out.status.unprotected.push_back({GetString(pod, {"pod"}), GetString(pod, {"reason"})});
  }
  for (const Json& condition : GetArray(status, {"conditions"})) out.status.conditions.push_back(Condition::FromJson(condition));
  return out;
}

const RestorePolicy& RestorePolicy::BuiltIn() {
  static const RestorePolicy policy;
  return policy;
}

Json ToJson(const UnprotectedPod& pod) { return {{"pod", pod.pod}, {"reason", pod.reason}}; }

std::optional<int64_t> ParseQuantity(std::string_view text) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::string_view suffix(end, text.data() + text.size() - end);
  for (const Suffix& known : kSuffixes) {
    int64_t product = 0;
    if (known.name == suffix && !__builtin_mul_overflow(number, known.factor, &product)) return product;
  }
  return std::nullopt;
}

std::optional<double> ParseAmount(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);  // takes an exponent; "E" alone is a suffix
  if (error != std::errc() || !(number >= 0) || number > 1e18) return std::nullopt;
  const std::string_view suffix(end, text.data() + text.size() - end);
  if (suffix == "n") return number / 1e9;
  if (suffix == "u") return number / 1e6;
  if (suffix == "m") return number / 1e3;
  if (suffix == "E") return number * 1e18;
  for (const Suffix& known : kSuffixes) {
    if (known.name == suffix) return number * static_cast<double>(known.factor);
  }
  return std::nullopt;
}

}  // namespace holdfast::api
