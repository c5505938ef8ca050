#include "controller/eviction_webhook.h"

#include "base/fault_point.h"
#include "base/log.h"

namespace holdfast::controller {
namespace {

using namespace reconcilers;  // NOLINT(google-build-using-namespace): decisions on what View shows

constexpr size_t kMaxQueued = 1024;
constexpr size_t kMaxTold = 4096;
constexpr int kTellTries = 3;
constexpr Duration kMoves = std::chrono::seconds(60);  // from durable to restored, where all goes well
constexpr Duration kCreateTimeout = std::chrono::seconds(10);

kube::AdmissionResponse TooManyRequests(std::string message) {
  kube::AdmissionResponse response;
  response.allowed = false;
  response.code = 429;
  response.reason = "TooManyRequests";
  response.message = std::move(message);
  return response;
}

std::string LabelOf(const kube::ObjectMeta& meta, const char* key) {
  auto label = meta.labels.find(key);
  return label == meta.labels.end() ? "" : label->second;
}

}  // namespace

CheckpointCreator::CheckpointCreator(kube::Client& client) : client_(client), thread_([this](std::stop_token stop) { Run(stop); }) {}
CheckpointCreator::~CheckpointCreator() { Stop(); }

void CheckpointCreator::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void CheckpointCreator::Ask(Json checkpoint) {
  const std::string key = GetString(checkpoint, {"metadata", "namespace"}) + "/" + GetString(checkpoint, {"metadata", "name"});
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= kMaxQueued || !queued_.insert(key).second) return;
    queue_.push_back(std::move(checkpoint));
  }
  wake_.notify_one();
}

void CheckpointCreator::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    Json checkpoint;
    {
      std::unique_lock lock(mutex_);
      if (!client_.clock().WaitUntil(lock, wake_, MonoTime::max(), stop, [this] { return !queue_.empty(); })) return;
      checkpoint = std::move(queue_.front());
      queue_.pop_front();
    }
    const std::string ns = GetString(checkpoint, {"metadata", "namespace"}), name = GetString(checkpoint, {"metadata", "name"});
    kube::CallOptions options;
    options.timeout = kCreateTimeout;
    options.stop = stop;
    auto created = client_.Create(api::Checkpoint::kResource, ns, checkpoint, options);
    HF_FAULT_POINT("controller.wrote");
    if (created.ok()) {
      LogInfo("checkpoint asked for by an eviction", {{"checkpoint", ns + "/" + name}});
    } else if (created.status().code() != Code::kAlreadyExists) {
      LogError("cannot create a checkpoint for an eviction; the next request tries again",
               {{"checkpoint", ns + "/" + name}, {"error", created.status().ToString()}});
    }
    std::lock_guard lock(mutex_);
    queued_.erase(ns + "/" + name);
  }
}

