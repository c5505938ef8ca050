#include "agent/stopper.h"

#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {

// Its intent, by which holdfast-runc finds the dump.
bool Stopper::DumpHas(const runtime::StopQuestion& question) const {
  Result<std::string> text = ReadFile(layout_.IntentFile(question.container_id), 64 << 10);
  Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
  Result<runtime::Intent> intent = json.ok() ? runtime::Intent::FromJson(*json) : Result<runtime::Intent>(json.status());
  return intent.ok() && intent->final;
}

std::optional<std::string> Stopper::Known(const runtime::StopQuestion& question, bool* asked_for) const {
  Result<kube::Pod> pod = cluster_.CachedPod(question.ns, question.pod);
  if (pod.ok() && pod->meta.uid == question.pod_uid) {
    if (std::string why = pod->meta.Annotation(api::kLetGo); !why.empty()) return why;
  }
  *asked_for = false;
  for (const api::Checkpoint& c : cluster_.CachedCheckpoints()) {
    if (c.spec.pod_uid != question.pod_uid || !c.spec.final || c.meta.terminating()) continue;
    if (c.status.phase == api::Phase::kFailed && c.spec.trigger == api::Trigger::kStop) {
      return "checkpoint " + c.meta.name + " failed" + (c.Ready() != nullptr ? ": " + c.Ready()->message : std::string());
    }
    *asked_for |= !c.done();
  }
  return std::nullopt;
}

runtime::StopAnswer Stopper::Answer(const runtime::StopQuestion& question, std::stop_token stop) {
  auto signal = [&](const std::string& why) { return runtime::StopAnswer{"signal", why}; };
  if (!options_.enabled) return signal("checkpoints on stop are off");
  const MonoTime asked = clock_.Mono();
  // The kubelet restarts a container in place, or ends a pod on its own: the pod has no deletion time then. Its watch may be faster than
  // ours, so the API server is asked.
  Result<kube::Pod> pod = cluster_.CachedPod(question.ns, question.pod);
  if (!pod.ok() || pod->meta.uid != question.pod_uid || !pod->meta.terminating()) pod = cluster_.GetPod(question.ns, question.pod);
  if (!pod.ok()) return signal("the pod cannot be read: " + pod.status().message());
  if (pod->meta.uid != question.pod_uid || !pod->meta.terminating()) return signal("the pod is not being deleted");
  std::string why = "the controller did not say in time whether its state is kept";
  bool asked_for = false;
  while (true) {
    if (DumpHas(question)) {
      LogInfo("a pod is dumped in place of its signal", {{"pod", pod->meta.Key()}, {"container", question.container}});
      return {"dump", ""};
    }
    if (auto known = Known(question, &asked_for)) {
      why = *known;
      break;
    }
    const Duration patience = options_.patience + (asked_for ? options_.dump_begins : Duration(0));
    if (clock_.Mono() - asked >= patience || !clock_.Sleep(options_.look_every, stop)) break;
  }
  LogInfo("a signal is passed on", {{"pod", pod->meta.Key()}, {"container", question.container}, {"why", why}});
  return signal(why);
}

}  // namespace holdfast::agent
