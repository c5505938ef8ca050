#include "reconcilers/claim/cold_start.h"

#include "base/log.h"

namespace holdfast::reconcilers::claim {
namespace {

// As long as the API server keeps events (--event-ttl): told after that, it would be told again at every change of leaders.
constexpr Duration kNews = std::chrono::hours(1);
constexpr Duration kSendTimeout = std::chrono::seconds(10);

bool MayPass(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kResourceExhausted || code == Code::kCancelled;
}

}  // namespace

std::string ColdStart::ToAnnotation() const {
  Json json = {{"at", FormatTime(at)}, {"why", why}};
  if (!checkpoint.empty()) json["checkpoint"] = checkpoint;
  return DumpJson(json);
}

std::optional<ColdStart> ColdStart::Of(const kube::Pod& pod) {
  auto json = ParseJson(pod.meta.Annotation(api::kRestoreSkipped));
  if (!json.ok()) return std::nullopt;
  const auto at = ParseTime(GetString(*json, {"at"}));
  if (!at) return std::nullopt;
  return ColdStart{*at, GetString(*json, {"why"}), GetString(*json, {"checkpoint"})};
}

Status TellColdStart(const Context& context, const ColdStart& cold, const kube::Pod& pod, std::stop_token stop) {
  const WallTime now = context.clock.Wall();
  if (now - cold.at >= kNews) return Status::Ok();
  kube::CallOptions options;
  options.timeout = kSendTimeout;
  options.stop = std::move(stop);
  const std::string id = "cold-" + pod.meta.uid;
  auto send = [&](const kube::ObjectReference& about) {
    const Status sent = context.events.WarnOnce(about, id, "ColdStart", "Holdfast", cold.why, options).With("the event ColdStart");
    if (sent.ok() || MayPass(sent.code())) return sent;
    LogError("a pod starts cold, and no event says so", {{"pod", pod.meta.Key()}, {"why", cold.why}, {"error", sent.ToString()}});
    return Status::Ok();
  };
  HF_RETURN_IF_ERROR(send(kube::ObjectReference::To(kube::Pod::kResource, pod.meta)));
  CheckpointPtr c = cold.checkpoint.empty() ? nullptr : context.view.GetCheckpoint(pod.meta.ns, cold.checkpoint);
  return c ? send(kube::ObjectReference::To(api::Checkpoint::kResource, c->meta)) : Status::Ok();
}

}  // namespace holdfast::reconcilers::claim
