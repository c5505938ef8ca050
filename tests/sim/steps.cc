// Faults that a plan says by their place (Step in world.h). Places:
//
//   begin                           all pods run, and somebody leads; of no pod, so what is done to a node is done to each
//   pod.runs                        the same, of each pod, once
//   pod.made .placed .ends .gone    a pod is created, given a node, asked to end, not there any more
//   checkpoint.PHASE                the status of a pod's Checkpoint says so: checkpoint.Assigned, .Dumping, .Ready, .Failed, …
//   checkpoint.claimed              it is given to a pod: of the pod that it is given to
//   restore.OUTCOME                 status.restores says so of a pod: restore.Started, .Restored, .Failed
//   CONTAINER.TURN                  main.starts, main.cold, side.restored, .frozen, .thawed, .ends
//
// A place is reached in the midst of the turn that does it. A process that is to die or to be cut off there is so at once, before it
// hears an answer; all else comes with the next turn, or after as many seconds as the step says.
#include <filesystem>

#include "tests/sim/play.h"

namespace holdfast::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr int kNode = 1;  // it is done to the pod's node, or to each where there is no pod
// What can be, and to whom. The amount is in seconds where nothing else is said.
const std::map<std::string, int>& Faults() {
  static const std::map<std::string, int> kFaults = {
      {"drain", 0},             // its node is drained, and used again
      {"delete", 0},            // somebody deletes the pod
      {"force", 0},             // by force
      {"leader", 0},            // the leading controller dies
      {"standby-deaf", 0},      // news do not come to the controllers that do not lead
      {"no-webhook", 0},        // no webhook answers
      {"kubernetes", 0},        // its controllers and its scheduler do nothing
      {"store", 0},             // is out of reach
      {"store-back", 0},        // is not any more
      {"sessions", 0},          // a node that is no more has left as many sessions in the store as it could (store=real)
      {"agent", kNode},         // dies
      {"agent-deaf", kNode},    // no news come to it
      {"cut", kNode},           // its agent does not reach the API server, nor does the next one
      {"kubelet", kNode},       // of the node does nothing
      {"power", kNode},         // the node has none
      {"clock", kNode},         // of the node is set by so much, for good
      {"image-main", kNode},    // cannot be pulled
      {"image-side", kNode},    // cannot be pulled
      {"spoil", kNode},         // what was fetched for restores on the node cannot be read
      {"failing-dump", kNode},  // the next one on the node fails
  };
  return kFaults;
}

Duration Usual(const Step& step) { return seconds(step.amount == 0 ? 30 : step.amount); }

std::string Key(const std::string& pod) { return std::string(kUserNamespace) + "/" + pod; }

}  // namespace

bool IsFault(const std::string& name) { return Faults().contains(name); }

void World::PlaySteps() {
  (void)turns_.Await([this] { return NotWell().empty(); }, turns_.Mono() + minutes(5));
  Reach("begin", "");
  for (const std::string& pod : kubernetes_.PodNames()) Reach("pod.runs", pod);
  (void)turns_.Await([this] { return stepped_ == plan_.at.size(); }, turns_.Mono() + minutes(30));
}

void World::Reach(const std::string& place, const std::string& pod) {
  for (const Step& step : plan_.at) {
    if (step.place != place || (!step.workload.empty() && !pod.starts_with(step.workload + "-"))) continue;
    if (++reached_[&step] == step.nth) Act(step, pod);
  }
}

void World::ReachByChange(const std::string& collection, const ApiServer::Change& change) {
  if (plan_.at.empty()) return;
  const std::string name = GetString(*change.now, {"metadata", "name"}), type = change.type;
  const Json none, &before = change.before ? *change.before : none;
  auto comes = [&](JsonPath path) { return GetString(before, path).empty() && !GetString(*change.now, path).empty(); };
  if (collection == "pods") {
    if (type == "DELETED") return Reach("pod.gone", name);
    if (type == "ADDED") Reach("pod.made", name);
    if (comes({"spec", "nodeName"})) Reach("pod.placed", name);
    if (comes({"metadata", "deletionTimestamp"})) Reach("pod.ends", name);
  }
  if (collection != "holdfast.dev/checkpoints" || type == "DELETED") return;
  const std::string phase = GetString(*change.now, {"status", "phase"});
  if (phase != GetString(before, {"status", "phase"})) Reach("checkpoint." + phase, GetString(*change.now, {"spec", "podRef", "name"}));
  const std::string claim = GetString(*change.now, {"status", "claim", "podName"});
  if (!claim.empty() && claim != GetString(before, {"status", "claim", "podName"})) Reach("checkpoint.claimed", claim);
  const std::vector<Json> restores = GetArray(*change.now, {"status", "restores"});
  for (size_t i = GetArray(before, {"status", "restores"}).size(); i < restores.size(); ++i)
    Reach("restore." + GetString(restores[i], {"outcome"}), GetString(restores[i], {"podName"}));
}

