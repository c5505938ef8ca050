// holdfast.dev/v1alpha1 Checkpoint as a C++ value. crds/checkpoint.yaml is the contract with users; this is its reading. FromJson never
// throws: what is missing gets the CRD's default, what is malformed reads as missing.
#pragma once

#include <optional>

#include "base/time_format.h"
#include "kube/conditions.h"
#include "kube/resource.h"

namespace holdfast::api {

inline constexpr char kGroup[] = "holdfast.dev";
inline constexpr char kVersion[] = "v1alpha1";
inline constexpr char kRuntimeClass[] = "holdfast";

// Annotations and labels of users' objects.
inline constexpr char kProtect[] = "holdfast.dev/protect";                 // "true": on a workload, bare pod or Namespace
inline constexpr char kPolicy[] = "holdfast.dev/policy";                   // name of a RestorePolicy
inline constexpr char kContainers[] = "holdfast.dev/containers";           // "a,b"
inline constexpr char kMemberOf[] = "holdfast.dev/group";                  // on pods (or their workload): name of their group
inline constexpr char kQuota[] = "holdfast.dev/quota";                     // on a Namespace: bytes that its Checkpoints may take
inline constexpr char kManifest[] = "holdfast.dev/manifest";               // on a Checkpoint made anew: what the store has of it
inline constexpr char kFromCheckpoint[] = "holdfast.dev/from-checkpoint";  // a user asks that this pod starts from that Checkpoint
inline constexpr char kRestore[] = "holdfast.dev/restore";  // set by the controller with the claim; overwritten by the webhook
// Set by the controller with the opening of the gate of a pod that starts cold: reconcilers/claim/cold_start.h.
inline constexpr char kRestoreOptions[] = "holdfast.dev/restore-options";  // beside it: api::RestoreOptions
inline constexpr char kRestoreSkipped[] = "holdfast.dev/restore-skipped";
// Set by the controller on a pod that is being stopped and not checkpointed: why. Its agent passes the signal on.
inline constexpr char kLetGo[] = "holdfast.dev/let-go";
inline constexpr char kIgnorePreStop[] = "holdfast.dev/ignore-prestop";  // "true": a pod whose preStop hook ran is dumped on stop
inline constexpr char kClaimGate[] = "holdfast.dev/claim";               // scheduling gate
inline constexpr char kWaitContainer[] = "holdfast-wait";                // init container, which the webhook adds with the gate
inline constexpr char kNodeReady[] = "holdfast.dev/runtime";             // node label: "ready"

enum class Phase { kPending, kAssigned, kFreezing, kDumping, kStoring, kReady, kFailed, kDeleting };
std::string_view PhaseName(Phase phase);  // "Pending"
enum class Trigger { kManual, kInterval, kDrain, kStop, kSpot, kPreemption, kSuspend, kIdle, kSchedule };
std::string_view TriggerName(Trigger trigger);

// Reasons of the condition Ready.
namespace reason {
inline constexpr char kWaiting[] = "Waiting", kQueued[] = "Queued", kInProgress[] = "InProgress", kStillStoring[] = "StillStoring",
                      kCompleted[] = "Completed", kPodGone[] = "PodGone", kPodReplaced[] = "PodReplaced", kUnsupported[] = "Unsupported",
                      kDumpFailed[] = "DumpFailed", kStoreFull[] = "StoreFull", kDeadline[] = "Deadline",
                      kStoreUnavailable[] = "StoreUnavailable", kNotStored[] = "NotStored", kGroupMemberFailed[] = "GroupMemberFailed",
                      kNodeFull[] = "NodeFull";
}

// Condition, written by the agent of the node: no container of the checkpointed pod is left there.
inline constexpr char kPodEnded[] = "PodEnded";

// Condition, written by the controller: the store cannot read all of it any more.
inline constexpr char kDamaged[] = "Damaged";

// Condition, written by the controller: the store that has it is none of this installation's, so nothing is known of its content.
inline constexpr char kStoreMissing[] = "StoreMissing";

// Condition, written by the controller: no pod could be restored from it, so it is given to none by itself any more.
inline constexpr char kQuarantined[] = "Quarantined";

// Condition, written by the agent with its report: what its pod's owner should know of such checkpoints, and of restores from them.
inline constexpr char kCaveats[] = "Caveats";

using kube::Condition;

struct CheckpointContainer {
  kube::SharedString name, image, image_digest;
  int64_t pages = 0;
  bool restorable = false;
  kube::SharedString reason;
};

struct Claim {
  std::string pod_name, pod_uid, at;
};

struct Restore {
  std::string pod_name, node, at, outcome, reason;  // outcome: Started | Restored | ColdStart | Failed
  double seconds = 0;
  bool ran = false;       // of Failed: its processes may have run for a moment, so nothing is restored from it again
  std::string pod_uid{};  // of older agents: empty
  int attempts = 0;       // of Failed: how often CRIU tried, in vain
};

struct Owner {
  kube::SharedString kind, name, uid, template_hash, ordinal;  // the top owner: Deployment, StatefulSet, Job or the Pod itself
};

struct CutMember {
  kube::SharedString pod_name, pod_uid, checkpoint;  // the name of its Checkpoint
};
// The checkpoints of a group that stand for one moment of all its members (docs/groups.md).
struct Cut {
  kube::SharedString group, id;    // id: uid of the Checkpoint that opened it; empty: there is no cut
  std::vector<CutMember> members;  // the opener first

