#include "controller/pod_webhook.h"

#include <algorithm>

#include "kube/json_patch.h"
#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/support.h"

namespace holdfast::controller {
namespace {

using namespace reconcilers;  // NOLINT(google-build-using-namespace): decisions on what View shows

// kubectl's own: which container it means where none is named.
constexpr const char* kDefaultContainer = "kubectl.kubernetes.io/default-container";

// The controller alone writes these, with a claim; a pod that comes with one is a copy of another pod, or somebody's try.
void DropRestoreAnnotations(const Json& pod, kube::JsonPatch* patch) {
  for (const auto& [key, value] : GetObject(pod, {"metadata", "annotations"}).items()) {
    if (key.starts_with(api::kRestore)) patch->Remove("/metadata/annotations/" + kube::EscapePointer(key));
  }
}

// The CPU and memory of the pod's first container that asks for any: so the init container changes neither what the pod asks of the
// scheduler (the larger of the init containers' and the sum of the others') nor its QoS class, and is not throttled as it starts.
Json WaitResources(const kube::Pod& pod) {
  auto keep = [](const kube::StringMap& amounts) {
    Json kept = Json::object();
    for (const char* name : {"cpu", "memory"}) {
      if (auto found = amounts.find(name); found != amounts.end()) kept[name] = found->second;
    }
    return kept;
  };
  for (const kube::Container& c : pod.containers) {
    if (c.limits.empty() && c.requests.empty()) continue;
    return {{"requests", keep(c.requests)}, {"limits", keep(c.limits)}};
  }
  return nullptr;
}

Json WaitContainer(const PodWebhookOptions& options, const kube::Pod& pod) {
  Json container = {{"name", api::kWaitContainer},
                    {"image", options.wait_image},
                    {"imagePullPolicy", "IfNotPresent"},
                    {"command", {options.wait_command}},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"securityContext",
                     {{"allowPrivilegeEscalation", false},
                      {"readOnlyRootFilesystem", true},
                      {"runAsNonRoot", true},
                      {"runAsUser", 65532},
                      {"runAsGroup", 65532},
                      {"capabilities", {{"drop", {"ALL"}}}},
                      {"seccompProfile", {{"type", "RuntimeDefault"}}}}}};
  if (Json resources = WaitResources(pod); !resources.is_null()) container["resources"] = std::move(resources);
  return container;
}

// A controller that makes a pod anew does so at once; it may itself be late by so much.
constexpr Duration kLate = std::chrono::seconds(30);

// So long after a failed checkpoint its pod's successor still comes by the gate, only to be told there why it starts cold.
constexpr Duration kFailureIsNews = std::chrono::minutes(2);

// The pod that claimed it has gone on from it, or some of it has, and the cache of pods, which is another one, does not show that it runs.
bool GoesOnUnseen(const View& view, const api::Checkpoint& c) {
  if (!c.status.claim || WordOfClaim(c) == nullptr) return false;
  if (BeingRestored(c)) return true;
  const PodPtr claimant = GetPodWithUid(view, c.meta.ns, c.status.claim->pod_name, c.status.claim->pod_uid);
  return claimant != nullptr && claimant->phase == "Pending";
}

// Whether `pod` is made for the seat that `sibling` has, or had.
bool TakesSeatOf(const View& view, const kube::Pod& pod, const kube::Pod& sibling, const Lineage& lineage) {
  if (sibling.runtime_class != api::kRuntimeClass) return false;
  if (lineage.owner.kind == "StatefulSet") return sibling.meta.name == pod.meta.name;
  return lineage.owner.kind != "Job" || SameSeat(Trace(view, sibling, sibling.meta.ns).owner, lineage.owner);
}

// May the pod take the place of one whose state is kept, or about to be, or was just lost? A cache is behind the request that it is asked
// for: it may show neither that the other one is ending nor that its checkpoint is done. So it is never a cache that lets a pod past
// another one of its seat: the gate holds it until whoever leads has asked the API server (reconcilers/claim).
bool MayFollow(const View& view, const kube::Pod& pod, const Lineage& lineage, WallTime now) {
  for (const CheckpointPtr& c : view.CheckpointsOfOwner(lineage.owner.uid)) {
    if (c->meta.terminating() || !SameSeat(c->status.owner, lineage.owner)) continue;
    const bool just_failed = c->status.phase == api::Phase::kFailed && now - CompletedAt(*c) < kFailureIsNews;
    if (c->spec.final && (HoldsItsPod(*c) || just_failed)) return true;
    if (Unused(*c) || !c->done()) return true;
    if (GoesOnUnseen(view, *c)) return true;
    const PodPtr predecessor = GetPodWithUid(view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid);
    const NodePtr node = view.GetNode(c->status.node_name);
    if (OfALivingPod(*c, predecessor.get(), node.get()) || StandsIn(*c, predecessor.get(), node.get(), now)) return true;
  }
  for (const PodPtr& sibling : view.PodsControlledBy(lineage.parent_uid)) {
    if (!TakesSeatOf(view, pod, *sibling, lineage)) continue;
    if (sibling->phase == "Running") return true;
    for (const CheckpointPtr& c : view.CheckpointsOfPod(sibling->meta.uid)) {
      if (!c->meta.terminating() && HoldsItsPod(*c)) return true;
    }
  }
  return false;
}

bool HasList(const Json& pod, const char* name) {
  const Json* list = Find(pod, {"spec", name});
  return list != nullptr && list->is_array();
}

void AddGate(const Json& object, const kube::Pod& pod, const PodWebhookOptions& options, kube::JsonPatch* patch) {
  const Json gate = {{"name", api::kClaimGate}};
  if (!reconcilers::Gated(pod)) {
    const bool has_list = HasList(object, "schedulingGates");
    patch->Add(has_list ? "/spec/schedulingGates/-" : "/spec/schedulingGates", has_list ? gate : Json::array({gate}));
  }
  const auto& inits = pod.init_containers;
  if (std::any_of(inits.begin(), inits.end(), [](const kube::Container& c) { return c.name == api::kWaitContainer; })) return;
  const Json container = WaitContainer(options, pod);
  const bool has_list = HasList(object, "initContainers");
  patch->Add(has_list ? "/spec/initContainers/0" : "/spec/initContainers", has_list ? container : Json::array({container}));
}

// "metadata.annotations" may not be there yet.
void Annotate(const Json& object, const Json& annotations, kube::JsonPatch* patch) {
  const Json* there = Find(object, {"metadata", "annotations"});
  if (annotations.empty()) return;
  if (there == nullptr || !there->is_object()) {
    patch->Add("/metadata/annotations", annotations);
    return;
  }
  for (const auto& [key, value] : annotations.items()) patch->Add("/metadata/annotations/" + kube::EscapePointer(key), value);
}

// The group may be named on the workload, too, as its protection is. Empty: there is nothing to add.
std::string GroupToJoin(const kube::Pod& pod, const Lineage& lineage) {
  if (!lineage.workload || pod.meta.annotations.contains(api::kMemberOf)) return "";
  return lineage.workload->meta.Annotation(api::kMemberOf);
}

// `kubectl exec`, `logs` and `cp` take a pod's only container without a word; beside the init container they would tell of a choice that
// its owner never had. What the owner says stays.
std::string ContainerForKubectl(const kube::Pod& pod) {
  if (pod.containers.empty() || pod.meta.annotations.contains(kDefaultContainer)) return "";
  return pod.containers.front().name;
}

// Somebody makes a bare pod anew that sleeps: the Checkpoint from which it goes on. Empty: it does not sleep.
std::string SleptIn(const View& view, const kube::Pod& pod, const std::string& ns) {
  if (!pod.meta.owners.empty() || pod.meta.name.empty()) return "";
  for (const SuspendedPtr& sleeper : view.SuspendersOf(ns, "Pod", pod.meta.name)) {
    if (sleeper->status.phase != api::SuspendPhase::kSuspended || sleeper->status.checkpoints.size() != 1) continue;
    const CheckpointPtr kept = view.GetCheckpoint(ns, sleeper->status.checkpoints[0].checkpoint);
    if (kept && Unclaimed(*kept)) return kept->meta.name;
  }
  return "";
}

}  // namespace

