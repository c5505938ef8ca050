// Finalizers that cannot remove each other: each is added and removed by a JSON patch that tests what it changes, so that two controllers
// that write at the same time cannot undo each other's. The one that loses gets kConflict and looks again.
//
// What to rely on: the deletion of an object does not complete before a Cleanup that began after each Apply has succeeded. Apply and
// Cleanup may both run several times; Cleanup may run though Apply never did.
#pragma once

#include <functional>
#include <optional>

#include "kube/client.h"
#include "kube/controller.h"

namespace holdfast::kube {

enum class FinalizerStep {
  kAdd,      // before anything outside is touched; the event of that brings the object back
  kApply,    // it is in place
  kCleanup,  // the object is being deleted and waits for us
  kNothing,  // it is being deleted and does not, or not any more
};
FinalizerStep NextFinalizerStep(const ObjectMeta& meta, const std::string& finalizer);

// JSON patches; nothing when there is nothing to change.
std::optional<Json> AddFinalizerPatch(const ObjectMeta& meta, const std::string& finalizer);
std::optional<Json> RemoveFinalizerPatch(const ObjectMeta& meta, const std::string& finalizer);

// The object after the write (null when there was nothing to change). kConflict: it is not as in `meta` any more. Removing from an object
// that is gone is OK.
Result<Json> AddFinalizer(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                          const CallOptions& options = {});
Result<Json> RemoveFinalizer(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                             const CallOptions& options = {});

// One reconcile of an object under a finalizer: does what NextFinalizerStep says.
Result<ReconcileResult> Finalized(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                                  const std::function<Result<ReconcileResult>()>& apply,
                                  const std::function<Result<ReconcileResult>()>& cleanup, const CallOptions& options = {});

}  // namespace holdfast::kube
