// The controller that leads is disturbed at every point of a scenario (sieve_transport.h): the end state, and how many objects were created
// and deleted on the way, are those of the run that nothing disturbed. Another replica answers the webhooks, and never leads.
#include "tests/integration/controller/sieve_transport.h"

#include "api/restore_policy.h"
#include "kube/lease.h"
#include "reconcilers/claims.h"
#include "reconcilers/restorepolicy/survey.h"
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/fake_store.h"
#include "tests/this_commit.h"

namespace holdfast::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kAtOnce = 4;  // disturbed replicas beside each other

// Counts what happens to a namespace's Checkpoints and pods, as the API server tells it.
class Observer {
 public:
  explicit Observer(const std::string& ns) : transport_(kube::MakeCurlTransport(ApiServer::Shared().config())) {
    for (const kube::Resource* resource : {&api::Checkpoint::kResource, &kube::Pod::kResource}) {
      threads_.emplace_back([this, ns, resource](std::stop_token stop) { Watch(*resource, ns, stop); });
    }
  }
  std::map<std::string, int> counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void Watch(const kube::Resource& resource, const std::string& ns, std::stop_token stop) {
    kube::HttpRequest request;
    request.path = resource.Path(ns) + "?watch=1&resourceVersion=0&timeoutSeconds=600";
    request.idle_timeout = std::chrono::minutes(10);
    std::string rest;
    std::map<std::string, std::string> claims;
    (void)transport_->Stream(
        request,
        [&](std::string_view chunk) {
          rest += chunk;
          for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
            auto event = ParseJson(rest.substr(0, end));
            rest.erase(0, end + 1);
            const std::string type = GetString(*event, {"type"}), claim = GetString(*event, {"object", "status", "claim", "podName"});
            std::string& before = claims[GetString(*event, {"object", "metadata", "uid"})];
            std::lock_guard lock(mutex_);
            if (type != "MODIFIED") ++counts_[type + " " + resource.kind];
            if (claim != before && !claim.empty()) ++counts_["claimed by " + claim];
            before = claim;
          }
          return true;
        },
        stop);
  }
  std::unique_ptr<kube::Transport> transport_;
  mutable std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::vector<std::jthread> threads_;
};

// What all scenarios share: the replica that answers the webhooks and cannot lead, because the test holds its lease.
class Front {
 public:
  static Front& Shared() {
    if (!Held()) Held().reset(new Front());
    return *Held();
  }
  // With its tests: its webhooks have the port, and its CA the configurations, that other tests' controllers need.
  static void End() { Held().reset(); }
  const std::string& ns() const { return ns_; }
  std::string store_url() const { return store_.url(); }
  FakeStore& store() { return store_; }

 private:
  static std::unique_ptr<Front>& Held() {
    static std::unique_ptr<Front> front;
    return front;
  }
  Front() {
    EXPECT_TRUE(held_.Start().ok());
    EXPECT_TRUE(Eventually([&] { return held_.leading(); }));
    replica_ = std::make_unique<Replica>("front", Cluster::Shared().webhook_port(), ns_);
    EXPECT_TRUE(replica_->WaitReady());
    EXPECT_FALSE(replica_->app().leading());
  }
  const std::string ns_ = Cluster::Shared().MakeNamespace();
  kube::LeaderElector held_{Cluster::Shared().client(), {ns_, "holdfast-controller", "the test"}, [](int64_t) {}, [] {}};
  FakeStore store_;
  std::unique_ptr<Replica> replica_;
};

// The replica under test and, when it dies, the next one.
class Leader {
 public:
  // `past`: after a death the next one looks at a server that is behind, as far as this moment.
  Leader(std::string ns, const Disturbance& disturbance, bool past, bool on_stop)
      : ns_(std::move(ns)), past_(past ? VersionNow() : ""), on_stop_(on_stop) {
    Start(disturbance);
  }
  // Eventually, with the death and return of the leader on the way.
  bool Until(const std::function<bool()>& ready) {
    return Eventually(
        [&] {
          if (transport_->dead()) {
            Count();
            replica_.reset();
            Start({.stale_version = past_});
          }
          return ready();
        },
        seconds(60));
  }
  int writes() const { return writes_ + transport_->writes(); }
  int events() const { return events_ + transport_->events(); }

