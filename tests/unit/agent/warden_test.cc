#include "agent/warden.h"

#include "base/clock.h"
#include "fakes.h"

namespace holdfast::agent {
namespace {

using std::chrono::seconds;

NodeContainer Local(const std::string& pod_uid, bool ours = true) {
  return {"c-" + pod_uid, pod_uid, "default", "pod-" + pod_uid, "main", ours};
}

const WallTime kNow = *ParseTime("2026-01-01T00:00:30Z");

kube::Pod PodWith(const std::string& uid, bool terminating = false, const std::string& until = "2026-01-01T00:00:00Z") {
  Json pod = PodJson("pod-" + uid, uid);
  if (terminating) pod["metadata"]["deletionTimestamp"] = until;
  return kube::Pod::FromJson(pod);
}

Json IntervalJson(const std::string& claimed_by = "") {
  Json cp = CheckpointJson(false);
  cp["spec"]["trigger"] = "Interval";
  cp["status"]["phase"] = "Ready";
  if (!claimed_by.empty())
    cp["status"]["claim"] = {{"podName", claimed_by}, {"podUID", claimed_by + "-uid"}, {"at", "2026-01-01T00:00:00Z"}};
  return cp;
}

api::Checkpoint Of(const std::string& pod_uid, const std::string& claimed_by = "", bool final = false) {
  api::Checkpoint c = api::Checkpoint::FromJson(IntervalJson(claimed_by));
  c.spec.pod_uid = pod_uid;
  c.spec.final = final;
  return c;
}

api::Checkpoint Reclaimed(const std::string& pod_uid) {
  api::Checkpoint c = Of(pod_uid, "pod", true);
  c.status.claim->pod_uid = pod_uid;
  return c;
}

struct Case {
  const char* what;
  std::vector<kube::Pod> pods;
  std::vector<api::Checkpoint> checkpoints;
  bool cut_off, ends;
  bool ours = true;
};

TEST(Warden, FindsWhatWasReplaced) {
  const Case cases[] = {
      {"it is there", {PodWith("a")}, {Of("a")}, true, false},
      {"a user started a copy beside it", {PodWith("a")}, {Of("a", "copy")}, true, false},
      {"gone, and another goes on from its checkpoint", {}, {Of("a", "web-b")}, false, true},
      {"leaving, and another goes on from its checkpoint", {PodWith("a", true)}, {Of("a", "web-b")}, false, true},
      {"leaving, by its kubelet", {PodWith("a", true)}, {Of("a")}, false, false},
      {"it should have ended while the node was cut off", {PodWith("a", true)}, {}, true, true},
      {"its grace is not over", {PodWith("a", true, "2026-01-01T00:01:00Z")}, {}, true, false},
      {"the end of a drain is the kubelet's", {PodWith("a", true)}, {Of("a", "web-b", true)}, false, false},
      {"but not of one that began before the node was cut off", {}, {Of("a", "web-b", true)}, true, true},
      {"gone while in contact: the kubelet ends it with grace", {}, {}, false, false},
      {"gone while cut off", {}, {}, true, true},
      {"gone while cut off, but never ours", {}, {}, true, false, false},
      {"thawed again after a drain", {PodWith("a", true)}, {Reclaimed("a")}, false, false},
      {"another pod's checkpoint", {PodWith("a", true)}, {Of("b", "web-b")}, false, false},
  };
  for (const Case& c : cases) {
    const auto found = FindReplaced({Local("a", c.ours)}, c.pods, c.checkpoints, c.cut_off, kNow);
    std::vector<std::string> ids;
    for (const ReplacedPod& pod : found) ids.insert(ids.end(), pod.containers.begin(), pod.containers.end());
    EXPECT_EQ(ids, c.ends ? std::vector<std::string>{"c-a"} : std::vector<std::string>()) << c.what;
  }
}

class WardenTest : public testing::Test {
 protected:
  WardenTest() {
    EXPECT_TRUE(layout.Make().ok());
    EXPECT_TRUE(MakeDirs(layout.kubelet + "/pods/pod-uid").ok());
    cluster.checkpoint = IntervalJson();
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    node.on_node = {{"c1", "pod-uid", "default", "web-0", "main", true}};
  }
  void LookFor(int times) {
    for (int i = 0; i < times; ++i) {
      warden.Look();
      clock.Advance(seconds(1));
    }
  }

