// The controller that leads is disturbed at every point of a scenario (sieve_transport.h): the end state, and how many objects were created
// and deleted on the way, are those of the run that nothing disturbed. Another replica answers the webhooks, and never leads.
#include "tests/integration/controller/sieve_transport.h"

#include <httplib.h>

#include "kube/lease.h"
#include "tests/integration/controller/cluster.h"

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

// The store, as far as the controller knows it.
class FakeStore {
 public:
  FakeStore() {
    server_.Delete("/v1/manifests/(.+)", [this](const httplib::Request& request, httplib::Response&) {
      std::lock_guard lock(mutex_);
      deleted_.insert(request.matches[1]);
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~FakeStore() {
    while (!server_.is_running()) std::this_thread::yield();  // until then stop() would be ignored
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  bool Deleted(const std::string& manifest) const {
    std::lock_guard lock(mutex_);
    return deleted_.contains(manifest);
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::set<std::string> deleted_;
  std::thread thread_;
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
  bool Deleted(const std::string& manifest) const { return store_.Deleted(manifest); }

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
  Leader(std::string ns, const Disturbance& disturbance, bool past) : ns_(std::move(ns)), past_(past ? VersionNow() : "") {
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
    options.store_url = Front::Shared().store_url();
    options.store_token_file.clear();
    replica_ = std::make_unique<Replica>(transport_, options);
  }
  void Count() {
    writes_ += transport_->writes();
    events_ += transport_->events();
  }
  const std::string ns_, past_;
  std::shared_ptr<SieveTransport> transport_;
  std::unique_ptr<Replica> replica_;
  int writes_ = 0, events_ = 0;
};

struct Case {
  Disturbance disturbance{};
  bool past = false;  // what the leader after a death sees first
};

struct Outcome {
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
  explicit Scenario(const Case& c)
      : ns_(cluster_.MakeNamespace()), observer_(ns_), leader_(ns_, c.disturbance, c.past), drainer_(Drainer()) {}
  virtual ~Scenario() = default;
  virtual bool Play() = 0;  // false: it did not come to its end
  Outcome Run() {
    Outcome outcome;
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

  bool RunWeb() {
    owner_ = cluster_.MakeWorkload(ns_, "web", {{api::kProtect, "true"}});
    kube::CallOptions dry;
    dry.dry_run = true;
    // Until the webhook's cache has its owner, and then the pod itself, it passes as any other.
    return leader_.Until([&] {
      auto made = cluster_.MakePod(ns_, "web-a", "web", owner_, Json::object(), dry);
      return made.ok() && GetString(*made, {"spec", "runtimeClassName"}) == "holdfast";
    }) && cluster_.MakePod(ns_, "web-a", "web", owner_).ok() &&
           cluster_.RunPod(ns_, "web-a", "node-a").ok() &&
           leader_.Until([&] { return drainer_.Evict(ns_, "web-a", {}, dry).code() == Code::kResourceExhausted; });
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

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_;
  Observer observer_;
  Leader leader_;
  kube::Client drainer_;
  Json owner_;

 private:
  // Nothing happens any more: the leader is alive and has not written for a second.
  void Settle() {
    int last = -1;
    MonoTime since = Clock::Real().Mono();
    (void)leader_.Until([&] {
      const MonoTime now = Clock::Real().Mono();
      if (leader_.writes() != last) {
        last = leader_.writes();
        since = now;
      }
      return now - since > seconds(1);
    });
  }
  std::string Describe() const {
    std::string text;
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) {
      text += "checkpoint of " + c.spec.pod_name + ": " + std::string(api::PhaseName(c.status.phase)) +
              (c.Ready() ? " " + c.Ready()->reason : "") + (c.Ready() && !c.done() ? " (" + c.Ready()->message + ")" : "") +
              (c.status.claim ? ", claimed by " + c.status.claim->pod_name : "") + (c.spec.pinned ? ", pinned" : "") + "\n";
    }
    for (const Json& pod : cluster_.client().List(kube::Pod::kResource, {ns_, "", ""}).value_or({})) {
      const std::string name = GetString(pod, {"metadata", "name"});
      text += "pod " + name + (Gated(name) ? ", gated" : "") +
              (Field(name, {"metadata", "annotations", api::kRestore}).empty() ? "" : ", restores") + "\n";
    }
    // On the pod and on the Checkpoint, once each: whoever starts cold is told so.
    text += "ColdStart events: " + std::to_string(cluster_.EventNotes(ns_, "ColdStart").size()) + "\n";
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

// A user's checkpoint of a pod that runs on, deleted when it is done: what the store holds of it goes first.
class MadeAndDeleted : public Scenario {
 public:
  explicit MadeAndDeleted(const Case& c) : Scenario(c), agent_(cluster_, ns_) {}
  bool Play() override {
    if (!RunWeb()) return false;
    auto made = cluster_.client().Create(api::Checkpoint::kResource, ns_,
                                         {{"apiVersion", "holdfast.dev/v1alpha1"},
                                          {"kind", "Checkpoint"},
                                          {"metadata", {{"name", "mine"}}},
                                          {"spec", {{"podRef", {{"name", "web-a"}}}}}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    auto phase = [&] {
      const auto all = cluster_.Checkpoints(ns_);
      return all.empty() ? api::Phase::kDeleting : all[0].status.phase;
    };
    if (!leader_.Until([&] { return phase() == api::Phase::kReady; })) return false;
    EXPECT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, "mine").ok());
    if (!leader_.Until([&] { return cluster_.Checkpoints(ns_).empty(); })) return false;
    EXPECT_TRUE(Front::Shared().Deleted(GetString(*made, {"metadata", "uid"}))) << "the store still holds its content";
    return true;
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
  void SetUp() override {
    ASSERT_EQ(undisturbed_.end.find("stuck"), std::string::npos) << undisturbed_.end;
    ASSERT_GE(undisturbed_.writes, 2);
    ASSERT_GE(undisturbed_.events, 5);
  }
  // Runs S in each case, a few at a time; each must end as `undisturbed_` did.
  void EachEndsAlike(const std::vector<Case>& cases) {
    std::atomic<size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kAtOnce; ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < cases.size(); at = next++) {
          const Case& c = cases[at];
          EXPECT_EQ(S(c).Run().end, undisturbed_.end) << "death after write " << c.disturbance.die_after_write << ", lost event "
                                                      << c.disturbance.lose_event << (c.past ? ", then the past" : "");
        }
      });
    }
  }
  static Outcome Undisturbed() {
    static const Outcome outcome = (Front::Shared(), S(Case{}).Run());
    return outcome;
  }
  const Outcome undisturbed_ = Undisturbed();
};

using Scenarios = ::testing::Types<Drain, FailingDrain, MadeAndDeleted>;
TYPED_TEST_SUITE(SieveTest, Scenarios);

TYPED_TEST(SieveTest, DeathAfterAnyWriteChangesNothing) {
  std::vector<Case> deaths;
  for (int k = 1; k <= this->undisturbed_.writes; ++k) deaths.push_back({{.die_after_write = k}});
  this->EachEndsAlike(deaths);
}

TYPED_TEST(SieveTest, AnyEventThatIsNeverSeenChangesNothing) {
  std::vector<Case> losses;
  for (int m = 1; m <= this->undisturbed_.events; ++m) losses.push_back({{.lose_event = m}});
  this->EachEndsAlike(losses);
}

TYPED_TEST(SieveTest, ALeaderThatSeesThePastChangesNothing) {
  std::vector<Case> pasts;
  for (int k = 1; k <= this->undisturbed_.writes; ++k) pasts.push_back({{.die_after_write = k}, true});
  this->EachEndsAlike(pasts);
}

}  // namespace
}  // namespace holdfast::testing
