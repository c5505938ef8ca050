#include "reconcilers/onrequest/reconciler.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/list_stream.h"

namespace holdfast::reconcilers::onrequest {
namespace {

constexpr Duration kAfterConflict = std::chrono::milliseconds(200);

bool Before(const kube::ObjectMeta& a, const kube::ObjectMeta& b) {
  if (a.creation_timestamp != b.creation_timestamp) return a.creation_timestamp < b.creation_timestamp;
  return a.Key() < b.Key();
}

bool Owns(const api::SuspendedWorkload& object, const kube::EndpointSlice& slice) {
  const kube::OwnerReference* owner = slice.meta.Controller();
  return owner != nullptr && owner->uid == object.meta.uid;
}

bool IsFamily(const std::string& address, std::string_view family) {
  return (address.find(':') == std::string::npos) == (family == "IPv4");
}

}  // namespace

bool IsActivator(const kube::Pod& pod) {
  auto is = [&](const char* label, std::string_view value) {
    auto found = pod.meta.labels.find(label);
    return found != pod.meta.labels.end() && found->second == value;
  };
  return is("app.kubernetes.io/name", "holdfast") && is("app.kubernetes.io/component", "activator");
}

void Reconciler::Take(World* world, const api::SuspendedWorkload& other) const {
  const api::SuspendedWorkload& object = *world->object;
  if (other.meta.uid == object.meta.uid) return;
  const bool first = Before(other.meta, object.meta);
  for (const api::ActivatorPort& port : other.status.on_request.ports) {
    world->taken.insert(port.number);
    if (first) world->taken_earlier.insert(port.number);
  }
  if (first && other.meta.ns == object.meta.ns && other.spec.on_request && object.spec.on_request &&
      other.spec.on_request->service == object.spec.on_request->service.view()) {
    world->rival = other.meta.name;
  }
}

Result<World> Reconciler::Look(SuspendedPtr object, std::stop_token stop) const {
  World world;
  world.range = settings_.range;
  world.object = std::move(object);
  const std::string& ns = world.object->meta.ns;
  const auto& spec = world.object->spec;
  if (const auto& recorded = world.object->status.on_request.service; !recorded.empty()) {
    const std::string slice = SliceName(recorded.view());
    if (settings_.range.count > 0) {
      world.slice = settings_.slice(ns, slice);
    } else {
      // There was an activator: what led to it goes. No cache has it.
      auto read = context_.client.Get<kube::EndpointSlice>(ns, slice, Calls(stop));
      if (!read.ok() && read.status().code() != Code::kNotFound) return read.status().With("EndpointSlice " + ns + "/" + slice);
      if (read.ok()) world.slice = std::make_shared<const kube::EndpointSlice>(std::move(*read));
    }
    if (world.slice && !Owns(*world.object, *world.slice)) world.slice = nullptr;
  }
  if (settings_.range.count == 0 || !spec.on_request) return world;
  world.target = context_.view.GetWorkload({"", spec.target_kind, spec.target_name, "", true}, ns, Duration(0));
  world.service = settings_.service(ns, spec.on_request->service.str());
  for (const SuspendedPtr& other : settings_.all()) Take(&world, *other);
  for (const PodPtr& pod : context_.view.PodsIn(settings_.ns)) {
    if (!world.service || !IsActivator(*pod) || !pod->ready || pod->meta.terminating()) continue;
    for (const std::string& address : pod->pod_ips) {
      if (IsFamily(address, world.service->family.view())) world.activators.push_back(address);
    }
  }
  std::sort(world.activators.begin(), world.activators.end());
  return world;
}

Status Reconciler::LookLive(World* world, std::stop_token stop) const {
  const kube::ObjectMeta& object = world->object->meta;
  auto read = [](const Json& other) { return std::optional(api::SuspendedWorkload::FromJson(other)); };
  HF_ASSIGN_OR_RETURN(const std::vector<api::SuspendedWorkload> all,
                      kube::Gather<api::SuspendedWorkload>(
                          context_.client, {.resource = api::SuspendedWorkload::kResource, .timeout = kAnswer}, read, stop));
  for (const api::SuspendedWorkload& other : all) Take(world, other);
  const std::string selector = std::string(kube::EndpointSlice::kServiceLabel) + "=" + world->object->spec.on_request->service.str();
  HF_ASSIGN_OR_RETURN(std::vector<Json> slices,
                      context_.client.List(kube::EndpointSlice::kResource, {object.ns, selector, ""}, Calls(stop)));
  for (const Json& json : slices) {
    const auto slice = kube::EndpointSlice::FromJson(json);
    if (slice.managed_by == api::kSliceManager) continue;
    for (const auto& endpoint : slice.endpoints) world->own_endpoint |= endpoint.ready;
  }
  return Status::Ok();
}

Status Reconciler::Act(const World& world, const Step& step, std::stop_token stop) {
  const kube::ObjectMeta& meta = world.object->meta;
  kube::CallOptions options = Calls(stop);
  Status done;
  switch (step.action) {
    case Action::kNothing:
      return done;
    case Action::kPatchStatus:
      options.subresource = "status";
      done = context_.client
                 .Patch(api::SuspendedWorkload::kResource, meta.ns, meta.name, kube::PatchType::kMerge, Locked(step.patch, meta), options)
                 .status();
      break;
    case Action::kWriteSlice:
      if (world.slice) {
        const Json change = {{"endpoints", step.slice["endpoints"]}, {"ports", step.slice["ports"]}};
        done = context_.client
                   .Patch(kube::EndpointSlice::kResource, meta.ns, world.slice->meta.name, kube::PatchType::kMerge,
                          Locked(change, world.slice->meta), options)
                   .status();
      } else {
        done = context_.client.Create(kube::EndpointSlice::kResource, meta.ns, step.slice, options).status();
      }
      break;
    case Action::kDeleteSlice: {
      kube::DeleteOptions del;
      del.preconditions.uid = world.slice->meta.uid;
      done = context_.client.Delete(kube::EndpointSlice::kResource, meta.ns, world.slice->meta.name, del, options);
      if (done.code() == Code::kNotFound) done = Status::Ok();
      break;
    }
  }
  HF_FAULT_POINT("controller.wrote");
  if (done.ok())
    LogInfo("requests to a sleeper", {{"object", meta.Key()}, {"slice", step.action != Action::kPatchStatus}, {"why", step.why}});
  return done.With("requests that wake SuspendedWorkload " + meta.Key());
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  SuspendedPtr object = context_.view.GetSuspended(name.ns, name.name);
  if (!object) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(World world, Look(std::move(object), stop));
  Step step = Next(world, context_.clock.Wall());
  if (step.live) {
    HF_RETURN_IF_ERROR(LookLive(&world, stop));
    step = Next(world, context_.clock.Wall());
  }
  const Status acted = Act(world, step, stop);
  if (acted.code() == Code::kConflict || acted.code() == Code::kNotFound) return kube::ReconcileResult{kAfterConflict};
  if (!acted.ok()) return acted;
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::onrequest
