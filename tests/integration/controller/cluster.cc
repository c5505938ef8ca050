#include "tests/integration/controller/cluster.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/platform.h"
#include "base/process.h"
#include "tests/places.h"

namespace holdfast::testing {
namespace {

constexpr char kFeatures[] = "avx avx2";

using std::chrono::milliseconds;
using std::chrono::seconds;

const kube::Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};

void Must(const Status& status) {
  if (!status.ok()) {
    fprintf(stderr, "cluster: %s\n", status.ToString().c_str());
    abort();
  }
}

std::string KubectlPath() {
  const char* bin = getenv("HOLDFAST_CLUSTER_BIN");
  const char* cache = getenv("XDG_CACHE_HOME");
  if (bin != nullptr) return std::string(bin) + "/kubectl";
  return (cache != nullptr ? std::string(cache) : std::string(getenv("HOME")) + "/.cache") + "/holdfast-cluster/bin/kubectl";
}

Json Webhook(const char* name, int port, const char* path, const char* resource) {
  return {
      {"name", name},
      {"admissionReviewVersions", {"v1"}},
      {"clientConfig", {{"url", "https://127.0.0.1:" + std::to_string(port) + path}}},
      {"rules",
       {{{"apiGroups", {""}}, {"apiVersions", {"v1"}}, {"resources", {resource}}, {"operations", {"CREATE"}}, {"scope", "Namespaced"}}}},
      {"failurePolicy", "Ignore"},
      {"sideEffects", std::string(path) == "/evictions" ? "NoneOnDryRun" : "None"},
      {"timeoutSeconds", 15}};
}

}  // namespace

Status ApplyCrds(const std::string& kubeconfig) {
  // README.md lies beside the CRDs; kubectl reads .yaml files only.
  HF_ASSIGN_OR_RETURN(ProcessResult applied,
                      RunProcess({KubectlPath(), "--kubeconfig", kubeconfig, "apply", "-f", std::string(places::kSources) + "/crds"}, {}));
  return applied.exit_code == 0 ? Status::Ok() : Status(Code::kInternal, applied.err);
}

Cluster& Cluster::Shared() {
  static Cluster cluster;
  return cluster;
}