  TempDir dir;
  const Layout layout{dir.path() + "/run", dir.path() + "/state", dir.path() + "/kubelet"};
  FakeNode node;
  FakeCluster cluster;
  FakeClock clock;
  Warden warden{{.node_name = "node1"}, layout, node, cluster, clock};
};

TEST_F(WardenTest, LeavesWhatRunsAlone) {
  LookFor(60);
  EXPECT_TRUE(node.killed.empty());
  EXPECT_TRUE(cluster.events.empty());
}

TEST_F(WardenTest, ANodeThatComesBackEndsWhatWasReplacedAndStartsItNotAgain) {
  LookFor(5);
  cluster.reachable = false;
  LookFor(120);
  EXPECT_TRUE(node.killed.empty()) << "out of contact nothing is known";
  cluster.checkpoint = IntervalJson("web-1");
  cluster.pods.clear();
  cluster.reachable = true;
  LookFor(2);
  EXPECT_EQ(node.killed, std::vector<std::string>{"c1"});
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "Fenced"));
  EXPECT_TRUE(Exists(layout.PodFile("pod-uid"))) << "a kubelet that is behind would start it again";
  ASSERT_TRUE(RemoveAll(layout.kubelet + "/pods/pod-uid").ok());
  LookFor(1);
  EXPECT_FALSE(Exists(layout.PodFile("pod-uid")));
}

TEST_F(WardenTest, ShortSilenceIsNoLossOfContact) {
  LookFor(5);
  cluster.reachable = false;
  LookFor(12);
  cluster.reachable = true;
  cluster.pods.clear();  // deleted by force meanwhile: the kubelet gives it its grace
  LookFor(30);
  EXPECT_TRUE(node.killed.empty());
}

TEST_F(WardenTest, AnAgentThatHasJustBegunTakesItForLossOfContact) {
  cluster.pods.clear();
  LookFor(1);
  EXPECT_EQ(node.killed, std::vector<std::string>{"c1"});
}

TEST_F(WardenTest, WhatCannotBeEndedIsTriedAgain) {
  cluster.pods.clear();
  node.end_fails = true;
  LookFor(3);
  EXPECT_TRUE(node.killed.empty());
  node.end_fails = false;
  LookFor(2);
  EXPECT_EQ(node.killed, std::vector<std::string>{"c1"});
}

TEST_F(WardenTest, AClaimWhileInContactEndsTheOldPodAtOnce) {
  LookFor(5);
  cluster.pods.clear();
  LookFor(2);
  EXPECT_TRUE(node.killed.empty());
  cluster.checkpoint = IntervalJson("web-1");
  LookFor(1);
  EXPECT_EQ(node.killed, std::vector<std::string>{"c1"});
}

TEST_F(WardenTest, SaysWhenNothingOfAPodIsLeft) {
  LookFor(3);
  cluster.pods.clear();
  LookFor(3);
  EXPECT_EQ(kube::FindCondition(cluster.Seen().status.conditions, api::kPodEnded), nullptr) << "its container is still there";
  node.on_node.clear();
  LookFor(1);
  const api::Checkpoint seen = cluster.Seen();
  const auto* ended = kube::FindCondition(seen.status.conditions, api::kPodEnded);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->status, "True");
}

TEST_F(WardenTest, APodThatIsThereHasNotEnded) {
  node.on_node.clear();  // between two restarts of its container
  LookFor(30);
  EXPECT_EQ(kube::FindCondition(cluster.Seen().status.conditions, api::kPodEnded), nullptr);
}

}  // namespace
}  // namespace holdfast::agent