  bool none() const { return id.empty(); }
};

struct Checkpoint {
  static const kube::Resource kResource;
  static Checkpoint FromJson(const Json& object);
  void Share(kube::StringPool* pool);  // for caches: stores what other objects have too, or this one twice, only once

  kube::ObjectMeta meta;
  struct {
    kube::SharedString pod_name, pod_uid;
    std::vector<std::string> containers;
    bool final = false;
    Trigger trigger = Trigger::kManual;
    Duration deadline = std::chrono::seconds(100);
    bool pinned = false;
    std::optional<Duration> ttl;
    Cut cut;
  } spec;
  struct {
    Phase phase = Phase::kPending;
    std::vector<Condition> conditions;
    kube::SharedString node_name, pod_uid, started_at, completed_at;
    kube::SharedString deadline_at;   // when it is given up, for all who ask; written with the assignment. Empty: by an earlier release
    kube::SharedString queued_until;  // queue.until: how long it waits for its turn; empty: it has not waited
    int64_t term = 0;                 // of leadership, of the controller that wrote last (base/fence.h)
    Owner owner;
    kube::SharedString security;  // what its pod was allowed, as JSON (api/security.h); empty: made by an earlier release
    kube::SharedString policy;    // RestorePolicy that its pod followed when it was assigned; empty: the built-in one
    int64_t memory_bytes = 0, files_bytes = 0, stored_bytes = 0;            // size
    int64_t frozen_ms = 0, dump_ms = 0, store_ms = 0;                       // timings
    kube::SharedString frozen_at, all_frozen_at, dumped_at, all_dumped_at;  // barrier
    int64_t progress_bytes = 0, progress_total = 0;                         // progress
    kube::SharedString arch;                                                // platform.arch: "amd64", as the node label has it
    kube::SharedString cpu_features, criu,
        kernel;  // platform.cpuFeatures (api/platform.h), platform.criu: "4.2", platform.kernel: uname -r
    std::vector<CheckpointContainer> containers;
    kube::SharedString manifest_store, manifest_id, manifest_digest;
    std::optional<Claim> claim;
    std::vector<Restore> restores;
  } status;

  // The name of the store that has its manifest; what older ones say is read as the default one.
  std::string store() const;
  bool done() const { return status.phase == Phase::kReady || status.phase == Phase::kFailed || status.phase == Phase::kDeleting; }
  const Condition* Ready() const;
  // The one moment when it is given up, by the API server's clock. Nothing: it is not assigned yet.
  std::optional<WallTime> DeadlineAt() const;
};

// Fragments of `status`, for merge patches.
using kube::ToJson;
Json ToJson(const Claim& claim);
Json ToJson(const Restore& restore);
Json ToJson(const Owner& owner);
Json ToJson(const CheckpointContainer& container);
Json ToJson(const Cut& cut);  // spec.cut
// `status.size`, in bytes; `status.timings`, as durations people can read; `status.progress`, in bytes.
Json SizeJson(int64_t memory_bytes, int64_t files_bytes, int64_t stored_bytes);
// `barrier_ms`: nothing where there was none.
Json TimingsJson(int64_t frozen_ms, int64_t dump_ms, int64_t store_ms, std::optional<int64_t> barrier_ms = std::nullopt);
Json ProgressJson(int64_t bytes, int64_t total);
// `status.queue` of one that waits for its turn. `position`: its place among those that wait on its node, from 1 on; `about`: until its
// turn comes, as far as can be told; nothing: it cannot.
Json QueueJson(int64_t position, WallTime until, std::optional<Duration> about);
// `status.summary`: size for people, as kubectl's columns print it ("312Mi").
Json SummaryJson(int64_t size_bytes, int64_t stored_bytes);
// {"status": {"phase": …, "conditions": [Ready with `reason` and `message`]}}: how every writer moves the phase. `previous` keeps the
// condition's transition time when its status does not change.
Json PhasePatch(const Checkpoint& previous, Phase phase, const std::string& reason, const std::string& message, WallTime now);

// The name that one request always gets: drain-<pod>-<first 8 of uid>, cut to 63 characters with a hash where longer.
std::string CheckpointName(Trigger trigger, const std::string& pod_name, const std::string& pod_uid, int ordinal = 0);

}  // namespace holdfast::api
