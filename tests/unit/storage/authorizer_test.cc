// Whose a checkpoint is, by what the API server says; and what refused requests leave in the log.
#include "storage/server/authorizer.h"

#include "storage/server/refusal_log.h"
#include "tests/unit/kube/fake_transport.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

using std::chrono::seconds;

// Checkpoint uid-1 in namespace team was taken on node1; pod web-1 on node2 may have claimed it.
struct Cluster {
  bool claimed = true, reachable = true, annotated = true;
  std::string pod_uid = "web-1-uid", pod_node = "node2";
  int asked = 0, lists = 0;
  size_t others = 0;  // Checkpoints of its namespace beside it, before it
  FakeClock clock;
  KubeAuthorizer authorizer{
      std::make_shared<kube::Client>(std::make_shared<kube::FakeTransport>([this](const kube::HttpRequest& r) { return Answer(r); })),
      clock};

  Result<kube::HttpResponse> Answer(const kube::HttpRequest& request) {
    ++asked;
    if (!reachable) return Status(Code::kUnavailable, "no answer");
    if (request.path.find("/pods/") != std::string::npos) {
      if (pod_uid.empty()) return kube::Failure(404, "NotFound");
      return kube::JsonAnswer(200, {{"metadata", {{"name", "web-1"}, {"uid", pod_uid}}}, {"spec", {{"nodeName", pod_node}}}});
    }
    const bool team = request.path.find("/namespaces/team/") != std::string::npos;
    std::vector<Json> all;
    if (team) {
      Json status = {{"nodeName", "node1"}};
      if (claimed) status["claim"] = {{"podName", "web-1"}, {"podUID", "web-1-uid"}};
      all.push_back({{"metadata", {{"name", "first"}, {"uid", "uid-0"}}}, {"status", Json::object()}});
      for (size_t i = 0; i < others; ++i) all.push_back({{"metadata", {{"name", "other-" + std::to_string(i)}, {"uid", "o"}}}});
      all.push_back({{"metadata", {{"name", "second"}, {"uid", "uid-1"}}}, {"status", status}});
      // Made anew around what the store has under old-uid.
      status["manifest"] = {{"id", "old-uid"}};
      const Json annotations = annotated ? Json{{"holdfast.dev/manifest", "old-uid"}} : Json::object();
      all.push_back({{"metadata", {{"name", "third"}, {"uid", "uid-2"}, {"annotations", annotations}}}, {"status", status}});
    }
    const size_t by_name = request.path.find("/checkpoints/");
    if (by_name == std::string::npos) return Page(request, all);
    for (const Json& item : all) {
      if (request.path.ends_with("/checkpoints/" + GetString(item, {"metadata", "name"}))) return kube::JsonAnswer(200, item);
    }
    return kube::Failure(404, "NotFound");
  }
  // Metadata only, as asked for, and no more than was asked for.
  Result<kube::HttpResponse> Page(const kube::HttpRequest& request, const std::vector<Json>& all) {
    ++lists;
    EXPECT_NE(request.headers.at("accept").find("PartialObjectMetadata"), std::string::npos);
    const size_t limit_at = request.path.find("limit="), from_at = request.path.find("continue=");
    EXPECT_NE(limit_at, std::string::npos) << request.path;
    if (limit_at == std::string::npos) return kube::Failure(400, "BadRequest");
    const size_t limit = std::stoul(request.path.substr(limit_at + 6));
    const size_t from = from_at == std::string::npos ? 0 : std::stoul(request.path.substr(from_at + 9));
    Json items = Json::array();
    for (size_t i = from; i < std::min(all.size(), from + limit); ++i) items.push_back({{"metadata", all[i]["metadata"]}});
    const std::string next = from + limit < all.size() ? std::to_string(from + limit) : "";
    return kube::JsonAnswer(200, {{"metadata", {{"resourceVersion", "1"}, {"continue", next}}}, {"items", items}});
  }
  Code Ask(const std::string& node, Use use, const std::string& ns = "team", const std::string& id = "uid-1") {
    return authorizer.Check(node, use, ns, id, {}).code();
  }
};

TEST(KubeAuthorizer, TheNodeThatItWasAssignedToWritesAndReads) {
  Cluster cluster;
  for (Use use : {Use::kWrite, Use::kEnd, Use::kRead}) EXPECT_EQ(cluster.Ask("node1", use), Code::kOk);
}

TEST(KubeAuthorizer, TheNodeOfTheClaimingPodOnlyReads) {
  Cluster cluster;
  EXPECT_EQ(cluster.Ask("node2", Use::kRead), Code::kOk);
  for (Use use : {Use::kWrite, Use::kEnd}) EXPECT_EQ(cluster.Ask("node2", use), Code::kPermissionDenied);
}

TEST(KubeAuthorizer, WhatWasMadeAnewIsReadUnderItsOldId) {
  Cluster cluster;
  EXPECT_EQ(cluster.Ask("node1", Use::kRead, "team", "old-uid"), Code::kOk);
  EXPECT_EQ(cluster.Ask("node2", Use::kRead, "team", "old-uid"), Code::kOk) << "by the node of the pod that claimed it";
  EXPECT_EQ(cluster.Ask("node3", Use::kRead, "team", "old-uid"), Code::kPermissionDenied);
  EXPECT_EQ(cluster.Ask("node1", Use::kWrite, "team", "old-uid"), Code::kNotFound) << "it is complete";
  Cluster forged;
  forged.annotated = false;
  EXPECT_EQ(forged.Ask("node1", Use::kRead, "team", "old-uid"), Code::kNotFound) << "an agent writes the status of its own ones";
}