 private:
  static std::string VersionNow() {
    kube::HttpRequest request;
    request.path = "/api/v1/namespaces?limit=1";
    return GetString(Cluster::Shared().client().Raw(request).value_or(Json()), {"metadata", "resourceVersion"});
  }
  void Start(const Disturbance& disturbance) {
    transport_ = std::make_shared<SieveTransport>(Replica::Connect(), ns_, disturbance);
    auto options = Replica::Options("leader-of-" + ns_, 0, Front::Shared().ns());
    options.leader_elect = false;
    options.stores = {{api::kDefaultStore, Front::Shared().store_url()}};
    options.store_token_file.clear();
    options.on_stop = on_stop_;
    options.bare_pods = true;
    replica_ = std::make_unique<Replica>(transport_, options);
  }
  void Count() {
    writes_ += transport_->writes();
    events_ += transport_->events();
  }
  const std::string ns_, past_;
  const bool on_stop_;
  std::shared_ptr<SieveTransport> transport_;
  std::unique_ptr<Replica> replica_;
  int writes_ = 0, events_ = 0;
};

struct Case {
  Disturbance disturbance{};
  bool past = false;  // what the leader after a death sees first
};

struct Outcome {
  std::string ns;
  std::string end;  // objects and counts, as text
  int writes = 0, events = 0;
};

// Whoever drains is not the controller, whose own evictions pass.
std::shared_ptr<kube::Transport> Drainer() {
  static const auto config = ApiServer::Shared().ConfigOf("drainer", "system:masters");
  return kube::MakeCurlTransport(*config);
}

// One scenario from a namespace's first object to its last.
class Scenario {
 public:
  explicit Scenario(const Case& c, bool on_stop = false)
      : ns_(cluster_.MakeNamespace()), observer_(ns_), leader_(ns_, c.disturbance, c.past, on_stop), drainer_(Drainer()) {}
  virtual ~Scenario() = default;
  virtual bool Play() = 0;  // false: it did not come to its end
  Outcome Run() {
    Outcome outcome;
    outcome.ns = ns_;
    if (!Play()) outcome.end = "stuck\n";
    Settle();
    outcome.end += Describe();
    outcome.writes = leader_.writes();
    outcome.events = leader_.events();
    return outcome;
  }

 protected:
  std::string Field(const std::string& pod, const std::vector<std::string>& path) const {
    Json at = cluster_.Pod(ns_, pod);
    for (const std::string& key : path) at = at.is_object() && at.contains(key) ? at[key] : Json();
    return at.is_string() ? at.get<std::string>() : "";
  }
  bool Dying(const std::string& pod) const { return !Field(pod, {"metadata", "deletionTimestamp"}).empty(); }
  bool Gated(const std::string& pod) const { return !GetArray(cluster_.Pod(ns_, pod), {"spec", "schedulingGates"}).empty(); }

  bool RunWeb(const Json& annotations = {{api::kProtect, "true"}}, const Json& of_pod = Json::object()) {
    owner_ = cluster_.MakeWorkload(ns_, "web", annotations);
    kube::CallOptions dry;
    dry.dry_run = true;
    // Until the webhook's cache has its owner, and then the pod itself, it passes as any other.
    return leader_.Until([&] {
      auto made = cluster_.MakePod(ns_, "web-a", "web", owner_, Json::object(), dry);
      return made.ok() && GetString(*made, {"spec", "runtimeClassName"}) == "holdfast";
    }) && cluster_.MakePod(ns_, "web-a", "web", owner_, of_pod).ok() &&
           cluster_.RunPod(ns_, "web-a", "node-a").ok() && IsKnownToRun("web-a");
  }
  // By the leader's cache, as its answer to an eviction shows.
  bool IsKnownToRun(const std::string& pod) {
    kube::CallOptions dry;
    dry.dry_run = true;
    return leader_.Until([&] { return drainer_.Evict(ns_, pod, {}, dry).code() == Code::kResourceExhausted; });
  }
  // As kubectl drain does; the ReplicaSet controller and the kubelet do their part.
  bool DrainWeb() {
    if (!leader_.Until([&] {
          if (!Dying("web-a")) (void)drainer_.Evict(ns_, "web-a", {}).ok();
          return Dying("web-a");
        }))
      return false;
    if (!cluster_.MakePod(ns_, "web-b", "web", owner_).ok()) return false;
    cluster_.EndPod(ns_, "web-a");
    return leader_.Until([&] { return !Gated("web-b"); });
  }