// The same of pods that are gone: the one before it was evicted while no webhook answered, say, or its checkpoint is not in the cache yet.
// Of those that were gone before this replica first saw the pods it knows nothing: for a while each pod of an older workload may follow
// one.
bool PodWebhook::MayFollowAnEndedOne(const kube::Pod& pod, const std::string& ns, const Lineage& lineage) const {
  const std::vector<PodPtr> ended = ended_.Of(lineage.parent_uid);
  if (std::any_of(ended.begin(), ended.end(), [&](const PodPtr& one) { return TakesSeatOf(view_, pod, *one, lineage); })) return true;
  const std::optional<WallTime> since = ended_.since();
  if (!since || clock_.Wall() - *since > kLate) return false;
  // Pods of a Job come one after the other; of a bare one there is no other.
  const kube::OwnerReference* parent = pod.meta.Controller();
  if (parent == nullptr || (parent->kind != "ReplicaSet" && parent->kind != "StatefulSet")) return false;
  const WorkloadPtr made = view_.GetWorkload(*parent, ns, Duration(0));
  const auto at = made ? ParseTime(made->meta.creation_timestamp) : std::nullopt;
  return at && *at + std::chrono::seconds(1) < *since;  // it has whole seconds
}

kube::AdmissionResponse PodWebhook::Handle(const kube::AdmissionRequest& request) const {
  kube::AdmissionResponse response;
  if (request.operation != "CREATE" || request.resource.plural != "pods" || !request.subresource.empty()) return response;
  const Json& object = request.object;
  const Json* spec = Find(object, {"spec"});
  if (spec == nullptr || !spec->is_object()) return response;  // the API server sends none such
  kube::JsonPatch patch;
  DropRestoreAnnotations(object, &patch);
  auto done = [&] {
    if (!patch.empty()) response.patch = patch.json();
    return response;
  };

  const kube::Pod pod = kube::Pod::FromJson(object);
  // A pod that names its node is not scheduled, so neither gate nor node labels would hold it.
  if (!pod.node_name.empty() || view_.ReadyNodes().empty()) return done();
  if (!pod.runtime_class.empty() && pod.runtime_class != api::kRuntimeClass) return done();
  if (UnsupportedPod(pod)) return done();
  const Lineage lineage = Trace(view_, pod, request.ns, options_.live_read);
  const Protection protection = ProtectionOf(view_, pod, request.ns, lineage);
  if (!protection.problem.empty()) response.warnings.push_back("holdfast: not protected: " + protection.problem);
  const bool named = !pod.meta.Annotation(api::kFromCheckpoint).empty();
  const std::string slept_in = named ? "" : SleptIn(view_, pod, request.ns);
  const bool asked = named || !slept_in.empty();
  if (!protection.on && !asked) return done();

  if (pod.runtime_class.empty()) patch.Add("/spec/runtimeClassName", api::kRuntimeClass);
  Json annotations = Json::object();
  auto annotate = [&](const char* key, const std::string& value) {
    if (!value.empty()) annotations[key] = value;
  };
  annotate(api::kMemberOf, GroupToJoin(pod, lineage));
  annotate(api::kFromCheckpoint, slept_in);
  if (asked || MayFollow(view_, pod, lineage, clock_.Wall()) || MayFollowAnEndedOne(pod, request.ns, lineage)) {
    AddGate(object, pod, options_, &patch);
    annotate(kDefaultContainer, ContainerForKubectl(pod));
  }
  Annotate(object, annotations, &patch);
  return done();
}

}  // namespace holdfast::controller
