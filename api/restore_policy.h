// holdfast.dev/v1alpha1 RestorePolicy as a C++ value: what is protected, and what happens then. crds/restorepolicy.yaml is the contract
// with users. A workload whose annotation holdfast.dev/protect is "true" and names no policy follows RestorePolicy::BuiltIn().
// FromJson never throws: what is missing gets the CRD's default, what is malformed reads as missing.
#pragma once

#include <optional>

#include "api/checkpoint.h"

namespace holdfast::api {

enum class OnFailure { kColdStart, kRetry, kFail };
enum class OnCrash { kColdStart, kLatest };
enum class OnNodeLost { kConfirm, kAssume };
enum class Volumes { kFinalOnly, kIgnoreDrift, kSnapshot };
enum class Established { kKeepLoopback, kCloseAll };
std::string_view EstablishedName(Established established);  // "KeepLoopback"
std::string_view OnFailureName(OnFailure on_failure);       // "ColdStart"

// What a pod's policy says of its restore, on its way from the controller to the node's agent: the annotation kRestoreOptions.
struct RestoreOptions {
  OnFailure on_failure = OnFailure::kColdStart;
  int attempts = 3;  // 1 to 10; Retry knows no last one
  Established established = Established::kKeepLoopback;
  Json ToJson() const;
  static RestoreOptions FromJson(const Json& json);  // what is missing or malformed is as above
};

struct SelectorRequirement {
  std::string key, op;  // op: In, NotIn, Exists, DoesNotExist
  std::vector<std::string> values;
};

// metav1.LabelSelector. An absent one matches nothing, as in the API; an empty one everything.
struct LabelSelector {
  bool present = false;
  std::map<std::string, std::string> match_labels;
  std::vector<SelectorRequirement> match_expressions;
  static LabelSelector FromJson(const Json* json);
  bool Matches(const kube::StringMap& labels) const;
};

struct UnprotectedPod {
  std::string pod, reason;
};

struct RestorePolicy {
  static const kube::Resource kResource;
  static RestorePolicy FromJson(const Json& object);
  static const RestorePolicy& BuiltIn();  // without a name

  kube::ObjectMeta meta;
  struct {
    LabelSelector selector;
    struct {
      bool drain = true, stop = true, spot = true, preemption = false;
      bool interval_auto = false;        // interval: auto
      std::optional<Duration> interval;  // interval: 10m; neither: no interval checkpoints
    } triggers;
    struct {
      RestoreOptions options;
      std::optional<Duration> max_age;
      OnCrash on_crash = OnCrash::kColdStart;
      OnNodeLost on_node_lost = OnNodeLost::kConfirm;
      Volumes volumes = Volumes::kFinalOnly;
    } restore;
    struct {
      int64_t keep_last = 3;
      std::optional<Duration> keep_within;
      int64_t keep_daily = 0;
      int64_t max_bytes = 0;  // 0: unlimited
      Duration keep_orphans = std::chrono::hours(24 * 7);
      bool dry_run = false;
    } retention;
  } spec;
  struct {
    int64_t matched = 0, protected_pods = 0, stored_bytes = 0;
    std::vector<UnprotectedPod> unprotected;
    std::string last_checkpoint;  // name
    Json retention;               // as it was written, to see whether it changed
    std::vector<Condition> conditions;
  } status;
};

Json ToJson(const UnprotectedPod& pod);
// A Kubernetes quantity of whole units: "50Gi", "1500M", "128974848". Nothing for malformed, fractional, negative or overflowing ones.
std::optional<int64_t> ParseQuantity(std::string_view text);
// Any Kubernetes quantity that is not negative, in its base unit: "50m" is 0.05, "1.5Gi" 1610612736, "2e3" 2000.
std::optional<double> ParseAmount(std::string_view text);

}  // namespace holdfast::api
