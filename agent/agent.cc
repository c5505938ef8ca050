#include "agent/agent.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "agent/boot.h"
#include "agent/cache.h"
#include "agent/executor.h"
#include "agent/gpu_metrics.h"
#include "agent/host_node.h"
#include "agent/http_kubelet.h"
#include "agent/idle.h"
#include "agent/installer/real_host.h"
#include "agent/kube_cluster.h"
#include "agent/landing_memory.h"
#include "agent/node_label.h"
#include "agent/restorer.h"
#include "agent/socket_server.h"
#include "agent/stopper.h"
#include "agent/turns.h"
#include "agent/warden.h"
#include "base/fence.h"
#include "base/file.h"
#include "base/log.h"
#include "kube/admission.h"
#include "kube/credentials.h"
#include "kube/list_stream.h"
#include "kube/metrics.h"
#include "kube/request_metrics.h"
#include "kube/server_time.h"
#include "kube/source.h"
#include "storage/remote.h"

namespace holdfast::agent {
namespace {

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr int kIdleWorkers = 4;                               // a server that hangs holds up one of them
constexpr Duration kSweepEvery = std::chrono::seconds(2);     // of kept checkpoints
constexpr Duration kStorePatience = std::chrono::seconds(5);  // of one call; a checkpoint's own work gets until its deadline

std::string Or(const std::string& given, const std::string& otherwise) { return given.empty() ? otherwise : given; }

std::string RuncRoot(const AgentOptions& options) { return Or(options.runc_root, "/run/containerd/runc/k8s.io"); }

Layout LayoutOf(const AgentOptions& options) {
  Layout layout;
  layout.run = Or(options.run_dir, layout.run);
  layout.state = Or(options.state_dir, layout.state);
  layout.kubelet = Or(options.kubelet_root, layout.kubelet);
  return layout;
}

std::unique_ptr<Kubelet> MakeKubelet(const AgentOptions& options, const kube::Node& node, const std::string& root) {
  kube::ClientConfig config;
  config.server = "https://" + (node.internal_ip.find(':') == std::string::npos ? node.internal_ip : "[" + node.internal_ip + "]") + ":" +
                  std::to_string(node.kubelet_port);
  config.ca_file = Or(options.kubelet_ca_file, std::string(kServiceAccount) + "/ca.crt");
  config.insecure_skip_tls_verify = options.kubelet_insecure;
  if (options.kubelet_insecure) config.ca_file.clear();
  config.token_file = Or(options.kubelet_token_file, std::string(kServiceAccount) + "/token");
  const std::string address = config.server;
  return std::make_unique<HttpKubelet>(kube::MakeCurlTransport(config), address, root);
}

using RemoteStores = std::map<std::string, std::unique_ptr<storage::RemoteStore>>;

RemoteStores OpenStores(const AgentOptions& options) {
  RemoteStores stores;
  for (const api::StoreAddress& address : options.stores) {
    storage::RemoteStoreOptions store;
    store.http.url = address.url;
    store.http.ca_file = options.store_ca_file;
    store.http.token_file = Or(options.store_token_file, std::string(kServiceAccount) + "/token");
    store.patience = kStorePatience;
    stores[address.name] = std::make_unique<storage::RemoteStore>(std::move(store));
  }
  return stores;
}

Json AnswerQuestion(Restorer& restorer, Stopper& stopper, const Json& question, std::stop_token stop) {
  const std::string op = GetString(question, {"op"});
  auto refuse = [](const std::string& why) { return Json{{"action", "refuse"}, {"reason", why}}; };
  if (op == "create") {
    Result<runtime::CreateQuestion> create = runtime::CreateQuestion::FromJson(question);
    return create.ok() ? restorer.Create(*create, stop).ToJson() : refuse(create.status().message());
  }
  if (op == "restored") {
    Result<runtime::RestoreOutcome> outcome = runtime::RestoreOutcome::FromJson(question);
    return outcome.ok() ? restorer.Outcome(*outcome).ToJson() : refuse(outcome.status().message());
  }
  if (op == "stop") {
    Result<runtime::StopQuestion> asked = runtime::StopQuestion::FromJson(question);
    return asked.ok() ? stopper.Answer(*asked, stop).ToJson() : Json{{"action", "signal"}, {"reason", asked.status().message()}};
  }
  return refuse("unknown question");
}

// The node's own object; the API server may come after us.
Result<kube::Node> WaitForNode(KubeCluster& cluster, const std::string& name, Clock& clock, std::stop_token stop) {
  while (true) {
    Result<Json> node = cluster.GetNode(name);
    if (node.ok()) return kube::Node::FromJson(*node);
    LogWarning("cannot read this node's object", {{"node", name}, {"error", node.status().message()}});
    if (!clock.Sleep(std::chrono::seconds(2), stop)) return Status(Code::kCancelled, "stopped before the node was known");
  }
}

// Of pods that went while no agent ran.
void RemoveOldLocks(const Layout& layout, const std::set<std::string>& pods) {
  for (const std::string& uid : ListDir(layout.run + "/locks").value_or({})) {
    if (!pods.contains(uid)) unlink(layout.PodLock(uid).c_str());
  }
}

template <class Work>
kube::Controller::Reconcile Reconciling(Work work) {
  return [work](const std::string& key, std::stop_token stop) -> Result<kube::ReconcileResult> {
    HF_ASSIGN_OR_RETURN(std::optional<Duration> again, work(key, stop));
    return kube::ReconcileResult{again};
  };
}

double FreePart(const std::string& dir) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(dir, error);
  return error || space.capacity == 0 ? 0 : static_cast<double>(space.available) / static_cast<double>(space.capacity);
}

// Of checkpoints that exist. A checkpoint that was made anew has another uid than its manifest.
std::set<std::string> ManifestsOf(Cluster& cluster) {
  std::set<std::string> ids;
  for (const api::Checkpoint& checkpoint : cluster.CachedCheckpoints()) ids.insert({checkpoint.meta.uid, checkpoint.status.manifest_id});
  return ids;
}

using Uids = std::vector<std::string>;

// What the journal asks for does not wait for the API server's first list, and goes before what that brings.
kube::Source AtOnce(kube::Source source) {
  source.wait_for_sync = nullptr;
  return source;
}

// Takes what is ours off the node.
Status Clear(kube::Client& client, const Json& node) {
  const std::string name = GetString(node, {"metadata", "name"});
  Json patch = UninstalledPatch();
  patch["metadata"]["uid"] = GetString(node, {"metadata", "uid"});
  HF_RETURN_IF_ERROR(client.Patch(kube::Node::kResource, "", name, kube::PatchType::kMerge, patch).status().With("node " + name));
  LogInfo("the label was removed; holdfast-runc and containerd's entry stay for the pods that run", {{"node", name}});
  return Status::Ok();
}

// Pods that the controller wants to know about, or does not any more.
kube::Predicate<kube::Pod> ToBeWatched() {
  return [](const kube::Pod* old, const kube::Pod* now) {
    const std::string before = old == nullptr ? "" : old->meta.Annotation(api::kIdleWatch);
    const std::string after = now == nullptr ? "" : now->meta.Annotation(api::kIdleWatch);
    return before != after || (!after.empty() && old != nullptr && (old->phase != now->phase || old->meta.uid != now->meta.uid));
  };
}

bool Gone(const Status& status) { return status.code() == Code::kNotFound || status.code() == Code::kConflict; }

}  // namespace

