#include "reconcilers/context.h"

#include "base/fault_point.h"
#include "base/log.h"

namespace holdfast::reconcilers {
namespace {

constexpr Duration kWriteTimeout = std::chrono::seconds(10);
constexpr Duration kReadTimeout = std::chrono::seconds(5);

bool MayPass(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kResourceExhausted || code == Code::kCancelled;
}

}  // namespace

kube::CallOptions Calls(std::stop_token stop, Duration timeout) {
  kube::CallOptions options;
  options.timeout = timeout;
  options.stop = std::move(stop);
  return options;
}

void Announce(const Context& context, const Notice& notice, const kube::Pod* pod, const api::Checkpoint* checkpoint) {
  auto send = [&](const kube::ObjectReference& about) {
    if (notice.warning) {
      context.events.Warning(about, notice.reason, "Holdfast", notice.note);
    } else {
      context.events.Normal(about, notice.reason, "Holdfast", notice.note);
    }
  };
  if (notice.on_pod && pod != nullptr) send(kube::ObjectReference::To(kube::Pod::kResource, pod->meta));
  if (notice.on_checkpoint && checkpoint != nullptr) send(kube::ObjectReference::To(api::Checkpoint::kResource, checkpoint->meta));
}

Status AnnounceOnce(const Context& context, const Notice& notice, const std::string& id, const kube::Pod* pod,
                    const api::Checkpoint* checkpoint, std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = kWriteTimeout;
  options.stop = std::move(stop);
  auto send = [&](const kube::ObjectReference& about) {
    const auto once = notice.warning ? &kube::EventRecorder::WarnOnce : &kube::EventRecorder::NormalOnce;
    const Status sent =
        (context.events.*once)(about, id, notice.reason, "Holdfast", notice.note, options).With("the event " + notice.reason);
    if (sent.ok() || MayPass(sent.code())) return sent;
    LogError("an event that cannot be sent",
             {{"about", about.ns + "/" + about.name}, {"reason", notice.reason}, {"note", notice.note}, {"error", sent.ToString()}});
    return Status::Ok();
  };
  if (notice.on_pod && pod != nullptr) HF_RETURN_IF_ERROR(send(kube::ObjectReference::To(kube::Pod::kResource, pod->meta)));
  if (!notice.on_checkpoint || checkpoint == nullptr) return Status::Ok();
  return send(kube::ObjectReference::To(api::Checkpoint::kResource, checkpoint->meta));
}

Json Locked(Json patch, const kube::ObjectMeta& seen) {
  patch["metadata"]["uid"] = seen.uid;
  patch["metadata"]["resourceVersion"] = seen.resource_version;
  return patch;
}

Result<CheckpointPtr> PatchStatus(const Context& context, const api::Checkpoint& seen, const Json& patch, std::stop_token stop) {
  Json locked = Locked(patch, seen.meta);
  if (context.term != 0) locked["status"]["term"] = context.term;
  kube::CallOptions options;
  options.subresource = "status";
  options.timeout = kWriteTimeout;
  options.stop = stop;
  auto written = context.client.Patch(api::Checkpoint::kResource, seen.meta.ns, seen.meta.name, kube::PatchType::kMerge, locked, options);
  if (!written.ok()) return written.status().With("status of Checkpoint " + seen.meta.Key());
  HF_FAULT_POINT("controller.wrote");
  if (context.observe) context.observe(*written);
  return std::make_shared<const api::Checkpoint>(api::Checkpoint::FromJson(*written));
}

Result<CheckpointPtr> WriteClaim(const Context& context, const api::Checkpoint& seen, const std::optional<api::Claim>& claim,
                                 std::stop_token stop) {
  const Json value = claim ? api::ToJson(*claim) : Json(nullptr);
  return PatchStatus(context, seen, {{"status", {{"claim", value}}}}, stop);
}

Result<PodPtr> ReadPod(const Context& context, const std::string& ns, const std::string& name, std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = kReadTimeout;
  options.stop = stop;
  auto pod = context.client.Get<kube::Pod>(ns, name, options);
  if (pod.ok()) return std::make_shared<const kube::Pod>(std::move(*pod));
  if (pod.status().code() == Code::kNotFound) return PodPtr();
  return pod.status().With("pod " + ns + "/" + name);
}

}  // namespace holdfast::reconcilers
