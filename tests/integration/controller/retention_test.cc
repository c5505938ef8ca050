// Retention through a real API server: policies, marks, quotas, a volume that fills, a cache that is behind.
#include "api/restore_policy.h"
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/fake_store.h"
#include "tests/integration/controller/sieve_transport.h"

namespace holdfast::testing {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// Caches that are behind, beside an API server that is not: informers read by Stream, everybody else by Send.
class OldCaches final : public kube::Transport {
 public:
  OldCaches(const std::string& ns, const std::string& version)
      : now_(Replica::Connect(), ns, {}), past_(Replica::Connect(), ns, {.stale_version = version, .stale_for = seconds(8)}) {}
  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override { return now_.Send(request, stop); }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override {
    return past_.Stream(request, on_chunk, stop);
  }

 private:
  SieveTransport now_, past_;
};

class RetentionTest : public ::testing::Test {
 protected:
  void Start(std::shared_ptr<kube::Transport> transport = nullptr) {
    auto options = Replica::Options("retention-of-" + ns_, 0, ns_);
    options.leader_elect = false;
    options.stores = {{api::kDefaultStore, store_.url()}, {kSecond, second_.url()}};
    options.store_token_file.clear();
    options.volume_high_percent = 80;
    options.volume_low_percent = 50;
    // Of all the tests' namespaces it sees its own alone.
    if (!transport) transport = std::make_shared<SieveTransport>(Replica::Connect(), ns_, Disturbance{});
    replica_ = std::make_unique<Replica>(std::move(transport), options);
    ASSERT_TRUE(replica_->WaitReady());
  }
  void Policy(const Json& retention) {
    const Json policy = {{"apiVersion", "holdfast.dev/v1alpha1"},
                         {"kind", "RestorePolicy"},
                         {"metadata", {{"name", "p"}}},
                         {"spec", {{"retention", retention}}}};
    const Status made = cluster_.client().Create(api::RestorePolicy::kResource, ns_, policy).status();
    if (made.code() == Code::kAlreadyExists) {
      ASSERT_TRUE(cluster_.client()
                      .Patch(api::RestorePolicy::kResource, ns_, "p", kube::PatchType::kMerge, {{"spec", {{"retention", retention}}}})
                      .ok());
    } else {
      ASSERT_TRUE(made.ok()) << made.ToString();
    }
  }
  // A Ready one of Deployment `owner`, done so long ago, of a pod that is gone. `store`: empty, as agents left it that knew one only.
  void Made(const std::string& name, Duration ago, const std::string& owner = "web", const Json& spec = Json::object(),
            const std::string& store = "") {
    Json object = {{"apiVersion", "holdfast.dev/v1alpha1"},
                   {"kind", "Checkpoint"},
                   {"metadata", {{"name", name}, {"finalizers", {"holdfast.dev/stored-content"}}}},
                   {"spec", {{"podRef", {{"name", owner + "-a"}, {"uid", "uid-" + owner}}}, {"trigger", "Interval"}}}};
    object["spec"].update(spec);
    auto made = cluster_.client().Create(api::Checkpoint::kResource, ns_, object);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const std::string at = FormatTime(Clock::Real().Wall() - ago);
    kube::CallOptions options;
    options.subresource = "status";
    Json status = {{"phase", "Ready"},
                   {"nodeName", "node-a"},
                   {"podUID", "uid-" + owner},
                   {"owner", {{"kind", "Deployment"}, {"name", owner}, {"uid", "uid-of-" + owner}}},
                   {"policy", "p"},
                   {"completedAt", at},
                   {"size", api::SizeJson(1, 1, FakeStore::kBytes)}};
    if (!store.empty()) status["manifest"] = {{"store", store}, {"id", GetString(*made, {"metadata", "uid"})}, {"digest", "d"}};
    ASSERT_TRUE(
        cluster_.client().Patch(api::Checkpoint::kResource, ns_, name, kube::PatchType::kMerge, {{"status", status}}, options).ok());
    uids_[name] = GetString(*made, {"metadata", "uid"});
  }
  void Hourly(int count) {
    for (int i = 0; i < count; ++i) Made("c" + std::to_string(i), hours(i + 1));
  }
  std::set<std::string> Left() {
    std::set<std::string> names;
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) names.insert(c.meta.name);
    return names;
  }
  bool Comes(const std::set<std::string>& names) {
    const bool came = Eventually([&] { return Left() == names; });
    if (!came) ADD_FAILURE() << "left are " << ::testing::PrintToString(Left());
    return came;
  }
  Json StatusOfPolicy() { return cluster_.client().Get(api::RestorePolicy::kResource, ns_, "p").value_or(Json())["status"]; }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  static constexpr char kSecond[] = "holdfast-store-1";
  FakeStore store_, second_;
  std::unique_ptr<Replica> replica_;
  std::map<std::string, std::string> uids_;
};

