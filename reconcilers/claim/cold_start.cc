#include "reconcilers/claim/cold_start.h"

namespace holdfast::reconcilers::claim {
namespace {

// As long as the API server keeps events (--event-ttl): told after that, it would be told again at every change of leaders.
constexpr Duration kNews = std::chrono::hours(1);

struct News {
  const char* id;
  const char* reason;
  const std::string& why;
  WallTime at;
};

Status Tell(const Context& context, const News& news, const kube::Pod& pod, const CheckpointPtr& checkpoint, std::stop_token stop) {
  if (context.clock.Wall() - news.at >= kNews) return Status::Ok();
  return AnnounceOnce(context, Notice{.warning = true, .reason = news.reason, .note = news.why}, std::string(news.id) + "-" + pod.meta.uid,
                      &pod, checkpoint.get(), std::move(stop));
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
  CheckpointPtr c = cold.checkpoint.empty() ? nullptr : context.view.GetCheckpoint(pod.meta.ns, cold.checkpoint);
  return Tell(context, {"cold", "ColdStart", cold.why, cold.at}, pod, c, std::move(stop));
}

Status TellOlderState(const Context& context, const OlderState& older, const kube::Pod& pod, std::stop_token stop) {
  return Tell(context, {"older", "StateIsOlder", older.why, older.at}, pod, older.checkpoint, std::move(stop));
}

}  // namespace holdfast::reconcilers::claim