  // Of web-a, as a user does; its uid.
  std::string MakeCheckpoint(const std::string& name, Json spec) {
    spec["podRef"]["name"] = "web-a";
    auto made = cluster_.client().Create(
        api::Checkpoint::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "Checkpoint"}, {"metadata", {{"name", name}}}, {"spec", spec}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return GetString(*made, {"metadata", "uid"});
  }
  // When the webhook's cache knows why it is to wait.
  bool MakeGatedSuccessor(const std::string& name = "web-b") {
    kube::CallOptions dry;
    dry.dry_run = true;
    return leader_.Until([&] {
      auto seen = cluster_.MakePod(ns_, name, "web", owner_, Json::object(), dry);
      return seen.ok() && !GetArray(*seen, {"spec", "schedulingGates"}).empty();
    }) && cluster_.MakePod(ns_, name, "web", owner_).ok();
  }
  bool Comes(const std::string& checkpoint, api::Phase phase) {
    return leader_.Until([&] { return cluster_.HasPhase(ns_, checkpoint, phase); });
  }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_;
  Observer observer_;
  Leader leader_;
  kube::Client drainer_;
  Json owner_;
  Duration quiet_ = seconds(1);  // after which nothing comes any more

 private:
  // Nothing happens any more: the leader is alive and has not written for a while.
  void Settle() {
    int last = -1;
    MonoTime since = Clock::Real().Mono();
    (void)leader_.Until([&] {
      const MonoTime now = Clock::Real().Mono();
      if (leader_.writes() != last) {
        last = leader_.writes();
        since = now;
      }
      return now - since > quiet_;
    });
  }
  std::string Describe() const {
    std::string text;
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) {
      text += "checkpoint of " + c.spec.pod_name + ": " + std::string(api::PhaseName(c.status.phase)) +
              (c.Ready() ? " " + c.Ready()->reason : "") + (c.Ready() && !c.done() ? " (" + c.Ready()->message + ")" : "") +
              (c.status.claim ? ", claimed by " + c.status.claim->pod_name : "") + (c.spec.pinned ? ", pinned" : "");
      for (const char* type : {api::kDamaged, reconcilers::restorepolicy::kOrphanedCondition}) {
        if (kube::FindCondition(c.status.conditions, type) != nullptr) text += std::string(", ") + type;
      }
      text += "\n";
    }
    for (const Json& pod : cluster_.client().List(kube::Pod::kResource, {ns_, "", ""}).value_or({})) {
      const std::string name = GetString(pod, {"metadata", "name"});
      text += "pod " + name + (Gated(name) ? ", gated" : "") +
              (Field(name, {"metadata", "annotations", api::kRestore}).empty() ? "" : ", restores") + "\n";
    }
    for (const Json& object : cluster_.client().List(api::SuspendedWorkload::kResource, {ns_, "", ""}).value_or({})) {
      const Json& status = GetObject(object, {"status"});
      text += "suspendedworkload: " + GetString(status, {"phase"}) + ", holds " + std::to_string(GetArray(status, {"checkpoints"}).size()) +
              "\n";
    }
    for (const Json& object : cluster_.client().List(api::RestorePolicy::kResource, {ns_, "", ""}).value_or({})) {
      const api::RestorePolicy policy = api::RestorePolicy::FromJson(object);
      text += "restorepolicy: " + std::to_string(policy.status.protected_pods) + " of " + std::to_string(policy.status.matched) +
              " protected, stored " + std::to_string(policy.status.stored_bytes) + ", keeps " +
              std::to_string(GetInt(policy.status.retention, {"kept"})) + "\n";
    }
    if (auto web = cluster_.client().Get(kube::Deployment::kResource, ns_, "web"); web.ok()) {
      text += "deployment: " + std::to_string(GetInt(*web, {"spec", "replicas"})) +
              (GetString(*web, {"metadata", "annotations", api::kAsleep}).empty() ? "" : ", asleep") + "\n";
    }
    // Whoever starts cold, or with an older state, is told so on the pod and on the Checkpoint, once each; of damage on the Checkpoint.
    for (const char* reason : {"ColdStart", "StateIsOlder", "Damaged", "Mended"}) {
      text += std::string(reason) + " events: " + std::to_string(cluster_.EventNotes(ns_, reason).size()) + "\n";
    }
    for (const auto& [what, count] : observer_.counts()) text += what + ": " + std::to_string(count) + "\n";
    return text;
  }
};

