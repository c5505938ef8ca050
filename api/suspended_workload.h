// holdfast.dev/v1alpha1 SuspendedWorkload as a C++ value: a workload that may sleep. crds/suspendedworkload.yaml is the contract with
// users. FromJson never throws: what is missing gets the CRD's default, what is malformed reads as missing.
#pragma once

#include "api/checkpoint.h"
#include "api/idle.h"

namespace holdfast::api {

// Annotation of a workload that sleeps: what it is when it does not. Written by the very patch that stops it, removed by the one that
// starts it again.
inline constexpr char kAsleep[] = "holdfast.dev/asleep";
// Annotation of a bare pod that the controller made again after its sleep: the SuspendedWorkload's name.
inline constexpr char kResumedBy[] = "holdfast.dev/resumed-by";
// Annotation of a workload: the suspension (status.attempt.startedAt) that was taken back last.
inline constexpr char kSuspendUndone[] = "holdfast.dev/suspend-undone";

enum class SuspendPhase { kRunning, kSuspending, kSuspended, kResuming, kFailed };
std::string_view SuspendPhaseName(SuspendPhase phase);  // "Running"

// Annotation of a SuspendedWorkload: how far its schedule was followed. Written by the patch that sets spec.state by it.
inline constexpr char kScheduled[] = "holdfast.dev/scheduled";

// One pod of the workload, and the Checkpoint that has its state.
struct SuspendedPod {
  kube::SharedString pod, pod_uid, ordinal, checkpoint;
};

// spec.resume.onRequest: requests to a Service of its namespace wake the workload, and wait for it.
struct OnRequest {
  kube::SharedString service;
  Duration hold_for = std::chrono::seconds(60);                     // how long a request waits at most
  std::vector<std::string> ignored_user_agents{}, ignored_paths{};  // HTTP requests that wake nobody: prefixes; whole paths
};

// One port of that Service, and the activator's TCP port that stands for it and for nothing else.
struct ActivatorPort {
  kube::SharedString name;  // the Service's; empty for a single one
  int32_t number = 0;
  bool operator==(const ActivatorPort& other) const { return name == other.name.view() && number == other.number; }
};
inline constexpr size_t kMaxActivatorPorts = 16;  // of a Service, as in the CRD

// Label value endpointslice.kubernetes.io/managed-by of the EndpointSlices that lead to the activator.
inline constexpr char kSliceManager[] = "holdfast.dev";

struct SuspendedWorkload {
  static const kube::Resource kResource;
  static constexpr char kFinalizer[] = "holdfast.dev/asleep";
  static SuspendedWorkload FromJson(const Json& object);

  kube::ObjectMeta meta;
  struct {
    kube::SharedString target_api_version, target_kind, target_name;
    bool suspended = false;       // state
    bool keep_on_delete = false;  // onDelete
    struct {
      kube::SharedString suspend, resume, time_zone;  // cron; empty: never
      bool any() const { return !suspend.empty() || !resume.empty(); }
      std::string text() const { return suspend + "|" + resume + "|" + time_zone; }
    } schedule;
    std::optional<IdleWatch> idle;
    std::optional<OnRequest> on_request;  // resume.onRequest
  } spec;
  struct {
    SuspendPhase phase = SuspendPhase::kRunning;
    bool seen = false;  // there is a status
    int64_t observed_generation = 0, overridden_generation = 0;
    int64_t replicas = 0;
    std::vector<SuspendedPod> checkpoints;
    bool durable = false;
    kube::SharedString sealed_pod;  // of a bare pod: its manifest, which the controller alone can open
    kube::SharedString suspended_at, overridden_at, last_activity;
    struct {
      kube::SharedString started_at, retry_at, reason, message;
      int64_t failures = 0;
    } attempt;
    struct {
      kube::SharedString service;  // whose ports these stand for
      std::vector<ActivatorPort> ports;
    } on_request;
    std::vector<Condition> conditions;
  } status;
};

Json ToJson(const SuspendedPod& pod);
Json ToJson(const ActivatorPort& port);

// The value of kAsleep.
struct Asleep {
  std::string by;  // name of the SuspendedWorkload
  int64_t replicas = 0;
  std::string since;
  std::string ToAnnotation() const;  // JSON
};
// Nothing: the annotation is not there. Whatever else is in it, it is: somebody's hand in it does not wake anybody.
std::optional<Asleep> AsleepMark(const kube::ObjectMeta& workload);

// The value of kScheduled.
struct Scheduled {
  std::string of;                    // text() of the schedule
  WallTime at{};                     // what was due up to then is done
  bool suspended = false;            // what the last of it was
  std::string ToAnnotation() const;  // JSON
};
std::optional<Scheduled> ScheduledMark(const kube::ObjectMeta& object);  // nothing: not there, or not as we write it

// Of a checkpoint that a suspension made.
inline bool Suspends(Trigger trigger) { return trigger == Trigger::kSuspend || trigger == Trigger::kIdle; }

// Annotation of a SuspendedWorkload: it is to be suspended because it was idle. Written by the patch that sets spec.state for that.
inline constexpr char kIdled[] = "holdfast.dev/idled";
struct Idled {
  int64_t generation = 0;  // of the object that this patch made: whoever changes its spec afterwards has the word
  WallTime since{};        // when it was last active
  WallTime at{};
  std::string ToAnnotation() const;  // JSON
};
// Nothing: not there, not as we write it, or spec has changed since.
std::optional<Idled> IdledMark(const kube::ObjectMeta& object);

}  // namespace holdfast::api
