#include "agent/warden.h"

#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr char kFenced[] = "fenced";  // in the place of a checkpoint's uid

const kube::Pod* PodOf(const std::vector<kube::Pod>& pods, const std::string& uid) {
  auto found = std::find_if(pods.begin(), pods.end(), [&](const kube::Pod& pod) { return pod.meta.uid == uid; });
  return found == pods.end() ? nullptr : &*found;
}

// A checkpoint of pod `uid` from which another pod goes on. One that a user started beside it takes nothing from it, but then the pod is
// neither gone nor leaving.
const api::Checkpoint* GivenAway(const std::vector<api::Checkpoint>& checkpoints, const std::string& uid) {
  for (const api::Checkpoint& c : checkpoints) {
    if (c.spec.pod_uid == uid && c.status.claim && c.status.claim->pod_uid != uid) return &c;
  }
  return nullptr;
}

bool Answered(const Status& status) {
  return status.code() != Code::kUnavailable && status.code() != Code::kDeadlineExceeded && status.code() != Code::kCancelled;
}

}  // namespace

std::vector<ReplacedPod> FindReplaced(const std::vector<NodeContainer>& containers, const std::vector<kube::Pod>& pods,
                                      const std::vector<api::Checkpoint>& checkpoints, bool cut_off, WallTime now) {
  std::map<std::string, ReplacedPod> found;
  for (const NodeContainer& container : containers) {
    if (!container.ours) continue;
    const kube::Pod* pod = PodOf(pods, container.pod_uid);
    if (pod != nullptr && !pod->meta.terminating()) continue;
    const api::Checkpoint* given = GivenAway(checkpoints, container.pod_uid);
    // The usual end of a drain is the kubelet's: that pod is frozen.
    if (given != nullptr && given->spec.final && !cut_off) given = nullptr;
    // The deletion's own time includes the pod's grace.
    const bool overdue = pod == nullptr || ParseTime(pod->meta.deletion_timestamp).value_or(now) < now;
    if (given == nullptr && !(cut_off && overdue)) continue;
    ReplacedPod& entry = found[container.pod_uid];
    entry.uid = container.pod_uid;
    entry.ns = container.ns;
    entry.name = container.pod;
    entry.why = given != nullptr ? "pod " + given->status.claim->pod_name + " goes on from its Checkpoint " + given->meta.name
                                 : "it was deleted while this node was out of contact";
    entry.containers.push_back(container.id);
  }
  std::vector<ReplacedPod> out;
  out.reserve(found.size());
  for (auto& [uid, pod] : found) out.push_back(std::move(pod));
  return out;
}

Warden::Warden(WardenOptions options, Layout layout, Node& node, Cluster& cluster, Clock& clock)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      node_(node),
      cluster_(cluster),
      clock_(clock),
      last_contact_(clock.Mono()),
      next_probe_(clock.Mono()) {}

void Warden::Run(std::stop_token stop) {
  do {
    Look();
  } while (clock_.Sleep(options_.look_every, stop));
}

void Warden::Look() {
  if (clock_.Mono() >= next_probe_) {
    const bool answered = Answered(cluster_.Probe());
    const MonoTime now = clock_.Mono();
    if (answered && !contact_) {
      // An agent that has just begun does not know for how long nobody looked.
      const bool cut_off = started_ || now - last_contact_ >= options_.cut_off_after;
      Status swept = Sweep(cut_off);
      if (swept.ok()) {
        if (cut_off && !started_) {
          LogWarning("in contact with the API server again",
                     {{"seconds", std::chrono::duration_cast<std::chrono::seconds>(now - last_contact_).count()}});
        }
        contact_ = true;
        started_ = false;
      } else {
        LogWarning("cannot tell yet which pods of this node were replaced", {{"error", swept.message()}});
      }
    } else if (!answered && contact_) {
      LogWarning("the API server does not answer; pods run on, and are looked at when it does", {});
      contact_ = false;
    }
    if (contact_) last_contact_ = now;
    next_probe_ = now + (contact_ ? options_.probe_every : options_.probe_lost_every);
  }
  const std::vector<api::Checkpoint> checkpoints = cluster_.CachedCheckpoints();
  if (contact_ && NewClaims(checkpoints)) {
    Status swept = Sweep(false);
    if (!swept.ok()) {
      LogWarning("cannot tell yet which pods of this node were replaced", {{"error", swept.message()}});
      claims_.clear();
    }
  }
  if (contact_) Confirm(checkpoints);
  LetGo();
}

