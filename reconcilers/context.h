// What every reconciler stands on: the caches, a client for writes, events, time. Owned by the process; thread-safe.
#pragma once

#include "kube/client.h"
#include "kube/controller.h"
#include "kube/events.h"
#include "reconcilers/text.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers {

struct Context {
  const View& view;
  kube::Client& client;
  kube::EventRecorder& events;
  Clock& clock;
  // Puts what a write returned into the cache: the next look sees it.
  std::function<void(const Json& checkpoint)> observe;
  int64_t term = 0;  // of leadership: goes with every write that makes somebody act (base/fence.h); 0: there is no election
  // Has reconcilers/stop look at a pod (namespace/name). Unset: what something else than a drain stops is not checkpointed.
  std::function<void(const std::string& pod)> decide_stop{};
};

// So long an answer of the API server is waited for.
inline constexpr Duration kAnswer = std::chrono::seconds(10);
// Options of a request to it.
kube::CallOptions Calls(std::stop_token stop, Duration timeout = kAnswer);

// Either may be null.
void Announce(const Context& context, const Notice& notice, const kube::Pod* pod, const api::Checkpoint* checkpoint);

// Events that have to come through, once each, whoever may have sent them before: `id` says of what they are. An error when they may come
// through later; what the API server refuses for good is logged, since nobody shall wait for it.
Status AnnounceOnce(const Context& context, const Notice& notice, const std::string& id, const kube::Pod* pod,
                    const api::Checkpoint* checkpoint, std::stop_token stop);

// status.claim := `claim`, or nothing, if the Checkpoint is still as we saw it. kConflict: it is not.
Result<CheckpointPtr> WriteClaim(const Context& context, const api::Checkpoint& seen, const std::optional<api::Claim>& claim,
                                 std::stop_token stop);
// `patch` as one that the API server takes only for the very object that was seen, unchanged: by its uid and resourceVersion. Else
// kConflict.
Json Locked(Json patch, const kube::ObjectMeta& seen);
// A merge patch of the status, under the lock that its resourceVersion makes.
Result<CheckpointPtr> PatchStatus(const Context& context, const api::Checkpoint& seen, const Json& patch, std::stop_token stop);

// The pod as the API server has it, or null when there is none. For decisions that a stale cache would get wrong.
Result<PodPtr> ReadPod(const Context& context, const std::string& ns, const std::string& name, std::stop_token stop);

}  // namespace holdfast::reconcilers