// `node`: where the pod is, or was.
void World::Act(const Step& step, const std::string& pod) {
  auto node_of = [this, pod] {
    const ApiServer::Object there = server_.Find("pods", Key(pod));
    return there ? GetString(*there, {"spec", "nodeName"}) : "";
  };
  const std::string was_on = node_of();
  const bool at_once = step.after == Duration(0);
  auto on = [this](const std::string& node, const std::function<void(size_t)>& act) {
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (node.empty() || machines_[i]->name() == node) act(i);
    }
  };
  auto stop = [this, on, step](const std::string& node) {
    on(node, [this, &step](size_t i) {
      if (step.fault == "cut") cut_until_[i] = turns_.Mono() + Usual(step);
      if (agents_[i] == nullptr || agents_[i]->dead()) return;
      if (step.fault == "cut") CutOff(i, Usual(step));
      if (step.fault == "agent" || step.fault == "power") agents_[i]->Kill();
    });
    if (step.fault == "leader" && leader_ != kReplicas && controllers_[leader_] != nullptr && !controllers_[leader_]->dead())
      controllers_[leader_]->Kill();
  };
  if (at_once) stop(was_on);
  After(step.after, [this, step, pod, was_on, node_of, on, stop, at_once] {
    Tell("as planned: " + StepText(step));
    const std::string is_on = node_of(), node = is_on.empty() ? was_on : is_on;
    if (!at_once) stop(node);
    if (Faults().at(step.fault) == kNode) {
      on(node, [this, step](size_t i) { ActOn(i, step); });
    } else {
      ActOnAll(step, pod, node);
    }
    ++stepped_;
  });
}

void World::ActOn(size_t node, const Step& step) {
  Machine& machine = *machines_[node];
  const Duration lasts = Usual(step);
  if (step.fault == "power" && machine.up()) PowerLost(node, lasts);
  if (step.fault == "clock") machine.clock().wrong += seconds(step.amount);
  if (step.fault == "kubelet") kubelet_rests_until_[node] = turns_.Mono() + lasts;
  if (step.fault == "failing-dump") {
    machine.failing_dumps = 1;
    After(lasts, [&machine] { machine.failing_dumps = 0; });
  }
  if (step.fault == "image-main" || step.fault == "image-side") {
    const std::string image = step.fault.substr(6) + ":1";
    machine.missing_images.insert(image);
    After(lasts, [&machine, image] { machine.missing_images.erase(image); });
  }
  if (step.fault == "spoil") {
    std::error_code error;
    std::vector<std::filesystem::path> images;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(machine.layout().state + "/restore", error)) {
      if (entry.path().extension() == ".img") images.push_back(entry.path());
    }
    for (const auto& image : images) std::filesystem::remove(image);
  }
  if (agents_[node] == nullptr || agents_[node]->dead()) return;
  if (step.fault == "agent-deaf") agents_[node]->wire().HearsNothingUntil(turns_.Mono() + lasts);
}

void World::ActOnAll(const Step& step, const std::string& pod, const std::string& node) {
  const Duration lasts = Usual(step);
  if (step.fault == "drain" && !node.empty()) Drain(node);
  const ApiServer::Object there = server_.Find("pods", Key(pod));
  if ((step.fault == "delete" || step.fault == "force") && there) {
    judge_.Discarded(GetString(*there, {"metadata", "uid"}));
    kubernetes_.DeletePod(pod, step.fault == "force");
  }
  if (step.fault == "standby-deaf") {
    for (size_t i = 0; i < kReplicas; ++i) {
      if (i != leader_ && controllers_[i] != nullptr) controllers_[i]->wire().HearsNothingUntil(turns_.Mono() + lasts);
    }
  }
  if (step.fault == "no-webhook") no_webhook_until_ = turns_.Mono() + lasts;
  if (step.fault == "sessions") {
    Random random(plan_.seed);
    store_->Disturb(RealStore::kKindsOfFaults - 1, random);
  }
  if (step.fault == "kubernetes") kubernetes_rests_until_ = turns_.Mono() + lasts;
  if (step.fault == "store-back") store_->Back();
  if (step.fault == "store") {
    store_->Away(turns_.Mono());
    After(lasts, [this] {
      store_->Back();
      Tell("the store answers again");
    });
  }
}

}  // namespace holdfast::sim