Status Warden::Sweep(bool cut_off) {
  // First what runs: a container that is started after this look belongs to a pod that the kubelet has just been given.
  HF_ASSIGN_OR_RETURN(std::vector<NodeContainer> containers, node_.Containers());
  HF_ASSIGN_OR_RETURN(std::vector<kube::Pod> pods, cluster_.ListPods());
  HF_ASSIGN_OR_RETURN(std::vector<api::Checkpoint> checkpoints, cluster_.ListCheckpoints());
  Status first;
  for (const ReplacedPod& pod : FindReplaced(containers, pods, checkpoints, cut_off, clock_.Wall())) {
    Status done = End(pod);
    if (!done.ok() && first.ok()) first = done.With("pod " + pod.ns + "/" + pod.name);
  }
  return first;
}

Status Warden::End(const ReplacedPod& pod) {
  // A kubelet that does not know yet would start its containers anew: with this file holdfast-runc refuses.
  if (!Exists(layout_.PodFile(pod.uid))) {
    HF_RETURN_IF_ERROR(WriteFileDurably(layout_.PodFile(pod.uid), DumpJson({{"checkpoint_uid", kFenced}})));
    ended_.insert(pod.uid);
  }
  HF_RETURN_IF_ERROR(node_.End(pod.containers));
  const std::string note = "ended on node " + options_.node_name + ": " + pod.why;
  cluster_.PodEvent(true, pod.ns, pod.name, pod.uid, "Fenced", note);
  LogWarning("a pod that was replaced was ended", {{"pod", pod.ns + "/" + pod.name}, {"pod_uid", pod.uid}, {"why", pod.why}});
  return Status::Ok();
}

// Does another pod go on from a checkpoint since the last look?
bool Warden::NewClaims(const std::vector<api::Checkpoint>& checkpoints) {
  std::set<std::string> claimed;
  for (const api::Checkpoint& c : checkpoints) {
    if (!c.spec.final && c.status.claim && c.status.claim->pod_uid != c.spec.pod_uid) claimed.insert(c.meta.uid);
  }
  const bool fresh = std::any_of(claimed.begin(), claimed.end(), [&](const std::string& uid) { return !claims_.contains(uid); });
  claims_ = std::move(claimed);
  return fresh;
}

void Warden::Confirm(const std::vector<api::Checkpoint>& checkpoints) {
  std::optional<std::vector<NodeContainer>> containers;
  for (const api::Checkpoint& c : checkpoints) {
    if (c.spec.final || c.spec.trigger != api::Trigger::kInterval || c.status.phase != api::Phase::kReady || c.status.claim) continue;
    if (kube::FindCondition(c.status.conditions, api::kPodEnded) != nullptr) continue;
    auto gone = [&](const Result<kube::Pod>& pod) {
      return pod.ok() ? pod->meta.uid != c.spec.pod_uid : pod.status().code() == Code::kNotFound;
    };
    if (!gone(cluster_.CachedPod(c.meta.ns, c.spec.pod_name)) || !gone(cluster_.GetPod(c.meta.ns, c.spec.pod_name))) continue;
    if (!containers) {
      Result<std::vector<NodeContainer>> seen = node_.Containers();
      if (!seen.ok()) return;
      containers = std::move(*seen);
    }
    const bool left =
        std::any_of(containers->begin(), containers->end(), [&](const NodeContainer& own) { return own.pod_uid == c.spec.pod_uid; });
    if (left) continue;
    std::vector<api::Condition> conditions = c.status.conditions;
    kube::SetCondition(conditions,
                       {.type = api::kPodEnded,
                        .status = "True",
                        .reason = "NothingLeft",
                        .message = "no container of pod " + c.spec.pod_name + " is left on node " + options_.node_name,
                        .observed_generation = c.meta.generation},
                       clock_.Wall());
    Status patched = cluster_.PatchStatus(c.meta.ns, c.meta.name, c.meta.uid, {{"status", {{"conditions", api::ToJson(conditions)}}}});
    if (!patched.ok() && patched.code() != Code::kNotFound)
      LogWarning("cannot say that a pod has ended", {{"checkpoint", c.meta.Key()}, {"error", patched.message()}});
  }
}

// The kubelet has done with it: nothing will be started in it any more.
void Warden::LetGo() {
  for (auto at = ended_.begin(); at != ended_.end();) {
    if (Exists(layout_.kubelet + "/pods/" + *at)) {
      ++at;
      continue;
    }
    unlink(layout_.PodFile(*at).c_str());
    at = ended_.erase(at);
  }
}

}  // namespace holdfast::agent