Cluster::Cluster() {
  ApiServer& server = ApiServer::Shared();
  client_ = std::make_unique<kube::Client>(kube::MakeCurlTransport(server.config()));
  webhook_port_ = FreePort();
  Must(ApplyCrds(server.kubeconfig()));
  Must(client_->Create(kNamespaces, "", {{"metadata", {{"name", "holdfast-system"}}}}).status());
  Must(client_->Create(kube::kRuntimeClasses, "", {{"metadata", {{"name", "holdfast"}}}, {"handler", "holdfast"}}).status());
  for (const auto& [node, features] : {std::pair("node-a", kFeatures), {"node-b", "avx"}}) {
    const Json labels = {{api::kNodeReady, "ready"}, {"kubernetes.io/os", "linux"}, {api::kCpuSet, api::FeatureSet(features)}};
    Must(client_
             ->Create(kube::Node::kResource, "",
                      {{"metadata", {{"name", node}, {"labels", labels}, {"annotations", {{api::kCpuFeatures, features}}}}},
                       {"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}})
             .status());
  }
  Json mutating = {{"metadata", {{"name", "holdfast"}}},
                   {"webhooks", {Webhook("pods.holdfast.dev", webhook_port_, "/mutate-pods", "pods")}}};
  Json validating = {{"metadata", {{"name", "holdfast"}}},
                     {"webhooks", {Webhook("evictions.holdfast.dev", webhook_port_, "/evictions", "pods/eviction")}}};
  Must(client_->Create(kube::kMutatingWebhooks, "", mutating).status());
  Must(client_->Create(kube::kValidatingWebhooks, "", validating).status());
  const bool served = Eventually([&] { return client_->List(api::Checkpoint::kResource, {"default", "", ""}).ok(); });
  if (!served) Must({Code::kInternal, "the CRDs are not served"});
}

std::string Cluster::MakeNamespace() {
  const std::string ns = "test-" + std::to_string(++namespaces_);
  Must(client_->Create(kNamespaces, "", {{"metadata", {{"name", ns}}}}).status());
  return ns;
}

void Cluster::Empty(const std::string& ns) {
  for (const kube::Resource& resource : {api::SuspendedWorkload::kResource, api::Checkpoint::kResource, api::RestorePolicy::kResource,
                                         kube::Deployment::kResource, kube::ReplicaSet::kResource, kube::Pod::kResource, kube::kEvents}) {
    kube::HttpRequest remove;
    remove.method = "DELETE";
    remove.path = resource.Path(ns) + "?gracePeriodSeconds=0&propagationPolicy=Background";
    Must(client_->Raw(remove).status());
    for (const Json& held : client_->List(resource, {ns, "", ""}).value_or({})) {
      (void)client_->Patch(resource, ns, GetString(held, {"metadata", "name"}), kube::PatchType::kMerge,
                           {{"metadata", {{"finalizers", nullptr}}}});
    }
  }
}

Json Cluster::MakeWorkload(const std::string& ns, const std::string& name, const Json& annotations) {
  const Json spec = {
      {"replicas", 1},
      {"selector", {{"matchLabels", {{"app", name}}}}},
      {"template",
       {{"metadata", {{"labels", {{"app", name}}}}}, {"spec", {{"containers", {{{"name", "main"}, {"image", "example/counter"}}}}}}}}};
  auto deployment =
      client_->Create(kube::Deployment::kResource, ns, {{"metadata", {{"name", name}, {"annotations", annotations}}}, {"spec", spec}});
  Must(deployment.status());
  const Json owner = {{"apiVersion", "apps/v1"},
                      {"kind", "Deployment"},
                      {"name", name},
                      {"uid", GetString(*deployment, {"metadata", "uid"})},
                      {"controller", true}};
  auto set = client_->Create(kube::ReplicaSet::kResource, ns,
                             {{"metadata", {{"name", name + "-1"}, {"ownerReferences", {owner}}}}, {"spec", spec}});
  Must(set.status());
  return {{"apiVersion", "apps/v1"},
          {"kind", "ReplicaSet"},
          {"name", name + "-1"},
          {"uid", GetString(*set, {"metadata", "uid"})},
          {"controller", true}};
}

Result<Json> Cluster::MakePod(const std::string& ns, const std::string& name, const std::string& app, const Json& owner,
                              const Json& annotations, const kube::CallOptions& options) {
  Json metadata = {{"name", name}, {"labels", {{"app", app}, {"pod-template-hash", "1"}}}, {"annotations", annotations}};
  if (!owner.is_null()) metadata["ownerReferences"] = {owner};
  return client_->Create(kube::Pod::kResource, ns,
                         {{"metadata", metadata}, {"spec", {{"containers", {{{"name", "main"}, {"image", "example/counter"}}}}}}}, options);
}

Status Cluster::RunPod(const std::string& ns, const std::string& name, const std::string& node) {
  kube::HttpRequest bind;
  bind.method = "POST";
  bind.path = kube::Pod::kResource.Path(ns, name, "binding");
  bind.headers["content-type"] = "application/json";
  bind.body =
      DumpJson({{"apiVersion", "v1"}, {"kind", "Binding"}, {"metadata", {{"name", name}}}, {"target", {{"kind", "Node"}, {"name", node}}}});
  HF_RETURN_IF_ERROR(client_->Raw(bind).status());
  const Json running = {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
  const Json status = {{"phase", "Running"},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
                       {"containerStatuses",
                        {{{"name", "main"},
                          {"ready", true},
                          {"restartCount", 0},
                          {"image", "i"},
                          {"imageID", "i"},
                          {"containerID", "containerd://1"},
                          {"state", running}}}}};
  kube::CallOptions options;
  options.subresource = "status";
  return client_->Patch(kube::Pod::kResource, ns, name, kube::PatchType::kMerge, {{"status", status}}, options).status();
}

void Cluster::EndPod(const std::string& ns, const std::string& name) {
  kube::DeleteOptions del;
  del.grace_period_seconds = 0;
  (void)client_->Delete(kube::Pod::kResource, ns, name, del).ok();
}

Json Cluster::Pod(const std::string& ns, const std::string& name) {
  auto pod = client_->Get(kube::Pod::kResource, ns, name);
  return pod.ok() ? *pod : Json();
}

std::vector<api::Checkpoint> Cluster::Checkpoints(const std::string& ns) {
  std::vector<api::Checkpoint> out;
  auto items = client_->List(api::Checkpoint::kResource, {ns, "", ""});
  for (const Json& item : items.value_or({})) out.push_back(api::Checkpoint::FromJson(item));
  return out;
}

std::optional<api::Checkpoint> Cluster::FindCheckpoint(const std::string& ns, const std::string& name) {
  for (api::Checkpoint& c : Checkpoints(ns)) {
    if (c.meta.name == name) return std::move(c);
  }
  return std::nullopt;
}

bool Cluster::HasPhase(const std::string& ns, const std::string& checkpoint, api::Phase phase) {
  const auto c = FindCheckpoint(ns, checkpoint);
  return c && c->status.phase == phase;
}

Status Cluster::PatchCheckpoint(const api::Checkpoint& c, const Json& patch) {
  kube::CallOptions options;
  options.subresource = "status";
  return client_->Patch(api::Checkpoint::kResource, c.meta.ns, c.meta.name, kube::PatchType::kMerge, patch, options).status();
}

std::vector<std::string> Cluster::EventNotes(const std::string& ns, const std::string& reason) {
  std::vector<std::string> notes;
  for (const Json& event : client_->List(kube::kEvents, {ns, "", ""}).value_or({})) {
    if (GetString(event, {"reason"}) == reason) notes.push_back(GetString(event, {"note"}));
  }
  return notes;
}

controller::AppOptions Replica::Options(const std::string& identity, int webhook_port, const std::string& lease_ns) {
  controller::AppOptions options;
  options.ns = lease_ns;
  options.identity = identity;
  options.wait_image = "example/holdfast";
  options.listen = "127.0.0.1";
  options.webhook_port = webhook_port;
  options.metrics_port = 0;
  options.webhook_hosts = {"127.0.0.1"};
  // One without a known port is called by nobody, and its CA is not to replace that of the one that is.
  if (webhook_port == 0) options.mutating_configuration = options.validating_configuration = "";
  options.lease_duration = seconds(3);
  options.renew_deadline = seconds(2);
  options.renew_every = milliseconds(300);
  return options;
}

std::shared_ptr<kube::Transport> Replica::Connect() {
  static const auto config = ApiServer::Shared().ConfigOf("holdfast-controller", "system:masters");
  Must(config.status());
  return kube::MakeCurlTransport(*config);
}

Replica::Replica(const std::string& identity, int webhook_port, const std::string& lease_ns)
    : Replica(Connect(), Options(identity, webhook_port, lease_ns)) {}

Replica::Replica(std::shared_ptr<kube::Transport> api_server, controller::AppOptions options) {
  app_ = std::make_unique<controller::App>(std::move(api_server), std::move(options));
  thread_ = std::jthread([this](std::stop_token stop) { (void)app_->Run(stop).ok(); });
}

Replica::~Replica() {
  thread_.request_stop();
  thread_.join();
}

bool Replica::WaitReady(Duration timeout) {
  return Eventually([this] { return app_->ready(); }, timeout);
}

FakeAgent::FakeAgent(Cluster& cluster, std::string ns, bool fails, std::string only)
    : cluster_(cluster), ns_(std::move(ns)), fails_(fails), only_(std::move(only)) {
  thread_ = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) Step(c);
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
}

FakeAgent::~FakeAgent() {
  thread_.request_stop();
  thread_.join();
}

void FakeAgent::Step(const api::Checkpoint& c) {
  using api::Phase;
  const WallTime now = Clock::Real().Wall();
  auto move = [&](Phase phase, const char* reason, Json more = Json::object()) {
    Json patch = api::PhasePatch(c, phase, reason, reason, now);
    patch["metadata"]["resourceVersion"] = c.meta.resource_version;
    patch["status"].update(more);
    const Status written = cluster_.PatchCheckpoint(c, patch);
    EXPECT_TRUE(written.ok() || written.code() == Code::kConflict || written.code() == Code::kNotFound) << written.ToString();
  };
  switch (c.status.phase) {
    case Phase::kAssigned:
      return move(Phase::kFreezing, "InProgress");
    case Phase::kFreezing:
      if (!c.spec.cut.none() && c.status.frozen_at.empty())
        return move(Phase::kFreezing, "InProgress", {{"barrier", {{"frozenAt", FormatTime(now)}}}});
      if (!c.spec.cut.none() && c.status.all_frozen_at.empty()) return;
      return move(Phase::kDumping, "InProgress");
    case Phase::kDumping:
      if (fails_ && (only_.empty() || c.spec.pod_name == only_))
        return move(Phase::kFailed, "DumpFailed", {{"completedAt", FormatTime(now)}});
      if (!c.spec.cut.none() && c.status.dumped_at.empty())
        return move(Phase::kDumping, "InProgress", {{"barrier", {{"dumpedAt", FormatTime(now)}}}});
      if (!c.spec.cut.none() && c.status.all_dumped_at.empty()) return;
      return move(Phase::kStoring, "InProgress", {{"progress", api::ProgressJson(900LL << 20, 2150LL << 20)}});
    case Phase::kStoring:
      return move(Phase::kReady, "Completed",
                  {{"completedAt", FormatTime(now)},
                   {"size", api::SizeJson(2100LL << 20, 50LL << 20, 1LL << 20)},
                   {"platform", {{"arch", "amd64"}, {"cpuFeatures", kFeatures}}},
                   {"manifest", {{"store", "default"}, {"id", c.meta.uid}, {"digest", "blake3:0"}}}});
    default:
      return;
  }
}

FakeDeployment::FakeDeployment(Cluster& cluster, std::string ns, Json owner, int first)
    : cluster_(cluster), ns_(std::move(ns)), owner_(std::move(owner)), next_(first) {
  thread_ = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      Step();
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
}

FakeDeployment::~FakeDeployment() {
  thread_.request_stop();
  thread_.join();
}

void FakeDeployment::Report(const std::string& pod) {
  for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) {
    if (!c.status.claim || c.status.claim->pod_name != pod || !c.status.restores.empty()) continue;
    const api::Restore restore{pod, "node-a", FormatTime(Clock::Real().Wall()), "Restored", "", 0.5};
    (void)cluster_.PatchCheckpoint(c, {{"status", {{"restores", {api::ToJson(restore)}}}}}).ok();
  }
}

void FakeDeployment::Step() {
  const bool bare = owner_.is_null();
  auto web = bare ? Result<Json>(Json::object()) : cluster_.client().Get(kube::Deployment::kResource, ns_, "web");
  if (!web.ok()) return;
  const int64_t wanted = bare ? std::numeric_limits<int64_t>::max() : GetInt(*web, {"spec", "replicas"});
  int64_t there = 0;
  for (const Json& pod : cluster_.client().List(kube::Pod::kResource, {.ns = ns_, .label_selector = "app=web"}).value_or({})) {
    const std::string name = GetString(pod, {"metadata", "name"});
    if (!GetString(pod, {"metadata", "deletionTimestamp"}).empty() || ++there > wanted) {
      cluster_.EndPod(ns_, name);
      continue;
    }
    if (GetString(pod, {"status", "phase"}) == "Running") {
      Report(name);
    } else if (GetArray(pod, {"spec", "schedulingGates"}).empty() && !no_room) {
      (void)cluster_.RunPod(ns_, name, "node-a").ok();
    }
  }
  if (bare) return;
  for (; there < wanted; ++there) {
    (void)cluster_.MakePod(ns_, "web-" + std::to_string(next_++), "web", owner_).ok();
  }
  const int64_t generation = GetInt(*web, {"metadata", "generation"}), pods = std::min(there, wanted);
  const Json status = {{"replicas", pods}, {"updatedReplicas", pods}, {"observedGeneration", generation}};
  const Json& before = GetObject(*web, {"status"});
  if (GetInt(before, {"replicas"}) == pods && GetInt(before, {"observedGeneration"}) == generation) return;
  kube::CallOptions options;
  options.subresource = "status";
  (void)cluster_.client().Patch(kube::Deployment::kResource, ns_, "web", kube::PatchType::kMerge, {{"status", status}}, options).ok();
}

}  // namespace holdfast::testing
