// Groups of pods, and their cuts: the checkpoints of all members of a group, each taken while all of them stood still (docs/groups.md). A
// cut is good as a whole or not at all.
#pragma once

#include <optional>

#include "reconcilers/claims.h"

namespace holdfast::reconcilers::group {

inline constexpr size_t kMaxMembers = 32;  // crds/checkpoint.yaml has it too
// A member that is not frozen so long after another one has failed. Less than frozen ones wait by themselves (agent/freezer.h), so that
// the culprit is named.
inline constexpr Duration kLateAfter = std::chrono::seconds(20);

std::string GroupOf(const kube::Pod& pod);  // holdfast.dev/group; empty: of none
// Ended, or about to.
bool Leaves(const kube::Pod& pod);
// Pods of this group that do not leave, by name.
std::vector<PodPtr> MembersOf(const View& view, const std::string& ns, const std::string& group);
// The name of one that is being deleted and has not ended; empty: there is none.
std::string LeavingOf(const View& view, const std::string& ns, const std::string& group);
// The newest cut of this pod's group for which the pod has a Ready Checkpoint.
api::Cut LastCutOf(const View& view, const kube::Pod& pod);

// The same once they may be dumped: a member that is not, so long after another one was. Less than agent/freezer.h lets them stand still.
inline constexpr Duration kDumpLateAfter = std::chrono::seconds(45);

// A member of a cut as it is now.
struct Member {
  api::CutMember who;
  CheckpointPtr checkpoint;  // null: there is none of this cut, or none yet
  bool gone = false;         // the API server has none of this cut, or one that is not of it
  PodPtr pod;                // null: the one that is to be kept is gone
  CheckpointPtr other;       // another one that has its pod in hand
};

struct Trouble {
  std::string pod, reason, message;  // the member that is why, and why: reason and message of its Checkpoint
};
// Why a cut cannot become whole any more. `members`: the opener first.
std::optional<Trouble> TroubleOf(const std::vector<Member>& members, WallTime now);
// All members stand still, so all of them may be dumped.
bool AllFrozen(const std::vector<Member>& members);
// All members are dumped, so all of them may go on.
bool AllDumped(const std::vector<Member>& members);

// Whether pods may go on from the cut of a checkpoint.
struct Wholeness {
  enum { kWhole, kUnderWay, kDamaged, kBroken } state = kWhole;  // kBroken: for ever. No cut at all is whole
  std::string why;                                               // not; for people
};
Wholeness WholenessOf(const View& view, const api::Checkpoint& checkpoint);
// The member that runs, or is about to, with a state from beyond the cut of `checkpoint`, so that `pod` must not go back to it alone: of
// the group's pods that do not leave each must have its state from this very cut, or wait for one as `pod` does. Empty: there is none.
std::string GoneBeyond(const View& view, const api::Checkpoint& checkpoint, const kube::Pod& pod);

// One of the group's pods that may still run, though it is being deleted or gone: whoever is restored beside it would speak to it.
struct Ending {
  std::string pod;
  NodePtr node;  // never null
  bool gone = false;
};
// Of the pods that end, and of the members of the cut of `checkpoint`, without `pod` itself. Nothing: all have ended.
std::optional<Ending> EndingBeside(const View& view, const api::Checkpoint& checkpoint, const kube::Pod& pod);

}  // namespace holdfast::reconcilers::group