Status RunAgent(const AgentOptions& options, std::stop_token stop) {
  Clock& clock = Clock::Real();
  const Layout layout = LayoutOf(options);
  HF_RETURN_IF_ERROR(layout.Make());
  int host_pid = options.host_pid;
  if (host_pid == 0) {
    HF_ASSIGN_OR_RETURN(host_pid, FindNodeProcess());
  }
  HF_ASSIGN_OR_RETURN(kube::ClientConfig config, kube::LoadConfig(options.kubeconfig));
  HF_RETURN_IF_ERROR(kube::ExpiredForGood(config, clock.Wall()).With("kubeconfig " + options.kubeconfig));
  Metrics metrics;
  kube::ServerClock server(clock);
  kube::Client client(kube::TellTime(kube::CountRequests(kube::MakeCurlTransport(config), metrics.runtime(), config.server), server),
                      Clock::Real(), &metrics.runtime());
  KubeCluster cluster(client, options.node_name, &metrics.runtime());
  HostNode node(layout, host_pid, RuncRoot(options));
  Journal journal(layout.JournalFolder());
  const RemoteStores remote = OpenStores(options);
  std::map<std::string, storage::Store*> by_name;
  for (const auto& [name, store] : remote) by_name[name] = store.get();
  Stores stores(
      std::move(by_name),
      [&remote](const std::string& name, MonoTime deadline, std::stop_token token) -> std::unique_ptr<storage::Store> {
        return remote.at(name)->Within(deadline, std::move(token));
      },
      clock,
      [&remote](const std::string& name, MonoTime deadline, std::stop_token token) -> Result<uint64_t> {
        HF_ASSIGN_OR_RETURN(const storage::StoreSpace space, remote.at(name)->Within(deadline, std::move(token))->Space());
        return space.room_bytes;
      });

  kube::AdmissionServer pages;
  std::atomic<bool> ready = false;
  pages.Serve("/healthz", [] { return std::pair(200, std::string("ok\n")); });
  pages.Serve("/readyz", [&] { return ready ? std::pair(200, std::string("ok\n")) : std::pair(503, std::string("starting\n")); });
  pages.Serve("/metrics", [&] {
    metrics.KeptFrozen(static_cast<int>(ListDir(layout.Pods()).value_or({}).size()));
    return std::pair(200, metrics.Render());
  });
  HF_RETURN_IF_ERROR(pages.StartPlain(options.listen_address, options.listen_port).With("the pages /healthz, /readyz and /metrics"));
  HF_ASSIGN_OR_RETURN(kube::Node self, WaitForNode(cluster, options.node_name, clock, stop));
  std::unique_ptr<Kubelet> kubelet = MakeKubelet(options, self, node.Path(""));

  ExecutorOptions executing;
  executing.node_name = options.node_name;
  executing.ingest = storage::Ingest;
  LandingMemory memory(options.landing_memory_bytes, layout);
  Status opened = memory.Open(host_pid);
  if (!opened.ok()) LogWarning("no dump lands in memory", {{"error", opened.message()}});
  executing.memory = &memory;
  executing.boot_id = BootId();
  executing.ahead_of_node = [&server] { return server.ahead(); };
  executing.keep_whole_bytes = std::max(executing.keep_whole_bytes, options.cache_bytes);
  DiskRoom disk(LookAtDisk, {.folder = layout.state + "/landing", .bytes = options.landing_disk_bytes});
  executing.disk = &disk;
  executing.free_part = [&layout] { return FreePart(layout.state + "/landing"); };
  Cache cache({.max_bytes = options.cache_bytes, .free_part = [&layout] { return FreePart(layout.state); }}, layout, stores, clock);
  cache.Recover();
  executing.keep = [&cache](const std::string& landing, const std::string& manifest, const std::string& store) {
    cache.Adopt(landing, manifest, store);
  };
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Fence> fence, Fence::Open(layout.TermFile()));
  executing.admit = [&fence](int64_t term) { return fence->Admit(term); };
  std::unique_ptr<GpuMetrics> gpus;
  if (!options.gpu_metrics_url.empty()) gpus = std::make_unique<GpuMetrics>(kube::MakeCurlTransport({}), options.gpu_metrics_url, clock);
  HostMeter meter(node, RuncRoot(options), gpus.get());
  IdleWatcher idle({.ahead_of_node = [&server] { return server.ahead(); }}, layout, meter, cluster, clock);
  executing.still_idle = [&idle](const kube::Pod& pod) { return idle.StillIdle(pod); };
  Executor executor(executing, layout, journal, node, *kubelet, stores, cluster, metrics, server);

  Turns turns(options.workers);
  kube::ControllerOptions checkpointing{.name = "checkpoint", .workers = ThreadsFor(options.workers), .timeout = std::chrono::hours(1)};
  checkpointing.metrics = &metrics.runtime();
  checkpointing.backoff = {std::chrono::milliseconds(50), std::chrono::seconds(5)};
  kube::Controller checkpoints(checkpointing, Reconciling([&](const std::string& uid, std::stop_token s) {
                                 return RunInTurn(turns, executor, journal, cluster, server, uid, s);
                               }));
  std::unique_ptr<Restorer> restorer;
  kube::ControllerOptions restoring{.name = "restore", .workers = options.workers, .timeout = std::chrono::hours(1)};
  restoring.metrics = &metrics.runtime();
  restoring.backoff = {std::chrono::milliseconds(50), std::chrono::seconds(5)};
  kube::Controller restores(restoring, Reconciling([&](const std::string& key, std::stop_token s) { return restorer->Run(key, s); }));
  kube::ControllerOptions watching_use{.name = "idle", .workers = kIdleWorkers, .timeout = std::chrono::minutes(1)};
  watching_use.metrics = &metrics.runtime();
  kube::Controller idles(watching_use, Reconciling([&](const std::string& key, std::stop_token s) { return idle.Look(key, s); }));
  RestorerOptions restore_options;
  restore_options.node_name = options.node_name;
  restore_options.boot_id = BootId();
  restore_options.disk = &disk;
  restore_options.patience = options.restore_patience;
  restore_options.fetch = storage::Fetch;
  restore_options.kept = [&cache](const std::string& id, const std::string& dir, const storage::IngestOptions& o) {
    return cache.Take(id, dir, o);
  };
  restore_options.enqueue = [&restores](const std::string& key) { restores.Enqueue(key); };
  restorer = std::make_unique<Restorer>(restore_options, layout, journal, node, stores, cluster, metrics, server);

  Result<std::vector<std::string>> unfinished = executor.Recover();
  if (!unfinished.ok()) return unfinished.status().With("the journal");
  for (const std::string& uid : *unfinished) checkpoints.Enqueue(uid);
  for (const std::string& key : restorer->Recover()) restores.EnqueueAfter(key, std::chrono::seconds(1));
  checkpoints.AddSource(
      AtOnce(kube::Watch(cluster.checkpoints(), checkpoints, {.keys = [](const api::Checkpoint& c) { return Uids{c.meta.uid}; }})));
  checkpoints.AddSource(AtOnce(kube::Watch(cluster.pods(), checkpoints, {.keys = [&executor](const kube::Pod& pod) {
                                             std::optional<std::string> uid = executor.CheckpointOf(pod.meta.uid);
                                             return uid ? Uids{*uid} : Uids{};
                                           }})));
  restores.AddSource(AtOnce(kube::Watch(cluster.pods(), restores)));
  idles.AddSource(AtOnce(kube::Watch(cluster.pods(), idles, {.when = ToBeWatched()})));
  // A lock is of no use to anybody once its pod is gone.
  cluster.pods().AddHandler([&layout](const auto& old, const auto& now) {
    const bool gone = old != nullptr && (now == nullptr || old->meta.uid != now->meta.uid);
    if (gone && IsSafeName(old->meta.uid)) unlink(layout.PodLock(old->meta.uid).c_str());
  });
  Stopper stopper({.enabled = options.on_stop}, layout, cluster, clock);
  SocketServer socket({.path = layout.Socket()},
                      [&](const Json& question, std::stop_token s) { return AnswerQuestion(*restorer, stopper, question, s); });
  // Before anything else is done here: what was replaced while this node was out of contact must not go on.
  Warden warden({.node_name = options.node_name}, layout, node, cluster, server);
  std::jthread watching([&](std::stop_token s) { warden.Run(s); });
  HF_RETURN_IF_ERROR(socket.Start());
  HF_RETURN_IF_ERROR(checkpoints.Start());
  HF_RETURN_IF_ERROR(restores.Start());
  HF_RETURN_IF_ERROR(idles.Start());
  cluster.Start();
  LogInfo("holdfast-agent runs", {{"node", options.node_name}, {"version", HOLDFAST_VERSION}, {"host_pid", host_pid}});

  RealHost host(node, options.install_from);
  Installer installer(host, [&layout](std::string* why) { return NodeIsBusy(layout, why); }, clock, {.state_dir = layout.state});
  NodeKeeper keeper(installer, cluster, options.node_name, clock);
  std::jthread keeping;
  if (options.install) keeping = std::jthread([&](std::stop_token s) { keeper.Run(s); });
  MonoTime cache_swept = clock.Mono();
  for (bool swept = false; clock.Sleep(std::chrono::milliseconds(200), stop);) {
    ready = cluster.synced() && (!options.install || keeper.settled());
    if (cluster.synced() && clock.Mono() - cache_swept >= kSweepEvery) {
      cache.Sweep(ManifestsOf(cluster));
      if (!opened.ok() && options.landing_memory_bytes == 0) opened = memory.Open(host_pid);
      cache_swept = clock.Mono();
    }
    if (cluster.synced() && !swept) RemoveOldLocks(layout, cluster.PodUids());
    swept = swept || cluster.synced();
  }

  LogInfo("stopping; what is in flight goes on with the next agent");
  ready = false;
  keeping = {};
  watching = {};
  socket.Stop();
  checkpoints.Stop();
  restores.Stop();
  idles.Stop();
  cluster.Stop();
  pages.Stop();
  memory.Close();
  return Status::Ok();
}

