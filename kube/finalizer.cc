#include "kube/finalizer.h"

#include <algorithm>

#include "kube/json_patch.h"

namespace holdfast::kube {
namespace {

constexpr char kFinalizers[] = "/metadata/finalizers";

std::optional<size_t> IndexOf(const ObjectMeta& meta, const std::string& finalizer) {
  auto found = std::find(meta.finalizers.begin(), meta.finalizers.end(), finalizer);
  if (found == meta.finalizers.end()) return std::nullopt;
  return static_cast<size_t>(found - meta.finalizers.begin());
}

// An object of the same name is not the one that was meant.
JsonPatch OfThis(const ObjectMeta& meta) {
  JsonPatch patch;
  if (!meta.uid.empty()) patch.Test("/metadata/uid", meta.uid);
  return patch;
}

Result<Json> Send(Client& client, const Resource& resource, const ObjectMeta& meta, const Json& patch, const CallOptions& options) {
  Result<Json> written = client.Patch(resource, meta.ns, meta.name, PatchType::kJson, patch, options);
  // 422: a test did not hold, or a finalizer may not be added any more because a deletion has begun. The patch itself is sound.
  if (written.status().code() == Code::kInvalidArgument)
    return Status(Code::kConflict, "the finalizers of " + resource.plural + " " + meta.Key() + " changed: " + written.status().message());
  return written;
}

}  // namespace

FinalizerStep NextFinalizerStep(const ObjectMeta& meta, const std::string& finalizer) {
  const bool there = IndexOf(meta, finalizer).has_value();
  if (meta.terminating()) return there ? FinalizerStep::kCleanup : FinalizerStep::kNothing;
  return there ? FinalizerStep::kApply : FinalizerStep::kAdd;
}

std::optional<Json> AddFinalizerPatch(const ObjectMeta& meta, const std::string& finalizer) {
  if (IndexOf(meta, finalizer)) return std::nullopt;
  JsonPatch patch = OfThis(meta);
  // The API server does not look for doubles, so both cases test the whole list.
  if (meta.finalizers.empty()) {
    patch.Test(kFinalizers, nullptr).Add(kFinalizers, Json::array({finalizer}));
  } else {
    patch.Test(kFinalizers, meta.finalizers).Add(std::string(kFinalizers) + "/-", finalizer);
  }
  return patch.json();
}

std::optional<Json> RemoveFinalizerPatch(const ObjectMeta& meta, const std::string& finalizer) {
  const std::optional<size_t> index = IndexOf(meta, finalizer);
  if (!index) return std::nullopt;
  const std::string path = std::string(kFinalizers) + "/" + std::to_string(*index);
  return OfThis(meta).Test(path, finalizer).Remove(path).json();
}

Result<Json> AddFinalizer(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                          const CallOptions& options) {
  const std::optional<Json> patch = AddFinalizerPatch(meta, finalizer);
  return patch ? Send(client, resource, meta, *patch, options) : Result<Json>(Json());
}

Result<Json> RemoveFinalizer(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                             const CallOptions& options) {
  const std::optional<Json> patch = RemoveFinalizerPatch(meta, finalizer);
  if (!patch) return Json();
  Result<Json> written = Send(client, resource, meta, *patch, options);
  return written.status().code() == Code::kNotFound ? Result<Json>(Json()) : written;
}

Result<ReconcileResult> Finalized(Client& client, const Resource& resource, const ObjectMeta& meta, const std::string& finalizer,
                                  const std::function<Result<ReconcileResult>()>& apply,
                                  const std::function<Result<ReconcileResult>()>& cleanup, const CallOptions& options) {
  switch (NextFinalizerStep(meta, finalizer)) {
    case FinalizerStep::kAdd:
      HF_RETURN_IF_ERROR(AddFinalizer(client, resource, meta, finalizer, options).status());
      return ReconcileResult{};
    case FinalizerStep::kApply:
      return apply();
    case FinalizerStep::kCleanup: {
      Result<ReconcileResult> done = cleanup();
      // Not done yet: the finalizer stays, and the object with it.
      if (!done.ok() || done->requeue_after) return done;
      HF_RETURN_IF_ERROR(RemoveFinalizer(client, resource, meta, finalizer, options).status());
      return done;
    }
    case FinalizerStep::kNothing:
      break;
  }
  return ReconcileResult{};
}

}  // namespace holdfast::kube
