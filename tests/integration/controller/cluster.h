// A cluster of objects: a real API server with our CRDs, nodes and workloads that exist on paper only, and hands that do what scheduler,
// kubelet, ReplicaSet controller and holdfast-agent would.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "api/suspended_workload.h"
#include "controller/app.h"
#include "kube/client.h"
#include "kube/objects.h"
#include "tests/eventually.h"
#include "tests/integration/api_server.h"

namespace holdfast::testing {

// Waits until `ready`, at most `timeout`.
Status ApplyCrds(const std::string& kubeconfig);

class Cluster {
 public:
  static Cluster& Shared();  // CRDs, RuntimeClass, two ready nodes, the webhook configurations
  kube::Client& client() { return *client_; }
  int webhook_port() const { return webhook_port_; }

  std::string MakeNamespace();
  void Empty(const std::string& ns);  // for who watches all namespaces, and would see what earlier tests have left
  // A Deployment of one replica and its ReplicaSet. Returns the pods' ownerReference.
  Json MakeWorkload(const std::string& ns, const std::string& name, const Json& annotations);
  Result<Json> MakePod(const std::string& ns, const std::string& name, const std::string& app, const Json& owner,
                       const Json& annotations = Json::object(), const kube::CallOptions& options = {});
  Status RunPod(const std::string& ns, const std::string& name, const std::string& node);  // bound, Running
  void EndPod(const std::string& ns, const std::string& name);                             // gone at once
  Json Pod(const std::string& ns, const std::string& name);                                // null when there is none
  std::vector<api::Checkpoint> Checkpoints(const std::string& ns);
  std::optional<api::Checkpoint> FindCheckpoint(const std::string& ns, const std::string& name);
  bool HasPhase(const std::string& ns, const std::string& checkpoint, api::Phase phase);  // and is there
  Status PatchCheckpoint(const api::Checkpoint& c, const Json& patch);
  std::vector<std::string> EventNotes(const std::string& ns, const std::string& reason);

 private:
  Cluster();
  std::unique_ptr<kube::Client> client_;
  int webhook_port_ = 0;
  std::atomic<int> namespaces_ = 0;
};

// One replica of the controller, in this process.
class Replica {
 public:
  explicit Replica(const std::string& identity, int webhook_port = 0, const std::string& lease_ns = "holdfast-system");
  Replica(std::shared_ptr<kube::Transport> api_server, controller::AppOptions options);
  ~Replica();
  static controller::AppOptions Options(const std::string& identity, int webhook_port, const std::string& lease_ns);
  static std::shared_ptr<kube::Transport> Connect();  // as the controller
  bool WaitReady(Duration timeout = std::chrono::seconds(30));
  controller::App& app() { return *app_; }

 private:
  std::unique_ptr<controller::App> app_;
  std::jthread thread_;
};

// Takes up every assigned Checkpoint and makes it Ready in four steps, as an agent does that has nothing to dump.
class FakeAgent {
 public:
  // `fails`: at the dump, of every pod, or of `only` that one.
  explicit FakeAgent(Cluster& cluster, std::string ns, bool fails = false, std::string only = "");
  ~FakeAgent();

 private:
  void Step(const api::Checkpoint& c);
  Cluster& cluster_;
  const std::string ns_;
  const bool fails_;
  const std::string only_;
  std::jthread thread_;
};

// What the controllers of Deployments and ReplicaSets, a scheduler and kubelets do for Deployment web and its ReplicaSet: as many pods as
// it asks for, named web-1, web-2, …; on node-a when no gate holds them. What a pod that has claimed a checkpoint does with it, an agent
// reports. With a null owner there is no Deployment, and the pods labelled app=web are those that others make.
class FakeDeployment {
 public:
  FakeDeployment(Cluster& cluster, std::string ns, Json owner, int first = 1);
  ~FakeDeployment();
  // Pods that are bound stay Pending: no node has room.
  std::atomic<bool> no_room = false;

 private:
  void Step();
  void Report(const std::string& pod);
  Cluster& cluster_;
  const std::string ns_;
  const Json owner_;
  int next_;
  std::jthread thread_;
};

}  // namespace holdfast::testing