class Drain : public Scenario {
 public:
  explicit Drain(const Case& c, bool agent_fails = false) : Scenario(c), agent_(cluster_, ns_, agent_fails) {}
  bool Play() override { return RunWeb() && DrainWeb(); }

 private:
  FakeAgent agent_;
};

// The agent cannot dump: the pod goes without its state, and its successor starts cold.
class FailingDrain : public Drain {
 public:
  explicit FailingDrain(const Case& c) : Drain(c, true) {}
  bool Play() override {
    return Drain::Play() && leader_.Until([&] { return cluster_.EventNotes(ns_, "ColdStart").size() == 2; });
  }
};

// A pod is deleted, as kubectl delete does it. It ends when its agent has dumped it, and its successor goes on from there.
class Stopped : public Scenario {
 public:
  explicit Stopped(const Case& c) : Scenario(c, true), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    EXPECT_TRUE(cluster_.client().Delete(kube::Pod::kResource, ns_, "web-a").ok());
    const bool dumped = MakeGatedSuccessor() && leader_.Until([&] {
      const auto all = cluster_.Checkpoints(ns_);
      return all.size() == 1 && all[0].status.phase == api::Phase::kReady;
    });
    cluster_.EndPod(ns_, "web-a");
    return dumped && leader_.Until([&] { return !Gated("web-b"); });
  }

 private:
  FakeAgent agent_;
};

// A pod ends without a word, and its successor goes on from the last interval checkpoint.
class Lost : public Scenario {
 public:
  explicit Lost(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    MakeCheckpoint("one", {{"trigger", "Interval"}});
    if (!Comes("one", api::Phase::kReady)) return false;
    auto one = [&] { return *cluster_.FindCheckpoint(ns_, "one"); };
    // What the agent of its node says when it finds the pod ended.
    const bool said = leader_.Until([&] {
      std::vector<api::Condition> conditions = one().status.conditions;
      kube::SetCondition(conditions, {.type = api::kPodEnded, .status = "True", .reason = "Gone", .message = "", .observed_generation = 0},
                         Clock::Real().Wall());
      return cluster_.PatchCheckpoint(one(), {{"status", {{"conditions", api::ToJson(conditions)}}}}).ok();
    });
    if (!said) return false;
    cluster_.EndPod(ns_, "web-a");
    return MakeGatedSuccessor() && leader_.Until([&] { return !Gated("web-b") && cluster_.EventNotes(ns_, "StateIsOlder").size() == 2; });
  }

 private:
  FakeAgent agent_;
};

// Two pods are a group: a checkpoint of one is a cut of both, once, or of neither.
class Group : public Scenario {
 public:
  explicit Group(const Case& c, bool one_fails = false) : Scenario(c), agent_(cluster_, ns_, one_fails, "web-b"), one_fails_(one_fails) {}
  bool Play() override {
    const Json member = {{api::kMemberOf, "ring"}};
    if (!RunWeb({{api::kProtect, "true"}}, member)) return false;
    EXPECT_TRUE(cluster_.MakePod(ns_, "web-b", "web", owner_, member).ok());
    if (!leader_.Until([&] { return !Gated("web-b"); })) return false;
    EXPECT_TRUE(cluster_.RunPod(ns_, "web-b", "node-a").ok());
    if (!IsKnownToRun("web-b")) return false;
    MakeCheckpoint("one", Json::object());
    return leader_.Until([&] {
      const auto all = cluster_.Checkpoints(ns_);
      return all.size() == 2 && std::all_of(all.begin(), all.end(), [&](const api::Checkpoint& c) {
               return c.status.phase == (one_fails_ ? api::Phase::kFailed : api::Phase::kReady);
             });
    });
  }

 private:
  FakeAgent agent_;
  const bool one_fails_;
};

class FailingGroup : public Group {
 public:
  explicit FailingGroup(const Case& c) : Group(c, true) {}
};

// A user's checkpoint of a pod that runs on, deleted when it is done: what the store holds of it goes first.
class MadeAndDeleted : public Scenario {
 public:
  explicit MadeAndDeleted(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    const std::string uid = MakeCheckpoint("mine", Json::object());
    if (!Comes("mine", api::Phase::kReady)) return false;
    EXPECT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, "mine").ok());
    if (!leader_.Until([&] { return cluster_.Checkpoints(ns_).empty(); })) return false;
    EXPECT_TRUE(Front::Shared().store().Deleted(uid)) << "the store still holds its content";
    return true;
  }

 private:
  FakeAgent agent_;
};

