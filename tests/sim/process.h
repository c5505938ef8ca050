// The product's own processes, made of its own parts as their main files make them, without sockets, TLS and pages.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/executor.h"
#include "agent/kube_cluster.h"
#include "agent/restorer.h"
#include "agent/turns.h"
#include "agent/warden.h"
#include "base/fence.h"
#include "controller/eviction_webhook.h"
#include "controller/leadership.h"
#include "controller/pod_webhook.h"
#include "kube/server_time.h"
#include "tests/sim/kubernetes.h"
#include "tests/sim/machine.h"
#include "tests/sim/store.h"
#include "tests/sim/wire.h"

namespace holdfast::sim {

inline constexpr char kControllerUser[] = "system:serviceaccount:holdfast-system:holdfast-controller";

// holdfast-controller (controller/app.cc), one replica.
class ControllerProcess {
 public:
  ControllerProcess(Turns& turns, std::shared_ptr<Wire> wire, Store& store, const std::string& identity);
  ~ControllerProcess();  // on a fiber
  bool ready() const { return ready_ && !dead_; }
  std::string Unsynced() const { return caches_.Unsynced(); }
  // It has the lease. Once, when it is ready.
  void Lead(int64_t term) { leadership_.Start(term); }
  // Nothing: it died meanwhile.
  std::optional<kube::AdmissionResponse> MutatePod(const kube::AdmissionRequest& request);
  std::optional<kube::AdmissionResponse> ValidateEviction(const kube::AdmissionRequest& request);
  Wire& wire() { return *wire_; }
  void Kill();  // as AgentProcess::Kill
  bool dead() const { return dead_; }

 private:
  Turns& turns_;
  const std::shared_ptr<Wire> wire_;
  const std::unique_ptr<ControllersStore> store_;
  controller::Metrics metrics_;
  kube::Client client_;
  kube::EventRecorder events_;
  controller::EndedPods ended_{turns_};
  controller::Caches caches_;
  reconcilers::Context context_;
  controller::Leadership leadership_;
  controller::CheckpointCreator creator_;
  controller::PodWebhook pods_;
  controller::EvictionWebhook evictions_;
  bool ready_ = false, dead_ = false;
  int asking_ = 0;  // calls of the webhooks that are under way
  Thread main_;
};

// holdfast-agent (agent/agent.cc) on one machine.
class AgentProcess final : public Socket {
 public:
  AgentProcess(Turns& turns, std::shared_ptr<Wire> wire, Machine& machine, Store& store);
  ~AgentProcess() override;  // on a fiber
  runtime::CreateAnswer Create(const runtime::CreateQuestion& question) override;
  runtime::CreateAnswer Outcome(const runtime::RestoreOutcome& outcome) override;
  // It died: what its threads still do reaches nobody. To be destroyed soon.
  void Kill();
  bool dead() const { return dead_; }
  Wire& wire() { return *wire_; }

 private:
  AgentProcess(Turns& turns, std::shared_ptr<Wire> wire, Machine& machine, Store& store, Result<std::unique_ptr<Fence>> fence);

  Turns& turns_;
  const std::shared_ptr<Wire> wire_;
  Machine& machine_;
  const std::unique_ptr<AgentsStore> store_;
  agent::Metrics metrics_;
  kube::ServerClock server_;
  kube::Client client_;
  agent::KubeCluster cluster_;
  agent::Journal journal_;
  agent::Stores stores_;
  std::unique_ptr<Fence> fence_;
  // The machine as this process sees it: not at all, once it is dead.
  class Hands;
  const std::unique_ptr<Hands> hands_;
  static constexpr int kWorkers = 4;
  agent::Turns turn_of_{kWorkers};
  std::unique_ptr<agent::Executor> executor_;
  std::unique_ptr<agent::Restorer> restorer_;
  std::unique_ptr<kube::Controller> checkpoints_, restores_;
  std::unique_ptr<agent::Warden> warden_;
  std::stop_source closing_;
  int asking_ = 0;  // calls of the socket that are under way
  bool dead_ = false;
  Thread watching_;
};

}  // namespace holdfast::sim
