// Which Checkpoints stay, which go, in which order, and why. Pure: no clock, no I/O; the same set in any order gives the same plan, and a
// plan of which the first part was carried out leaves the rest of itself.
//
// A workload is an owner's kind, name and, where pods are told apart by it, ordinal. Its checkpoints are one series; but of replicas (pods
// without an ordinal) each one that exists is a series of its own, and those of pods that are gone together are one more. Checkpoints that
// a user asked for (trigger Manual) are counted apart from the others, so none of them is pushed out by a drain.
//
// Damaged ones are counted apart too, so none of them stands in the place of one that can be restored.
//
//   1. What is protected (Keep up to kPassedOn) goes for no reason.
//   2. spec.ttl, where it is set, decides alone: not before it, at once after it.
//   3. Else keepLast, keepWithin and keepDaily: what none of them keeps goes. Days are UTC's.
//   4. Of a workload that does not exist, all goes when keepOrphans is over since that was noticed, but for what keepWithin keeps.
//   5. Of Failed ones (and those whose pod was thawed again) the newest kSpentKept of a workload are kept for kSpentFor.
//   The checkpoints of a cut (reconcilers/group/cut.h) stay while a rule, or a protection, keeps one of them; what is left of a cut that is
//   not whole any more goes.
//   6. maxBytes of the policy, then the namespace's quota, then each store's volume: spent ones, then orphans, then the oldest go until it
//   is met.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace holdfast::reconcilers::restorepolicy {

inline constexpr size_t kSpentKept = 3;
inline constexpr Duration kSpentFor = std::chrono::hours(24 * 7);
// A workload that is made anew under its name within this time was never gone.
inline constexpr Duration kOrphanSettles = std::chrono::minutes(10);

// spec.retention of a RestorePolicy, or of the built-in one.
struct Rules {
  int64_t keep_last = 3;
  std::optional<Duration> keep_within;
  int64_t keep_daily = 0;
  int64_t max_bytes = 0;  // 0: no limit
  Duration keep_orphans = std::chrono::hours(24 * 7);
  bool dry_run = false;  // its rules (3 to 5, maxBytes) only say what they would do
};

// A Checkpoint, as far as retention goes.
struct Subject {
  std::string ns, name, uid;
  std::string store;     // that has it
  std::string policy;    // of its namespace; empty: the built-in one
  std::string workload;  // "Deployment/web", "StatefulSet/db/0"
  std::string pod_uid;   // it was taken of
  std::string heir_uid;  // of the pod that claimed it, unless that is the first
  WallTime at{};         // when it was done
  std::optional<Duration> ttl;
  int64_t bytes = 0;  // status.size.stored
  bool manual = false;
  bool replica = false;    // its pod had no ordinal that told it from the others of its workload
  bool under_way = false;  // neither Ready nor Failed
  bool leaving = false;    // being deleted
  bool good = false;       // Ready, and its state is not its own pod's past
  bool spent = false;      // never to be restored: Failed, or reclaimed
  std::string cut;         // id of the whole cut that it is of: its checkpoints stay or go together
  bool broken = false;     // of a cut of which another one is gone: never to be restored
  bool damaged = false;    // the store cannot read it any more: not good, and counted apart
  bool pinned = false;
  bool holds_pod = false;  // its pod is frozen, or an eviction is answered from it
  bool in_use = false;     // claimed by a pod that does not run yet
  bool awaited = false;    // a pod may still come that goes on from it
  bool workload_exists = false;
  std::optional<WallTime> orphaned;  // since when its workload is known to be gone
};

struct Seen {
  std::vector<Subject> subjects;
  std::map<std::string, Rules> policies;        // by "namespace/name"
  std::set<std::string> pods;                   // uids of those that exist
  std::map<std::string, int64_t> quotas;        // of namespaces that have one, in bytes
  std::map<std::string, int64_t> excess_bytes;  // what has to go from the volumes of stores that are too full; needs all namespaces
};

enum class Keep {
  kPinned,
  kUnderWay,
  kHoldsPod,
  kClaimed,
  kLastGood,
  kAwaited,
  kPassedOn,  // whatever the limits say
  kPolicyMissing,
  kTtl,
  kKeepLast,
  kKeepWithin,
  kKeepDaily,
  kDiagnosis,
  kDryRun,
};
inline constexpr Keep kKeeps[] = {Keep::kPinned,     Keep::kUnderWay,  Keep::kHoldsPod,      Keep::kClaimed, Keep::kLastGood,
                                  Keep::kAwaited,    Keep::kPassedOn,  Keep::kPolicyMissing, Keep::kTtl,     Keep::kKeepLast,
                                  Keep::kKeepWithin, Keep::kKeepDaily, Keep::kDiagnosis,     Keep::kDryRun};
std::string_view KeepName(Keep keep);  // "LastGood"
inline bool Protects(Keep keep) { return keep <= Keep::kPassedOn; }

enum class Drop { kTtl, kSuperseded, kOrphaned, kSpent, kMaxBytes, kQuota, kVolume };
inline constexpr Drop kDrops[] = {Drop::kTtl,      Drop::kSuperseded, Drop::kOrphaned, Drop::kSpent,
                                  Drop::kMaxBytes, Drop::kQuota,      Drop::kVolume};
std::string_view DropName(Drop drop);  // "Superseded"

// `subject`: of Plan::subjects. Texts are for people, and have no times that pass: equal worlds give equal texts.
struct Removal {
  const Subject* subject = nullptr;
  Drop why{};
  std::string text;
};
struct Stay {
  const Subject* subject = nullptr;
  Keep keep{};
  std::string text;
  std::optional<Drop> would;  // but for dryRun it would go
  std::string would_text;
};

// A limit that cannot be met, because what is left is protected.
struct Unmet {
  Drop limit{};
  std::string ns, policy, store;  // empty where the limit has none
  int64_t bytes = 0;              // beyond it
};

struct Plan {
  Plan() = default;
  Plan(Plan&&) = default;  // the subjects stay where they are
  Plan& operator=(Plan&&) = default;
  std::vector<Subject> subjects;
  std::vector<Removal> drops;                     // in the order in which they are to be made
  std::vector<Stay> stays;                        // by namespace, newest first; what is being deleted already is in neither
  std::vector<const Subject*> orphaned, adopted;  // to be marked as without a workload, and as with one again
  std::vector<Unmet> unmet;
  std::optional<WallTime> next;  // when time alone changes the plan
};
Plan MakePlan(Seen seen, WallTime now);

// Of a store's volume, in bytes.
struct VolumeUse {
  int64_t live = 0;   // what checkpoints need
  int64_t packs = 0;  // with what is dead and not collected yet
  int64_t room = 0;   // what may still be added before sessions are refused
};
struct VolumeMarks {
  int high_percent = 85, low_percent = 75;  // of packs + room; high 0: the volume is nobody's concern
};
// What has to go: nothing below the high mark, else what is above the low one. `emptying`: it was above the high one, and has not come down
// to the low one yet.
int64_t Excess(const VolumeUse& use, const VolumeMarks& marks, bool emptying);

}  // namespace holdfast::reconcilers::restorepolicy