// Two checkpoints of one pod, of which the first has a ttl: retention takes it, and what the store holds of it goes first.
class Expired : public Scenario {
 public:
  explicit Expired(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    const std::string first = MakeCheckpoint("first", {{"ttl", "1s"}});
    auto gone = [&] { return !cluster_.FindCheckpoint(ns_, "first"); };
    if (!leader_.Until([&] { return gone() || cluster_.HasPhase(ns_, "first", api::Phase::kReady); })) return false;
    MakeCheckpoint("second", Json::object());
    if (!Comes("second", api::Phase::kReady)) return false;
    if (!leader_.Until(gone)) return false;
    EXPECT_TRUE(Front::Shared().store().Deleted(first)) << "the store still holds its content";
    return true;
  }

 private:
  FakeAgent agent_;
};

// The successor that a checkpoint was given to is deleted before anything of it ran: the next one gets it.
class Abandoned : public Drain {
 public:
  explicit Abandoned(const Case& c) : Drain(c) {}
  bool Play() override {
    if (!Drain::Play()) return false;
    cluster_.EndPod(ns_, "web-b");
    return MakeGatedSuccessor("web-c") && leader_.Until([&] { return !Gated("web-c"); });
  }
};

// A policy asks for a checkpoint every hour. The last attempt failed long enough ago, so one is made now. Its status tells of that, and of
// the pod until its end.
class Interval : public Scenario {
 public:
  explicit Interval(const Case& c) : Scenario(c) { quiet_ = seconds(3); }  // the status follows what it tells of by two
  bool Play() override {
    auto& client = cluster_.client();
    const Json spec = {{"triggers", {{"interval", "1h"}}}};
    EXPECT_TRUE(
        client
            .Create(api::RestorePolicy::kResource, ns_,
                    {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "RestorePolicy"}, {"metadata", {{"name", "p"}}}, {"spec", spec}})
            .ok());
    if (!RunWeb({{api::kPolicy, "p"}}) || !FailAnHourAgo()) return false;
    const FakeAgent agent(cluster_, ns_);
    auto status = [&] { return GetObject(client.Get(api::RestorePolicy::kResource, ns_, "p").value_or(Json()), {"status"}); };
    if (!leader_.Until([&] { return GetString(status(), {"lastCheckpoint"}).starts_with("interval-web-a-"); })) return false;
    EXPECT_EQ(GetInt(status(), {"protected"}), 1);
    cluster_.EndPod(ns_, "web-a");
    return leader_.Until([&] { return GetInt(status(), {"matched"}, 1) == 0; });
  }

 private:
  bool FailAnHourAgo() {
    const FakeAgent failing(cluster_, ns_, true);
    MakeCheckpoint("failed", {{"trigger", "Interval"}});
    return Comes("failed", api::Phase::kFailed) && leader_.Until([&] {
      const std::string ago = FormatTime(Clock::Real().Wall() - std::chrono::hours(1));
      return cluster_.PatchCheckpoint(*cluster_.FindCheckpoint(ns_, "failed"), {{"status", {{"completedAt", ago}}}}).ok();
    });
  }
};

// The store cannot read a checkpoint any more, and later it can.
class Damaged : public Scenario {
 public:
  explicit Damaged(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    FakeStore& store = Front::Shared().store();
    const std::string uid = MakeCheckpoint("mine", Json::object());
    store.Damaged(uid, true);
    auto said = [&](bool damaged) {
      const auto mine = cluster_.FindCheckpoint(ns_, "mine");
      return mine && damaged == (reconcilers::DamageOf(*mine) != nullptr);
    };
    if (!leader_.Until([&] { return said(true); })) return false;
    store.Damaged(uid, false);
    return leader_.Until([&] { return said(false); });
  }

 private:
  FakeAgent agent_;
};

// A workload is deleted, and its pod with it: its checkpoint is marked, and stays for now.
class Orphaned : public Scenario {
 public:
  explicit Orphaned(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    MakeCheckpoint("mine", Json::object());
    if (!Comes("mine", api::Phase::kReady)) return false;
    EXPECT_TRUE(cluster_.client().Delete(kube::Deployment::kResource, ns_, "web").ok());
    EXPECT_TRUE(cluster_.client().Delete(kube::ReplicaSet::kResource, ns_, "web-1").ok());
    cluster_.EndPod(ns_, "web-a");
    return leader_.Until([&] {
      const auto mine = cluster_.FindCheckpoint(ns_, "mine");
      return mine && kube::FindCondition(mine->status.conditions, reconcilers::restorepolicy::kOrphanedCondition) != nullptr;
    });
  }

