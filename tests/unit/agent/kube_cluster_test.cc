// What the agent writes when answers are lost: the same request comes once more.
#include "agent/kube_cluster.h"

#include <gmock/gmock.h>

#include "tests/unit/kube/fake_transport.h"

namespace holdfast::agent {
namespace {

// An API server with one Checkpoint, which takes writes and may lose its answers to them.
struct Server {
  Json checkpoint = {{"metadata", {{"name", "ck"}, {"namespace", "default"}, {"uid", "ck-uid"}, {"resourceVersion", "1"}}},
                     {"spec", {{"podRef", {{"name", "web-0"}, {"uid", "old"}}}, {"final", true}}},
                     {"status", {{"phase", "Ready"}}}};
  bool lose_answers = false;
  int version = 1;
  kube::Client client{std::make_shared<kube::FakeTransport>([this](const kube::HttpRequest& request) { return Answer(request); })};
  KubeCluster cluster{client, "node1"};

  Result<kube::HttpResponse> Answer(const kube::HttpRequest& request) {
    if (request.method == "GET") return kube::JsonAnswer(200, checkpoint);
    Json written = *ParseJson(request.body);
    if (GetString(written, {"metadata", "resourceVersion"}) != std::to_string(version)) return kube::Failure(409, "Conflict");
    checkpoint = written;
    checkpoint["metadata"]["resourceVersion"] = std::to_string(++version);
    if (lose_answers) return Status(Code::kUnavailable, "the connection was cut");
    return kube::JsonAnswer(200, checkpoint);
  }
};

api::Restore Outcome(const std::string& at) {
  api::Restore restore;
  restore.pod_name = "web-1";
  restore.node = "node1";
  restore.at = at;
  restore.outcome = "Restored";
  return restore;
}

TEST(KubeCluster, AnOutcomeWhoseAnswerWasLostIsNotToldTwice) {
  Server server;
  server.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "new"}, {"at", "2026-01-01T00:00:00Z"}};
  server.lose_answers = true;
  EXPECT_FALSE(server.cluster.AppendRestore("default", "ck", "ck-uid", Outcome("2026-01-01T00:00:05Z")).ok());
  server.lose_answers = false;
  EXPECT_TRUE(server.cluster.AppendRestore("default", "ck", "ck-uid", Outcome("2026-01-01T00:00:09Z")).ok());
  EXPECT_EQ(GetArray(server.checkpoint, {"status", "restores"}).size(), 1u);
}

TEST(KubeCluster, AnOutcomeOfAnEarlierPodOfThatNameDoesNotCount) {
  Server server;
  server.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "new"}, {"at", "2026-01-01T00:01:00Z"}};
  server.checkpoint["status"]["restores"] = Json::array({api::ToJson(Outcome("2026-01-01T00:00:05Z"))});
  EXPECT_TRUE(server.cluster.AppendRestore("default", "ck", "ck-uid", Outcome("2026-01-01T00:01:05Z")).ok());
  EXPECT_EQ(GetArray(server.checkpoint, {"status", "restores"}).size(), 2u);
}

// The fence of a restore: whoever has lost the claim begins none.
TEST(KubeCluster, ThatARestoreBeginsIsWrittenOnlyByWhoHasTheClaim) {
  Server server;
  api::Restore begins = Outcome("2026-01-01T00:00:05Z");
  begins.outcome = "Started";
  begins.pod_uid = "new";
  EXPECT_EQ(server.cluster.AppendRestore("default", "ck", "ck-uid", begins).code(), Code::kFailedPrecondition) << "it was given back";
  server.checkpoint["status"]["claim"] = {{"podName", "web-2"}, {"podUID", "newer"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_EQ(server.cluster.AppendRestore("default", "ck", "ck-uid", begins).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(GetArray(server.checkpoint, {"status", "restores"}).empty());
  server.checkpoint["status"]["claim"]["podUID"] = "new";
  EXPECT_TRUE(server.cluster.AppendRestore("default", "ck", "ck-uid", begins).ok());
  EXPECT_EQ(GetArray(server.checkpoint, {"status", "restores"}).size(), 1u);
}

TEST(KubeCluster, AClaimWhoseAnswerWasLostIsFoundAsWon) {
  Server server;
  server.lose_answers = true;
  const api::Claim claim{"web-0", "old", "2026-01-01T00:00:00Z"};
  EXPECT_FALSE(server.cluster.Claim("default", "ck", "ck-uid", claim).ok());
  EXPECT_TRUE(server.cluster.Claim("default", "ck", "ck-uid", claim).value_or(false));
  EXPECT_FALSE(server.cluster.Claim("default", "ck", "ck-uid", {"web-1", "new", "2026-01-01T00:00:01Z"}).value_or(true));
}

}  // namespace
}  // namespace holdfast::agent