Json DrainCheckpoint(const kube::Pod& pod, int ordinal, const std::vector<std::string>& containers, Duration deadline) {
  Json spec = {{"podRef", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}},
               {"final", true},
               {"trigger", "Drain"},
               {"deadline", FormatDuration(deadline)}};
  if (!containers.empty()) spec["containers"] = containers;
  return {{"apiVersion", api::Checkpoint::kResource.ApiVersion()},
          {"kind", "Checkpoint"},
          {"metadata",
           {{"name", api::CheckpointName(api::Trigger::kDrain, pod.meta.name, pod.meta.uid, ordinal)},
            {"namespace", pod.meta.ns},
            {"finalizers", {kContentFinalizer}},
            {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
          {"spec", spec}};
}

// A pod that is let go without its state is gone a moment later, and nobody would find out: the event comes first. Not written after some
// requests, it is left to the log.
bool EvictionWebhook::Told(const Notice& notice, const kube::Pod& pod) {
  {
    std::lock_guard lock(mutex_);
    if (told_.size() >= kMaxTold) told_.clear();
    int& asked = told_[pod.meta.uid];
    if (asked >= kTellTries) return true;
    ++asked;
  }
  kube::CallOptions call;
  call.timeout = options_.live_read;
  const auto about = kube::ObjectReference::To(kube::Pod::kResource, pod.meta);
  const Status told = context_.events.WarnOnce(about, "let-go-" + pod.meta.uid, notice.reason, "Holdfast", notice.note, call);
  if (!told.ok()) LogWarning("an event cannot be written", {{"pod", pod.meta.Key()}, {"note", notice.note}, {"error", told.message()}});
  std::lock_guard lock(mutex_);
  int& asked = told_[pod.meta.uid];
  if (told.ok()) asked = kTellTries;
  return told.ok() || asked >= kTellTries;
}

// What a drain still needs of the controller (to evict the frozen pod, to give its state to its successor) and of the store (to take and
// to give that state). Each step for a while only: nobody who drains waits for what does not go on.
kube::AdmissionResponse EvictionWebhook::LeaveLast(const kube::Pod& pod) const {
  const std::string component = LabelOf(pod.meta, "app.kubernetes.io/component");
  if (component != "store" && component != "controller") return {};
  const WallTime now = context_.clock.Wall();
  size_t needed = 0;
  for (const CheckpointPtr& c : context_.view.DrainsUnderWay()) {
    if (!c->done()) {
      const bool pod_there = GetPodWithUid(context_.view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid) != nullptr;
      if (pod_there && now < WaitedForUntil(*c)) ++needed;
    } else if (Unclaimed(*c)) {
      if (now < CompletedAt(*c) + kMoves) ++needed;
    } else if (c->status.phase == api::Phase::kReady && c->status.claim && !Reclaimed(*c) && OutcomeOfClaim(*c) == nullptr) {
      if (component == "store" && now < ParseTime(c->status.claim->at).value_or(WallTime()) + kMoves) ++needed;
    }
  }
  if (needed == 0) return {};
  return TooManyRequests("holdfast: the " + component + " leaves after " + std::to_string(needed) + " checkpoint" +
                         (needed == 1 ? "" : "s") + " that " + (needed == 1 ? "is" : "are") + " being stored or restored");
}

// A cache is behind the request: a pod that it shows waiting, or not at all, may run already, maybe from a checkpoint that nobody else can
// have any more. Such a pod is looked at where it is.
PodPtr EvictionWebhook::PodOf(const std::string& ns, const std::string& name) const {
  PodPtr cached = context_.view.GetPod(ns, name);
  if (cached && (cached->phase == "Running" || Ended(*cached))) return cached;
  kube::CallOptions call;
  call.timeout = options_.live_read;
  Result<kube::Pod> live = context_.client.Get<kube::Pod>(ns, name, call);
  if (live.ok()) return std::make_shared<const kube::Pod>(std::move(*live));
  return live.status().code() == Code::kNotFound ? nullptr : cached;
}

// As PodOf: a cache may not have heard yet that a restore has begun.
CheckpointPtr EvictionWebhook::RestoredFrom(const kube::Pod& pod) const {
  const std::string name = pod.meta.Annotation(api::kRestore);
  if (name.empty() || pod.phase == "Running" || Ended(pod)) return nullptr;
  kube::CallOptions call;
  call.timeout = options_.live_read;
  Result<api::Checkpoint> live = context_.client.Get<api::Checkpoint>(pod.meta.ns, name, call);
  if (live.ok()) return std::make_shared<const api::Checkpoint>(std::move(*live));
  return context_.view.GetCheckpoint(pod.meta.ns, name);
}

kube::AdmissionResponse EvictionWebhook::Handle(const kube::AdmissionRequest& request) {
  if (request.operation != "CREATE" || request.subresource != "eviction") return {};
  if (!options_.own_username.empty() && request.username == options_.own_username) return {};
  drain::EvictionWorld world;
  world.ns = request.ns;
  world.name = request.name.empty() ? GetString(request.object, {"metadata", "name"}) : request.name;
  world.asked_uid = GetString(request.object, {"deleteOptions", "preconditions", "uid"});
  world.pod = PodOf(world.ns, world.name);
  if (!world.pod) return {};
  if (world.ns == options_.own_namespace) return LeaveLast(*world.pod);

  const Lineage lineage = Trace(context_.view, *world.pod, world.ns);
  world.protection = ProtectionOf(context_.view, *world.pod, world.ns, lineage);
  world.checkpoints = context_.view.CheckpointsOfPod(world.pod->meta.uid);
  for (const CheckpointPtr& c : context_.view.CheckpointsIn(world.ns)) {
    if (c->spec.pod_name == world.name && c->spec.pod_uid != world.pod->meta.uid) world.predecessors.push_back(c);
  }
  world.node = context_.view.GetNode(world.pod->node_name);
  world.restored_from = RestoredFrom(*world.pod);
  world.store_down = options_.store_down && options_.store_down();
  const drain::EvictionAnswer answer = drain::AnswerEviction(world, context_.clock.Wall());
  if (!request.dry_run) {
    if (answer.create) {
      creator_.Ask(DrainCheckpoint(*world.pod, answer.ordinal, WantedContainers(*world.pod, lineage), options_.deadline));
    }
    if (answer.notice && !Told(*answer.notice, *world.pod)) {
      return TooManyRequests("holdfast: " + world.ns + "/" + world.name +
                             " is let go once the event that says so is written: " + answer.notice->note);
    }
  }
  if (answer.allow) return {};
  if (answer.gone) return {.allowed = false, .code = 404, .reason = "NotFound", .message = answer.message};
  return TooManyRequests(answer.message);
}

}  // namespace holdfast::controller