 private:
  FakeAgent agent_;
};

// A Deployment goes to sleep and comes back. Its pod is checkpointed once, ended once, and its successor goes on from it.
class Suspension : public Scenario {
 public:
  explicit Suspension(const Case& c, bool onto_delete = false) : Scenario(c), agent_(cluster_, ns_), deleted_(onto_delete) {}
  bool Play() override {
    if (!RunWeb()) return false;
    const FakeDeployment hands(cluster_, ns_, owner_);
    auto& client = cluster_.client();
    const Json spec = {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", "Suspended"}};
    auto made = client.Create(
        api::SuspendedWorkload::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", "nb"}}}, {"spec", spec}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    if (!leader_.Until([&] { return Phase() == "Suspended"; })) return false;
    EXPECT_TRUE(cluster_.Pod(ns_, "web-a").is_null());
    if (deleted_) {
      EXPECT_TRUE(client.Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
      return leader_.Until([&] { return Phase().empty() && Runs("web-1"); });
    }
    EXPECT_TRUE(
        client.Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"spec", {{"state", "Running"}}}}).ok());
    return leader_.Until([&] { return Phase() == "Running" && Runs("web-1"); });
  }

 private:
  std::string Phase() const {
    auto object = cluster_.client().Get(api::SuspendedWorkload::kResource, ns_, "nb");
    return object.ok() ? GetString(*object, {"status", "phase"}) : object.status().code() == Code::kNotFound ? "" : "unknown";
  }
  bool Runs(const std::string& pod) const { return Field(pod, {"status", "phase"}) == "Running"; }
  FakeAgent agent_;
  const bool deleted_;
};

class DeletedAsleep : public Suspension {
 public:
  explicit DeletedAsleep(const Case& c) : Suspension(c, true) {}
};

// Its checkpoint fails: the pod runs on, until the user gives up.
// A pod that nothing owns is deleted, and made again by the controller alone.
class BareSuspension : public Scenario {
 public:
  explicit BareSuspension(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    const FakeDeployment hands(cluster_, ns_, Json());
    auto& client = cluster_.client();
    const Json protect = {{api::kProtect, "true"}};
    kube::CallOptions dry;
    dry.dry_run = true;
    if (!leader_.Until([&] {
          auto made = cluster_.MakePod(ns_, "web-a", "web", Json(), protect, dry);
          return made.ok() && GetString(*made, {"spec", "runtimeClassName"}) == "holdfast";
        }))
      return false;
    auto first = cluster_.MakePod(ns_, "web-a", "web", Json(), protect);
    EXPECT_TRUE(first.ok()) << first.status().ToString();
    const Json spec = {{"targetRef", {{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", "web-a"}}}, {"state", "Suspended"}};
    auto made = client.Create(
        api::SuspendedWorkload::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", "nb"}}}, {"spec", spec}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    auto phase = [&] { return GetString(client.Get(api::SuspendedWorkload::kResource, ns_, "nb").value_or(Json()), {"status", "phase"}); };
    if (!leader_.Until([&] { return phase() == "Suspended"; })) return false;
    EXPECT_TRUE(cluster_.Pod(ns_, "web-a").is_null());
    EXPECT_TRUE(
        client.Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"spec", {{"state", "Running"}}}}).ok());
    return leader_.Until([&] { return phase() == "Running" && Field("web-a", {"status", "phase"}) == "Running"; });
  }

 private:
  FakeAgent agent_;
};
class FailingSuspension : public Scenario {
 public:
  explicit FailingSuspension(const Case& c) : Scenario(c), agent_(cluster_, ns_, true) {}
  bool Play() override {
    if (!RunWeb()) return false;
    const FakeDeployment hands(cluster_, ns_, owner_);
    auto& client = cluster_.client();
    const Json spec = {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", "Suspended"}};
    auto made = client.Create(
        api::SuspendedWorkload::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", "nb"}}}, {"spec", spec}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    auto status = [&] { return GetObject(client.Get(api::SuspendedWorkload::kResource, ns_, "nb").value_or(Json()), {"status"}); };
    if (!leader_.Until([&] { return GetInt(status(), {"attempt", "failures"}) >= 1; })) return false;
    EXPECT_TRUE(
        client.Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"spec", {{"state", "Running"}}}}).ok());
    return leader_.Until([&] {
      const Json now = status();
      return GetString(now, {"phase"}) == "Running" && GetInt(now, {"observedGeneration"}) == 2 && !now.contains("attempt");
    });
  }

 private:
  FakeAgent agent_;
};

template <class S>
class SieveTest : public ::testing::Test {
 public:
  static void SetUpTestSuite() { Front::Shared(); }
  static void TearDownTestSuite() { Front::End(); }

