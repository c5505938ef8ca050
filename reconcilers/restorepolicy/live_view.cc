#include "reconcilers/restorepolicy/live_view.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

constexpr Duration kRead = std::chrono::seconds(10);
// A page is parsed as a whole, and then reduced to what we need: the memory of a page at a time.
constexpr int kPage = 200;

template <class T>
std::vector<std::shared_ptr<const T>> Values(const std::map<std::string, std::shared_ptr<const T>>& all) {
  std::vector<std::shared_ptr<const T>> out;
  out.reserve(all.size());
  for (const auto& [name, object] : all) out.push_back(object);
  return out;
}

template <class T>
std::shared_ptr<const T> Named(const std::map<std::string, std::shared_ptr<const T>>& all, const std::string& name) {
  auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

template <class T>
Result<WorkloadPtr> ReadWorkload(kube::Client& client, const std::string& ns, const std::string& name, std::stop_token stop) {
  auto read = client.Get<T>(ns, name, Calls(std::move(stop), kRead));
  if (read.ok()) return WorkloadPtr(std::make_shared<const T>(std::move(*read)));
  if (read.status().code() == Code::kNotFound) return WorkloadPtr();
  return read.status();
}

}  // namespace

template <class T>
Status LiveView::ReadInto(const std::string& ns, std::map<std::string, std::shared_ptr<const T>>* out, std::stop_token stop) {
  std::string more;
  do {
    kube::HttpRequest request;
    // No resourceVersion: as of now.
    request.path = T::kResource.Path(ns) + kube::UrlQuery({{"limit", std::to_string(kPage)}, {"continue", more}});
    HF_ASSIGN_OR_RETURN(Json page, client_.Raw(request, Calls(stop, kRead)));
    for (const Json& item : GetArray(page, {"items"})) {
      auto object = std::make_shared<const T>(T::FromJson(item));
      (*out)[object->meta.name] = std::move(object);
    }
    more = GetString(page, {"metadata", "continue"});
  } while (!more.empty());
  return Status::Ok();
}

Status LiveView::Read(const std::set<std::string>& namespaces, std::stop_token stop) {
  stop_ = stop;
  for (const std::string& ns : namespaces) {
    Space space;
    auto object = client_.Get<kube::Namespace>("", ns, Calls(stop, kRead));
    if (!object.ok() && object.status().code() != Code::kNotFound) return object.status().With("namespace " + ns);
    if (object.ok()) space.object = std::make_shared<const kube::Namespace>(std::move(*object));
    HF_RETURN_IF_ERROR(ReadInto<kube::Pod>(ns, &space.pods, stop).With("pods of namespace " + ns));
    HF_RETURN_IF_ERROR(ReadInto<api::Checkpoint>(ns, &space.checkpoints, stop).With("Checkpoints of namespace " + ns));
    HF_RETURN_IF_ERROR(ReadInto<api::RestorePolicy>(ns, &space.policies, stop).With("RestorePolicies of namespace " + ns));
    HF_RETURN_IF_ERROR(ReadInto<api::SuspendedWorkload>(ns, &space.suspended, stop).With("SuspendedWorkloads of namespace " + ns));
    spaces_[ns] = std::move(space);
  }
  return Status::Ok();
}

const LiveView::Space* LiveView::Of(const std::string& ns) const {
  auto found = spaces_.find(ns);
  return found == spaces_.end() ? nullptr : &found->second;
}

PodPtr LiveView::GetPod(const std::string& ns, const std::string& name) const {
  const Space* space = Of(ns);
  return space != nullptr ? Named(space->pods, name) : cache_.GetPod(ns, name);
}
std::vector<PodPtr> LiveView::PodsIn(const std::string& ns) const {
  const Space* space = Of(ns);
  return space != nullptr ? Values(space->pods) : cache_.PodsIn(ns);
}
NamespacePtr LiveView::GetNamespace(const std::string& name) const {
  const Space* space = Of(name);
  return space != nullptr ? space->object : cache_.GetNamespace(name);
}
CheckpointPtr LiveView::GetCheckpoint(const std::string& ns, const std::string& name) const {
  const Space* space = Of(ns);
  return space != nullptr ? Named(space->checkpoints, name) : cache_.GetCheckpoint(ns, name);
}
std::vector<CheckpointPtr> LiveView::CheckpointsIn(const std::string& ns) const {
  const Space* space = Of(ns);
  return space != nullptr ? Values(space->checkpoints) : cache_.CheckpointsIn(ns);
}
PolicyPtr LiveView::GetPolicy(const std::string& ns, const std::string& name) const {
  const Space* space = Of(ns);
  return space != nullptr ? Named(space->policies, name) : cache_.GetPolicy(ns, name);
}
std::vector<PolicyPtr> LiveView::PoliciesIn(const std::string& ns) const {
  const Space* space = Of(ns);
  return space != nullptr ? Values(space->policies) : cache_.PoliciesIn(ns);
}
SuspendedPtr LiveView::GetSuspended(const std::string& ns, const std::string& name) const {
  const Space* space = Of(ns);
  return space != nullptr ? Named(space->suspended, name) : cache_.GetSuspended(ns, name);
}
std::vector<SuspendedPtr> LiveView::SuspendedIn(const std::string& ns) const {
  const Space* space = Of(ns);
  return space != nullptr ? Values(space->suspended) : cache_.SuspendedIn(ns);
}

WorkloadPtr LiveView::GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration) const {
  if (WorkloadPtr cached = cache_.GetWorkload(ref, ns, Duration(0))) return cached;
  auto [known, first] = workloads_.try_emplace(ref.kind.str() + "/" + ns + "/" + ref.name.str());
  if (first && Of(ns) != nullptr) {
    Result<WorkloadPtr> read = WorkloadPtr();
    if (ref.kind == "Deployment") read = ReadWorkload<kube::Deployment>(client_, ns, ref.name, stop_);
    if (ref.kind == "StatefulSet") read = ReadWorkload<kube::StatefulSet>(client_, ns, ref.name, stop_);
    if (ref.kind == "ReplicaSet") read = ReadWorkload<kube::ReplicaSet>(client_, ns, ref.name, stop_);
    if (ref.kind == "Job") read = ReadWorkload<kube::Job>(client_, ns, ref.name, stop_);
    if (!read.ok() && problem_.ok()) problem_ = read.status().With(ref.kind.str() + " " + ns + "/" + ref.name.str());
    if (read.ok()) known->second = *read;
  }
  const WorkloadPtr& found = known->second;
  return found && (ref.uid.empty() || found->meta.uid == ref.uid) ? found : nullptr;
}

}  // namespace holdfast::reconcilers::restorepolicy