using S = std::set<std::string>;

TEST_F(RetentionTest, DeletesWhatNoRuleKeepsAndItsContentFirst) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 2}});
  Hourly(5);
  Start();
  ASSERT_TRUE(Comes(S{"c0", "c1"}));
  for (const char* gone : {"c2", "c3", "c4"}) EXPECT_TRUE(store_.Deleted(uids_[gone])) << gone;
  EXPECT_FALSE(store_.Deleted(uids_["c0"]));
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "Superseded").size() == 3; }));
  EXPECT_TRUE(Eventually([&] { return GetInt(StatusOfPolicy(), {"retention", "kept"}) == 2; }));
  EXPECT_TRUE(Eventually([&] { return GetInt(StatusOfPolicy(), {"stored"}) == 2 * FakeStore::kBytes; }));
}

TEST_F(RetentionTest, ADryRunSaysWhatWouldGoAndWhyAndDeletesNothing) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 2}, {"dryRun", true}});
  Hourly(4);
  Start();
  ASSERT_TRUE(Eventually([&] { return GetInt(StatusOfPolicy(), {"retention", "deleted"}) == 2; })) << StatusOfPolicy();
  const Json status = StatusOfPolicy();
  EXPECT_EQ(status["retention"]["deletes"][0]["checkpoint"], "c3");
  EXPECT_EQ(status["retention"]["deletes"][0]["reason"], "Superseded");
  EXPECT_EQ(status["retention"]["keeps"][0]["reason"], "LastGood");
  EXPECT_EQ(Left().size(), 4u);
  Policy({{"keepLast", 2}, {"dryRun", false}});
  EXPECT_TRUE(Comes(S{"c0", "c1"}));
}

TEST_F(RetentionTest, ATtlEndsWithinSecondsOfItsTimeAndPinnedOnesStay) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 1}});
  Made("newest", seconds(1));
  Made("short", hours(1), "web", {{"ttl", "1h5s"}});
  Made("pinned", hours(3), "web", {{"pinned", true}, {"ttl", "1h"}});
  Start();
  EXPECT_TRUE(Comes(S{"newest", "pinned"}));
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "TtlOver").size() == 1; }));
}

TEST_F(RetentionTest, TheQuotaOfANamespaceTakesTheOldest) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 10}});
  Hourly(4);
  const kube::Resource namespaces{"", "v1", "namespaces", "Namespace", false};
  ASSERT_TRUE(cluster_.client()
                  .Patch(namespaces, "", ns_, kube::PatchType::kMerge, {{"metadata", {{"annotations", {{api::kQuota, "2Mi"}}}}}})
                  .ok());
  Start();
  ASSERT_TRUE(Comes(S{"c0", "c1"}));
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "Quota").size() == 2; }));

  // Full of what is protected, it takes no further ones but final ones.
  ASSERT_TRUE(cluster_.client()
                  .Patch(namespaces, "", ns_, kube::PatchType::kMerge, {{"metadata", {{"annotations", {{api::kQuota, "1Mi"}}}}}})
                  .ok());
  ASSERT_TRUE(cluster_.MakePod(ns_, "other", "other", Json(), Json::object()).ok());
  ASSERT_TRUE(cluster_.RunPod(ns_, "other", "node-a").ok());
  ASSERT_TRUE(cluster_.client()
                  .Create(api::Checkpoint::kResource, ns_,
                          {{"apiVersion", "holdfast.dev/v1alpha1"},
                           {"kind", "Checkpoint"},
                           {"metadata", {{"name", "further"}}},
                           {"spec", {{"podRef", {{"name", "other"}}}, {"deadline", "3s"}}}})
                  .ok());
  ASSERT_TRUE(Eventually([&] {
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) {
      if (c.meta.name == "further" && c.Ready() != nullptr && c.Ready()->reason == api::reason::kStoreFull) return true;
    }
    return false;
  }));
  cluster_.EndPod(ns_, "other");
}