 protected:
  // Runs S in each case, a few at a time; each must end as the undisturbed one did.
  void EachEndsAlike(const std::vector<Case>& cases) {
    std::atomic<size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kAtOnce; ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < cases.size(); at = next++) {
          const Case& c = cases[at];
          EXPECT_EQ(EndOf(c), Undisturbed().end) << "death after write " << c.disturbance.die_after_write << ", lost event "
                                                 << c.disturbance.lose_event << (c.past ? ", then the past" : "");
        }
      });
    }
  }
  static std::string EndOf(const Case& c) {
    const Outcome outcome = S(c).Run();
    Cluster::Shared().Empty(outcome.ns);
    return outcome.end;
  }
  static const Outcome& Undisturbed() {
    static const Outcome outcome = (Front::Shared(), S(Case{}).Run());
    EXPECT_EQ(outcome.end.find("stuck"), std::string::npos) << outcome.end;
    EXPECT_GE(outcome.writes, 2);
    EXPECT_GE(outcome.events, 5);
    return outcome;
  }
};

using Scenarios = ::testing::Types<Drain, FailingDrain, Lost, MadeAndDeleted, Expired, Suspension, DeletedAsleep, BareSuspension,
                                   FailingSuspension, Stopped, Abandoned, Interval, Damaged, Orphaned, Group, FailingGroup>;
TYPED_TEST_SUITE(SieveTest, Scenarios);

// make integration and make test-all play all, which takes a quarter of an hour; make test a few deaths, and of every scenario either lost
// events or a leader that sees the past, others for every commit.

// The scenarios that are on most of their way another one again.
template <class S>
constexpr bool kAlike = (std::is_same_v<S, BareSuspension> || std::is_same_v<S, Abandoned> || std::is_same_v<S, Interval> ||
                         std::is_same_v<S, Damaged> || std::is_same_v<S, Orphaned>);
template <class S>
bool PlaysLosses() {
  if (!InGate()) return true;
  const size_t which = SeedOfThisCommit() ^ std::hash<std::string_view>()(typeid(S).name());
  return !kAlike<S> && !std::is_same_v<S, DeletedAsleep> && which % 2 == 0;
}
template <class S>
bool PlaysPasts() {
  return !InGate() || (!std::is_same_v<S, DeletedAsleep> && !PlaysLosses<S>());
}
std::vector<int> SomeOf(int count) {
  const int stride = !InGate() ? 1 : std::max(std::min(3, count), count / 5);
  std::vector<int> some;
  for (int k = 1 + static_cast<int>(SeedOfThisCommit() % stride); k <= count; k += stride) some.push_back(k);
  return some;
}

TYPED_TEST(SieveTest, DeathAfterAnyWriteChangesNothing) {
  std::vector<Case> deaths;
  for (int k : SomeOf(this->Undisturbed().writes)) deaths.push_back({{.die_after_write = k}});
  this->EachEndsAlike(deaths);
}

TYPED_TEST(SieveTest, AnyEventThatIsNeverSeenChangesNothing) {
  if (!PlaysLosses<TypeParam>()) GTEST_SKIP() << "make integration runs it";
  std::vector<Case> losses;
  for (int m : SomeOf(this->Undisturbed().events)) losses.push_back({{.lose_event = m}});
  this->EachEndsAlike(losses);
}

TYPED_TEST(SieveTest, ALeaderThatSeesThePastChangesNothing) {
  if (!PlaysPasts<TypeParam>()) GTEST_SKIP() << "make integration runs it";
  std::vector<Case> pasts;
  for (int k : SomeOf(this->Undisturbed().writes)) pasts.push_back({{.die_after_write = k}, true});
  this->EachEndsAlike(pasts);
}

}  // namespace
}  // namespace holdfast::testing