Status Uninstall(const AgentOptions& options) {
  HF_ASSIGN_OR_RETURN(kube::ClientConfig config, kube::LoadConfig(options.kubeconfig));
  kube::Client client(kube::MakeCurlTransport(config));
  std::vector<Json> nodes;  // no more of each than its name and uid
  if (options.node_name.empty()) {
    auto read = [](const Json& node) -> std::optional<Json> {
      const Json& meta = GetObject(node, {"metadata"});
      return Json{{"metadata", {{"name", GetString(meta, {"name"})}, {"uid", GetString(meta, {"uid"})}}}};
    };
    const kube::ListSpec list{.resource = kube::Node::kResource, .scope = {.label_selector = api::kNodeReady}, .metadata_only = true};
    HF_ASSIGN_OR_RETURN(nodes, kube::Gather<Json>(client, list, read, {}));
  } else {
    Result<Json> node = client.Get(kube::Node::kResource, "", options.node_name);
    if (!node.ok() && !Gone(node.status())) return node.status().With("node " + options.node_name);
    if (node.ok()) nodes.push_back(std::move(*node));
  }
  for (const Json& node : nodes) {
    Status cleared = Clear(client, node);
    if (!cleared.ok() && !Gone(cleared)) return cleared;  // gone: there is nothing to clear
  }
  return Status::Ok();
}

}  // namespace holdfast::agent