TEST_F(RetentionTest, AVolumeAboveItsHighMarkIsEmptiedToItsLowMark) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 100}});
  Hourly(35);
  store_.Hold(81);  // of 100
  Start();
  EXPECT_TRUE(Comes(S{"c0", "c1", "c2", "c3"})) << "down to 50, in more than one look, the oldest first";
  EXPECT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "VolumeFull").empty(); }));
}

TEST_F(RetentionTest, OfSeveralVolumesOnlyTheOneThatIsTooFullIsEmptied) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 100}});
  for (int i = 0; i < 3; ++i) Made("old" + std::to_string(i), hours(100 + i), "web", Json::object(), api::kDefaultStore);
  for (int i = 0; i < 8; ++i) Made("c" + std::to_string(i), hours(i + 1), "web", Json::object(), kSecond);
  store_.Hold(79);  // of 100: below the high mark, though above the low one
  second_.Hold(81);
  Start();
  EXPECT_TRUE(Comes(S{"c0", "old0", "old1", "old2"})) << "all that may go from there, though what is in the other one is older";
  EXPECT_TRUE(store_.Deleted().empty());
  EXPECT_EQ(second_.Deleted().size(), 7u);
}

TEST_F(RetentionTest, MarksCheckpointsOfAWorkloadThatIsGoneAndTakesTheMarkOff) {
  Policy({{"keepLast", 10}});
  Hourly(2);
  Start();
  auto marked = [&] {
    size_t count = 0;
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) count += kube::FindCondition(c.status.conditions, "Orphaned") != nullptr;
    return count;
  };
  ASSERT_TRUE(Eventually([&] { return marked() == 2; }));
  EXPECT_EQ(Left().size(), 2u);
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 11}});  // a change, which brings retention back before its minute is over
  EXPECT_TRUE(Eventually([&] { return marked() == 0; }));
}

// c0 is gone, and a leader whose caches do not know it would drop c1 as superseded.
TEST_F(RetentionTest, ALeaderWhoseCachesAreBehindDeletesNothingThatMustStay) {
  cluster_.MakeWorkload(ns_, "web", {{api::kPolicy, "p"}});
  Policy({{"keepLast", 1}});
  Made("c1", hours(2));
  Made("c0", hours(1));
  kube::HttpRequest request;
  request.path = "/api/v1/namespaces?limit=1";
  const std::string past = GetString(cluster_.client().Raw(request).value_or(Json()), {"metadata", "resourceVersion"});
  ASSERT_TRUE(cluster_.client()
                  .Patch(api::Checkpoint::kResource, ns_, "c0", kube::PatchType::kMerge, {{"metadata", {{"finalizers", nullptr}}}})
                  .ok());
  ASSERT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, "c0").ok());
  ASSERT_TRUE(Comes(S{"c1"}));
  Start(std::make_shared<OldCaches>(ns_, past));
  ASSERT_TRUE(Eventually([&] { return GetString(StatusOfPolicy(), {"lastCheckpoint"}) == "c0"; })) << "it does not see the past";
  // When its caches are there, it has looked several times.
  ASSERT_TRUE(Eventually([&] { return GetString(StatusOfPolicy(), {"lastCheckpoint"}) == "c1"; })) << StatusOfPolicy();
  EXPECT_EQ(Left(), S{"c1"});
  EXPECT_FALSE(store_.Deleted(uids_["c1"]));
}

}  // namespace
}  // namespace holdfast::testing
