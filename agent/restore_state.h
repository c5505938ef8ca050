// What is known of one pod that is to be restored here, as it stands in restore/<pod uid>.json, and the decisions over it. Pure but for
// Save and Load.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/layout.h"
#include "api/restore_policy.h"
#include "base/json.h"
#include "kube/objects.h"
#include "runtime/protocol.h"

namespace holdfast::agent {

enum class ContainerRestore {
  kPending,   // not asked for yet, or its last try failed
  kTrying,    // holdfast-runc was told to restore it and has not said how it went
  kRestored,  // once; every later create of it starts cold
  kCold,
  kFailed,  // for good, and its policy does not let it start cold
};

struct RestoreContainer {
  ContainerRestore state = ContainerRestore::kPending;
  int attempts = 0;
  std::string id;  // of the last try
  double seconds = 0;
  std::string message;       // of the last failure
  std::string image_digest;  // that it ran; empty: not known
  bool ran = false;          // kFailed: its processes may have run for a moment
};

struct RestoreState {
  enum class Phase { kWaiting, kFetching, kReady, kCold, kFailed };
  std::string pod_uid, ns, pod;
  std::string checkpoint, checkpoint_uid;  // the uid once status.claim gave it to this pod
  std::string from_node, taken_at;
  int64_t frozen_ms = 0;
  int fetch_failures = 0;
  Phase phase = Phase::kWaiting;
  std::string why;  // kCold, kFailed
  api::RestoreOptions options;
  std::map<std::string, RestoreContainer> containers;  // the restorable ones of the checkpoint; known from kReady on
  std::vector<std::string> volumes;                    // names of the checkpoint's emptyDirs
  std::string boot_id;                                 // of the node when its files came here, unsynced; empty: not known
  bool started = false;                                // "Started" stands in status.restores, so a try may have been made
  bool reported = false;                               // how it ended stands there

  Json ToJson() const;
  static Result<RestoreState> FromJson(const Json& json);
  Status Save(const Layout& layout) const;
  static Result<RestoreState> Load(const Layout& layout, const std::string& pod_uid);

  bool settled() const;    // every container was restored, started cold, or failed for good
  bool restored() const;   // settled, and none of them otherwise
  bool failed() const;     // settled, and the pod must not start cold
  double seconds() const;  // the longest restore
  // How often CRIU tried and failed, of the container with most of it, and how that ended the last time; 0 and empty: never.
  int FailedAttempts() const;
  std::string LastFailure() const;
  // Of all that starts cold or has failed for good, for the person who reads it; empty: nothing has.
  std::string WhyNotRestored() const;
};

// Why a pod whose restore failed does not run at all, to be put behind what failed.
std::string MustNotStartCold(const api::RestoreOptions& options);

// True when the pod asks for a restore: our RuntimeClass and a plausible annotation. It is not an authority yet.
bool AsksForRestore(const kube::Pod& pod);
// True when the pod was admitted to wait for a restore, and was then let go without a checkpoint: its init container must be told.
bool WasLetGoCold(const kube::Pod& pod);

struct CreateDecision {
  std::optional<runtime::CreateAnswer> answer;  // nothing: not known yet, ask again when the state has changed
  std::string event;                            // for the pod, when what is answered must not go unseen
};

// What `create` shall do. `previous_restored`: an earlier try succeeded, though its outcome was never told. `image`: the digests of what
// the container is made of; empty: not known. Changes `state` when a try begins or a lost outcome becomes known; the caller saves it before
// it answers.
CreateDecision DecideCreate(RestoreState& state, const kube::Pod& pod, const runtime::CreateQuestion& question, bool previous_restored,
                            const Layout& layout, const std::vector<std::string>& image = {});

// The node was restarted in the middle of a try: whether its processes ran for a moment is not known, so it is not made again.
void EndTryOfAnotherBoot(const RestoreState& state, RestoreContainer& container);

// What the outcome of a try means: the answer for holdfast-runc.
runtime::CreateAnswer DecideOutcome(RestoreState& state, const runtime::RestoreOutcome& outcome);

}  // namespace holdfast::agent
