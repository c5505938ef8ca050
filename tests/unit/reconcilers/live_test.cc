// Hole 14: before a pod starts cold its Checkpoints are read live. What that asks of the API server, and keeps, is measured in a namespace
// of ten thousand.
#include "reconcilers/claim/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kube/fake_transport.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::claim {
namespace {

using ::testing::ElementsAre;
using testing::Share;
using testing::WebOwner;
using testing::WebPod;

Json Made(const std::string& name, const std::string& pod_uid, const std::string& owner, const std::string& phase) {
  Json object = {{"apiVersion", "holdfast.dev/v1alpha1"},
                 {"kind", "Checkpoint"},
                 {"metadata", {{"namespace", "default"}, {"name", name}, {"uid", "uid of " + name}}},
                 {"spec", {{"podRef", {{"name", "p"}, {"uid", pod_uid}}}, {"final", true}}}};
  if (!phase.empty()) object["status"]["phase"] = phase;
  if (!owner.empty()) object["status"]["owner"] = {{"kind", "Deployment"}, {"name", owner}, {"uid", owner}};
  return object;
}

std::string Parameter(const std::string& path, const std::string& name) {
  const size_t at = path.find(name + "=");
  if (at == std::string::npos) return "";
  std::string text = path.substr(at + name.size() + 1, path.find('&', at) - at - name.size() - 1);
  for (const auto& [code, character] : {std::pair("%3D", "="), {"%2C", ","}, {"%21", "!"}}) {
    for (size_t escape; (escape = text.find(code)) != std::string::npos;) text.replace(escape, 3, character);
  }
  return text;
}

// As an API server selects by fields; one whose CRD is of an earlier release knows nodeName alone.
class CheckpointsOfANamespace {
 public:
  std::vector<Json> all;
  bool earlier_crd = false;
  size_t items_sent = 0;

  kube::HttpResponse Answer(const kube::HttpRequest& request) {
    const std::string name = request.path.substr(0, request.path.find('?')).substr(request.path.find("/checkpoints") + 12);
    if (!name.empty()) {
      for (const Json& object : all) {
        if (name == "/" + GetString(object, {"metadata", "name"})) return kube::JsonAnswer(200, object);
      }
      return kube::Failure(404, "NotFound");
    }
    const std::string fields = Parameter(request.path, "fieldSelector"), from = Parameter(request.path, "continue");
    if (earlier_crd && !fields.empty()) return kube::Failure(400, "BadRequest", "field label not supported: status.owner.uid");
    const size_t limit = std::stoul(Parameter(request.path, "limit"));
    Json items = Json::array();
    size_t at = from.empty() ? 0 : std::stoul(from);
    for (; at < all.size() && items.size() < limit; ++at) {
      if (Matches(all[at], fields)) items.push_back(all[at]);
    }
    items_sent += items.size();
    most_in_a_page = std::max(most_in_a_page, items.size());
    Json metadata = {{"resourceVersion", "7"}};
    if (at < all.size()) metadata["continue"] = std::to_string(at);
    return kube::JsonAnswer(200, {{"kind", "CheckpointList"}, {"metadata", metadata}, {"items", items}});
  }
  size_t most_in_a_page = 0;

 private:
  static bool Matches(const Json& object, const std::string& fields) {
    if (fields.empty()) return true;
    if (fields == "status.owner.uid=,status.phase!=Failed")
      return GetString(object, {"status", "owner", "uid"}).empty() && GetString(object, {"status", "phase"}) != "Failed";
    const std::string value = fields.substr(fields.find('=') + 1);
    if (fields.starts_with("status.owner.uid=")) return GetString(object, {"status", "owner", "uid"}) == value;
    EXPECT_TRUE(fields.starts_with("status.claim.podUID=")) << fields;
    return GetString(object, {"status", "claim", "podUID"}) == value;
  }
};

class LiveCheckpointsTest : public ::testing::Test {
 protected:
  LiveCheckpointsTest() {
    server_.all.push_back(Made("own", "uid-before", WebOwner().uid.str(), "Ready"));
    AddOthers(20);
    world_.pod = Share(WebPod("web-b", "uid-b"));
    world_.lineage.owner = WebOwner();
  }
  void AddOthers(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const std::string n = std::to_string(i);
      server_.all.insert(server_.all.begin(), Made("other-" + n, "uid-" + n, "uid of owner " + n, "Ready"));
    }
  }
  std::vector<std::string> Find() {
    std::vector<std::string> names;
    auto found = LiveCheckpoints(client_, world_, {});
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    if (found.ok()) {
      for (const CheckpointPtr& c : *found) names.push_back(c->meta.name);
    }
    return names;
  }
  void Ask(const std::string& name) {
    auto pod = *world_.pod;
    pod.meta.annotations = {{api::kFromCheckpoint, name}};
    world_.pod = Share(std::move(pod));
  }

