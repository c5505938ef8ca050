#include "tests/sim/process.h"

#include "api/stores.h"
#include "kube/source.h"

namespace holdfast::sim {
namespace {

controller::PodWebhookOptions PodWebhooks() { return {.wait_image = "holdfast:1"}; }

controller::EvictionWebhookOptions EvictionWebhooks(const ControllersStore& store) {
  return {.own_username = kControllerUser, .own_namespace = kOwnNamespace, .store_down = [&] { return store.down(); }};
}

controller::Leadership::Options Leading(const ControllersStore& store) {
  controller::Leadership::Options options;
  options.store_down = [&] { return store.down(); };
  options.workers = 1;  // of each kind: two could wait for one another's mutex, and here that is for ever
  options.ns = kOwnNamespace;
  return options;
}

}  // namespace

ControllerProcess::ControllerProcess(Turns& turns, std::shared_ptr<Wire> wire, Store& store, const std::string& identity)
    : turns_(turns),
      wire_(std::move(wire)),
      store_(store.ForController()),
      metrics_({api::kDefaultStore}),
      client_(wire_, turns, &metrics_.runtime()),
      events_(client_, "holdfast-controller", identity, &metrics_.runtime()),
      caches_(client_),
      context_{caches_, client_, events_, turns, [this](const Json& checkpoint) { caches_.checkpoints.Observe(checkpoint); }},
      leadership_(caches_, context_, metrics_, store_->contents(), store_->meter(), Leading(*store_)),
      creator_(client_),
      pods_(caches_, ended_, PodWebhooks(), turns),
      evictions_(context_, creator_, EvictionWebhooks(*store_)) {
  caches_.pods.AddHandler([this](const auto& old, const auto& now) { ended_.Saw(old, now); });
  main_ = Thread([this](std::stop_token stop) {
    caches_.Start();
    ready_ = turns_.Await([this] { return caches_.synced(); }, MonoTime::max(), stop);
  });
}

ControllerProcess::~ControllerProcess() {
  dead_ = true;
  (void)turns_.Await([this] { return asking_ == 0; });
  main_ = {};
  leadership_.Stop();
  creator_.Stop();
  caches_.Stop();
}

void ControllerProcess::Kill() {
  dead_ = true;
  wire_->Kill();
  store_->Kill();
}

std::optional<kube::AdmissionResponse> ControllerProcess::MutatePod(const kube::AdmissionRequest& request) {
  ++asking_;
  kube::AdmissionResponse response = pods_.Handle(request);
  --asking_;
  return dead_ ? std::nullopt : std::optional(std::move(response));
}

std::optional<kube::AdmissionResponse> ControllerProcess::ValidateEviction(const kube::AdmissionRequest& request) {
  ++asking_;
  kube::AdmissionResponse response = evictions_.Handle(request);
  --asking_;
  return dead_ ? std::nullopt : std::optional(std::move(response));
}

class AgentProcess::Hands final : public agent::Node, public agent::Kubelet {
 public:
  Hands(Machine& machine, const bool& dead) : machine_(machine), dead_(dead) {}
  Result<uint64_t> Estimate(const std::vector<std::string>& ids, const std::vector<std::string>& folders) override {
    return machine_.Estimate(ids, folders);
  }
  Status StartDump(const std::string& uid, const std::string& landing) override {
    return dead_ ? Dead() : machine_.StartDump(uid, landing);
  }
  bool DumpRunning(const std::string& uid, const std::string& pod) override { return !dead_ && machine_.DumpRunning(uid, pod); }
  Status KillDump(const std::string& uid) override { return dead_ ? Dead() : machine_.KillDump(uid); }
  Status Resume(const std::string& id) override { return dead_ ? Dead() : machine_.Resume(id); }
  Result<agent::ContainerState> StateOf(const std::string& id) override {
    return dead_ ? Result<agent::ContainerState>(Dead()) : machine_.StateOf(id);
  }
  Result<std::vector<agent::NodeContainer>> Containers() override {
    return dead_ ? Result<std::vector<agent::NodeContainer>>(Dead()) : machine_.Containers();
  }
  Status End(const std::vector<std::string>& ids) override { return dead_ ? Dead() : machine_.End(ids); }
  Status RemoveContainer(const std::string& id) override { return dead_ ? Dead() : machine_.RemoveContainer(id); }
  std::string DumpOutput(const std::string& uid) override { return machine_.DumpOutput(uid); }
  Json Platform() override { return machine_.Platform(); }
  Result<std::string> Checkpoint(const std::string&, const std::string&, const std::string&, Duration, std::stop_token) override {
    return Status(Code::kUnsupported, "the kubelet of a simulation makes no archives");
  }