TEST(KubeAuthorizer, OthersGetNothing) {
  struct Case {
    const char* what;
    void (*change)(Cluster*);
    const char* node;
    const char* ns;
    const char* id;
    Code code;
  };
  auto same = [](Cluster*) {};
  for (const Case& c : {
           Case{"a third node", same, "node3", "team", "uid-1", Code::kPermissionDenied},
           Case{"no node", same, "", "team", "uid-1", Code::kPermissionDenied},
           Case{"not assigned yet", same, "node1", "team", "uid-0", Code::kPermissionDenied},
           Case{"another namespace", same, "node2", "other", "uid-1", Code::kNotFound},
           Case{"no such checkpoint", same, "node2", "team", "uid-9", Code::kNotFound},
           Case{"nobody has claimed it", [](Cluster* k) { k->claimed = false; }, "node2", "team", "uid-1", Code::kPermissionDenied},
           Case{"the pod is gone", [](Cluster* k) { k->pod_uid = ""; }, "node2", "team", "uid-1", Code::kPermissionDenied},
           Case{"another pod of its name", [](Cluster* k) { k->pod_uid = "next"; }, "node2", "team", "uid-1", Code::kPermissionDenied},
           Case{"a pod that is not scheduled", [](Cluster* k) { k->pod_node = ""; }, "", "team", "uid-1", Code::kPermissionDenied},
           Case{"nobody answers", [](Cluster* k) { k->reachable = false; }, "node1", "team", "uid-1", Code::kUnavailable},
       }) {
    Cluster cluster;
    c.change(&cluster);
    EXPECT_EQ(cluster.Ask(c.node, Use::kRead, c.ns, c.id), c.code) << c.what;
  }
}

TEST(KubeAuthorizer, AYesIsRememberedAlsoForEndingItWhileTheApiServerIsAway) {
  Cluster cluster;
  EXPECT_EQ(cluster.Ask("node1", Use::kWrite), Code::kOk);
  const int asked = cluster.asked;
  cluster.reachable = false;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(cluster.Ask("node1", Use::kWrite), Code::kOk);
    EXPECT_EQ(cluster.Ask("node1", Use::kEnd), Code::kOk);
  }
  EXPECT_EQ(cluster.asked, asked);
  cluster.clock.Advance(std::chrono::minutes(11));
  EXPECT_EQ(cluster.Ask("node1", Use::kWrite), Code::kUnavailable);
}

TEST(KubeAuthorizer, ANoIsForgottenAfterAMoment) {
  Cluster cluster;
  cluster.claimed = false;
  EXPECT_EQ(cluster.Ask("node2", Use::kRead), Code::kPermissionDenied);
  const int asked = cluster.asked;
  EXPECT_EQ(cluster.Ask("node2", Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(cluster.asked, asked) << "who asks often does not make the API server work";
  cluster.claimed = true;
  cluster.clock.Advance(seconds(2));
  EXPECT_EQ(cluster.Ask("node2", Use::kRead), Code::kOk);
}

// Hole 13: a yes for one namespace was one for all of them, and with it a session there, its hash key, and what content it has.
TEST(KubeAuthorizer, AYesInOneNamespaceIsNoneInAnother) {
  Cluster cluster;
  EXPECT_EQ(cluster.Ask("node1", Use::kWrite, "team"), Code::kOk);
  for (Use use : {Use::kWrite, Use::kEnd, Use::kRead}) EXPECT_EQ(cluster.Ask("node1", use, "other"), Code::kNotFound);
  Cluster other_first;
  EXPECT_EQ(other_first.Ask("node1", Use::kWrite, "other"), Code::kNotFound);
  EXPECT_EQ(other_first.Ask("node1", Use::kWrite, "team"), Code::kOk);
}

// Hole 14: each question read all Checkpoints of the namespace, whole, into memory.
TEST(KubeAuthorizer, OneOfManyIsLookedUpOnceAndThenReadByItsName) {
  Cluster cluster;
  cluster.others = 2000;
  EXPECT_EQ(cluster.Ask("node1", Use::kWrite), Code::kOk);
  const int lists = cluster.lists;
  EXPECT_GT(lists, 1) << "in pages";
  EXPECT_EQ(cluster.Ask("node1", Use::kRead), Code::kOk);
  EXPECT_EQ(cluster.Ask("node2", Use::kRead), Code::kOk);
  EXPECT_EQ(cluster.Ask("node3", Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(cluster.lists, lists);
}

TEST(RefusalLog, TellsTheFirstOfAKindAndThenOnceAMinute) {
  FakeClock clock;
  RefusalLog log(clock);
  const Status denied(Code::kPermissionDenied, "not yours");
  EXPECT_TRUE(log.Refused("get", "uid-1", "10.0.0.1", denied));
  for (int i = 0; i < 1'000'000; ++i) ASSERT_FALSE(log.Refused("get", "uid-" + std::to_string(i), "10.0.0.1", denied));
  EXPECT_TRUE(log.Refused("put", "uid-1", "10.0.0.1", denied));
  EXPECT_TRUE(log.Refused("get", "uid-1", "10.0.0.2", denied));
  clock.Advance(seconds(61));
  EXPECT_TRUE(log.Refused("get", "uid-1", "10.0.0.1", denied));
}

}  // namespace
}  // namespace holdfast::storage