  CheckpointsOfANamespace server_;
  std::shared_ptr<kube::FakeTransport> transport_ =
      std::make_shared<kube::FakeTransport>([this](const kube::HttpRequest& request) { return server_.Answer(request); });
  kube::Client client_{transport_};
  World world_;
};

TEST_F(LiveCheckpointsTest, OfTenThousandInItsNamespaceAPodsOwnAloneAreAskedFor) {
  AddOthers(10'000);
  EXPECT_THAT(Find(), ElementsAre("own"));
  EXPECT_EQ(server_.items_sent, 1U);
}

TEST_F(LiveCheckpointsTest, WhatItHasClaimedAndWhatItAsksForByNameAreAmongThem) {
  Json claimed = Made("claimed", "uid-x", "uid of owner x", "Ready");
  claimed["status"]["claim"] = {{"podName", "web-b"}, {"podUID", "uid-b"}};
  server_.all.push_back(claimed);
  Ask("other-17");
  EXPECT_THAT(Find(), ElementsAre("claimed", "other-17", "own"));
  Ask("no-such");
  EXPECT_THAT(Find(), ElementsAre("claimed", "own"));
  Ask("../../secrets/x");  // no name, and no way out of the collection
  EXPECT_THAT(Find(), ElementsAre("claimed", "own"));
}

// One that is not assigned yet names no owner: it says that the pod's stop has been decided.
TEST_F(LiveCheckpointsTest, WhatIsNotAssignedYetIsFoundByThePodThatIsStopped) {
  server_.all.push_back(Made("stop", "uid-a", "", ""));
  server_.all.push_back(Made("of-somebody-else", "uid-q", "", ""));
  server_.all.push_back(Made("failed", "uid-a", "", "Failed"));
  EXPECT_THAT(Find(), ElementsAre("own"));
  world_.stopping = {Share(WebPod("web-a", "uid-a"))};
  EXPECT_THAT(Find(), ElementsAre("own", "stop"));
  EXPECT_LE(server_.items_sent, 4U);
}

// An upgrade: Helm leaves CRDs as they are. What earlier releases wrote has the same fields, so nothing is lost, and nothing needs a label.
TEST_F(LiveCheckpointsTest, ACrdOfAnEarlierReleaseCostsMoreAndLosesNothing) {
  server_.earlier_crd = true;
  AddOthers(1'200);
  server_.all.push_back(Made("stop", "uid-a", "", ""));
  world_.stopping = {Share(WebPod("web-a", "uid-a"))};
  EXPECT_THAT(Find(), ElementsAre("own", "stop"));
  EXPECT_EQ(server_.items_sent, server_.all.size());  // once, in pages, item by item
  EXPECT_LE(server_.most_in_a_page, 500U);
}

TEST_F(LiveCheckpointsTest, AnApiServerThatDoesNotAnswerIsNoAnswer) {
  transport_->SetAnswer([](const kube::HttpRequest&) { return Status(Code::kUnavailable, "cut off"); });
  EXPECT_FALSE(LiveCheckpoints(client_, world_, {}).ok());
  // Nor is one that fails in the middle: what it has said so far is not all.
  transport_->SetAnswer([this](const kube::HttpRequest& request) -> Result<kube::HttpResponse> {
    if (request.path.find("owner") != std::string::npos) return kube::Failure(500, "InternalError");
    return server_.Answer(request);
  });
  EXPECT_FALSE(LiveCheckpoints(client_, world_, {}).ok());
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