 private:
  static Status Dead() { return {Code::kCancelled, "this process has died"}; }
  Machine& machine_;
  const bool& dead_;
};

AgentProcess::AgentProcess(Turns& turns, std::shared_ptr<Wire> wire, Machine& machine, Store& store)
    : AgentProcess(turns, std::move(wire), machine, store, Fence::Open(machine.layout().TermFile())) {}

AgentProcess::AgentProcess(Turns& turns, std::shared_ptr<Wire> wire, Machine& machine, Store& store, Result<std::unique_ptr<Fence>> fence)
    : turns_(turns),
      wire_(std::move(wire)),
      machine_(machine),
      store_(store.ForAgent(machine.name())),
      server_(machine.clock()),
      client_(kube::TellTime(wire_, server_), turns, &metrics_.runtime()),
      cluster_(client_, machine.name(), &metrics_.runtime()),
      journal_(machine.layout().JournalFolder()),
      stores_({{api::kDefaultStore, &store_->store()}}, store_->Within(), turns),
      fence_(std::move(*fence)),
      hands_(std::make_unique<Hands>(machine, dead_)) {
  const agent::Layout layout = machine.layout();
  agent::ExecutorOptions executing;
  executing.node_name = machine.name();
  executing.boot_id = machine.boot_id();
  executing.ahead_of_node = [this] { return server_.ahead(); };
  executing.admit = [this](int64_t term) { return fence_->Admit(term); };
  executing.ingest = [this, &store](const std::string& dir, storage::Session& session,
                                    const storage::IngestOptions& how) -> Result<std::vector<storage::FileEntry>> {
    HF_RETURN_IF_ERROR(store.Carry(turns_, machine_.pod_bytes, how));
    return store_->Ingest(dir, session, how);
  };
  executor_ = std::make_unique<agent::Executor>(executing, layout, journal_, *hands_, *hands_, stores_, cluster_, metrics_, server_);
  kube::ControllerOptions checkpointing{.name = "checkpoint", .workers = agent::ThreadsFor(kWorkers), .timeout = std::chrono::hours(1)};
  checkpointing.backoff = {std::chrono::milliseconds(50), std::chrono::seconds(5)};
  kube::ControllerOptions restoring = checkpointing;
  restoring.name = "restore";
  restoring.workers = kWorkers;
  using Again = Result<kube::ReconcileResult>;
  checkpoints_ = std::make_unique<kube::Controller>(
      checkpointing,
      [this](const std::string& uid, std::stop_token stop) -> Again {
        HF_ASSIGN_OR_RETURN(std::optional<Duration> again, RunInTurn(turn_of_, *executor_, journal_, cluster_, server_, uid, stop));
        return kube::ReconcileResult{again};
      },
      turns);
  restores_ = std::make_unique<kube::Controller>(
      restoring,
      [this](const std::string& key, std::stop_token stop) -> Again {
        HF_ASSIGN_OR_RETURN(std::optional<Duration> again, restorer_->Run(key, stop));
        return kube::ReconcileResult{again};
      },
      turns);
  agent::RestorerOptions restore;
  restore.node_name = machine.name();
  restore.boot_id = machine.boot_id();
  restore.fetch = [this](storage::Store& from, const std::string& manifest, const std::string& dir, const storage::IngestOptions& how) {
    return store_->Fetch(from, manifest, dir, how);
  };
  restore.enqueue = [this](const std::string& key) { restores_->Enqueue(key); };
  restorer_ = std::make_unique<agent::Restorer>(restore, layout, journal_, *hands_, stores_, cluster_, metrics_, server_);

  for (const std::string& uid : executor_->Recover().value_or({})) checkpoints_->Enqueue(uid);
  for (const std::string& key : restorer_->Recover()) restores_->EnqueueAfter(key, std::chrono::seconds(1));
  auto at_once = [](kube::Source source) {
    source.wait_for_sync = nullptr;
    return source;
  };
  using Uids = std::vector<std::string>;
  checkpoints_->AddSource(
      at_once(kube::Watch(cluster_.checkpoints(), *checkpoints_, {.keys = [](const api::Checkpoint& c) { return Uids{c.meta.uid}; }})));
  checkpoints_->AddSource(at_once(kube::Watch(cluster_.pods(), *checkpoints_, {.keys = [this](const kube::Pod& pod) {
                                                const std::optional<std::string> uid = executor_->CheckpointOf(pod.meta.uid);
                                                return uid ? Uids{*uid} : Uids{};
                                              }})));
  restores_->AddSource(at_once(kube::Watch(cluster_.pods(), *restores_)));
  warden_ = std::make_unique<agent::Warden>(agent::WardenOptions{.node_name = machine.name()}, layout, *hands_, cluster_, server_);
  watching_ = Thread([this](std::stop_token stop) { warden_->Run(stop); });
  machine_.socket = this;
  (void)checkpoints_->Start();
  (void)restores_->Start();
  cluster_.Start();
}

AgentProcess::~AgentProcess() {
  if (machine_.socket == this) machine_.socket = nullptr;
  closing_.request_stop();
  (void)turns_.Await([this] { return asking_ == 0; });
  watching_ = {};
  checkpoints_->Stop();
  restores_->Stop();
  cluster_.Stop();
}

void AgentProcess::Kill() {
  dead_ = true;
  wire_->Kill();
  store_->Kill();
  machine_.NewLife();
}

runtime::CreateAnswer AgentProcess::Create(const runtime::CreateQuestion& question) {
  ++asking_;
  runtime::CreateAnswer answer = restorer_->Create(question, closing_.get_token());
  --asking_;
  if (!dead_) return answer;
  answer = {};
  answer.action = "refuse";
  return answer;
}

runtime::CreateAnswer AgentProcess::Outcome(const runtime::RestoreOutcome& outcome) {
  ++asking_;
  runtime::CreateAnswer answer = restorer_->Outcome(outcome);
  --asking_;
  return answer;
}

}  // namespace holdfast::sim
