#include "agent/preflight.h"

#include <gmock/gmock.h>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using testing::HasSubstr;

struct Case {
  const char* what;
  std::function<void(Json& pod, Json& checkpoint)> change;
  const char* reason;
  const char* says;
};

TEST(Preflight, RefusesWithTheReasonBeforeAnythingIsFrozen) {
  const Case cases[] = {
      {"another uid", [](Json& pod, Json&) { pod["metadata"]["uid"] = "other"; }, "PodReplaced", "other"},
      {"another node", [](Json& pod, Json&) { pod["spec"]["nodeName"] = "node9"; }, "PodGone", "node1"},
      {"ended", [](Json& pod, Json&) { pod["status"]["phase"] = "Succeeded"; }, "PodGone", "ended"},
      {"terminating", [](Json& pod, Json&) { pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"; }, "PodGone", "deleted"},
      {"user namespace", [](Json& pod, Json&) { pod["spec"]["hostUsers"] = false; }, "Unsupported", "user namespace"},
      {"another runtime class", [](Json& pod, Json&) { pod["spec"]["runtimeClassName"] = "kata"; }, "Unsupported", "kata"},
      {"final under plain runc", [](Json& pod, Json&) { pod["spec"].erase("runtimeClassName"); }, "Unsupported", "restart"},
      {"AMD's GPU", [](Json& pod, Json&) { pod["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] = "1"; }, "Unsupported",
       "amd.com/gpu"},
      {"a GPU under plain runc",
       [](Json& pod, Json& cp) {
         pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1";
         pod["spec"].erase("runtimeClassName");
         cp["spec"]["final"] = false;
       },
       "Unsupported", "runtimeClassName: holdfast"},
      {"an NVIDIA GPU, of which holdfast-runc says the rest",
       [](Json& pod, Json&) { pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"; }, "", ""},
      {"a static pod", [](Json& pod, Json&) { pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"; }, "Unsupported",
       "static"},
      {"an unknown container", [](Json&, Json& cp) { cp["spec"]["containers"] = {"nope"}; }, "Unsupported", "nope"},
      {"not running yet",
       [](Json& pod, Json&) {
         pod["status"]["containerStatuses"][0]["state"] = {{"waiting", {{"reason", "ContainerCreating"}}}};
       },
       "Waiting", "main"},
      {"ended container",
       [](Json& pod, Json&) {
         pod["status"]["containerStatuses"][0]["state"] = {{"terminated", {{"exitCode", 0}}}};
       },
       "Unsupported", "ended"},
      {"another runtime", [](Json& pod, Json&) { pod["status"]["containerStatuses"][0]["containerID"] = "cri-o://c1"; }, "Unsupported",
       "containerd"},
      {"a hostile id", [](Json& pod, Json&) { pod["status"]["containerStatuses"][0]["containerID"] = "containerd://../x"; }, "Unsupported",
       ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Json pod = PodJson("web-0", "pod-uid"), checkpoint = CheckpointJson(true);
    c.change(pod, checkpoint);
    kube::Pod typed = kube::Pod::FromJson(pod);
    Preflight check = Check(api::Checkpoint::FromJson(checkpoint), &typed, "node1");
    EXPECT_EQ(check.reason, c.reason);
    EXPECT_THAT(check.message, HasSubstr(c.says));
  }
  EXPECT_EQ(Check(api::Checkpoint::FromJson(CheckpointJson(true)), nullptr, "node1").reason, "PodGone");
}

TEST(Preflight, TakesRegularContainersButMeshSidecars) {
  Json pod = PodJson("web-0", "pod-uid");
  pod["spec"]["containers"].push_back({{"name", "istio-proxy"}});
  kube::Pod typed = kube::Pod::FromJson(pod);
  Preflight check = Check(api::Checkpoint::FromJson(CheckpointJson(true)), &typed, "node1");
  EXPECT_EQ(check.reason, "");
  ASSERT_EQ(check.containers.size(), 1u);
  EXPECT_EQ(check.containers[0].id, "c1");
  EXPECT_EQ(check.containers[0].image_digest, "sha256:abc");
  EXPECT_THAT(check.volumes, testing::ElementsAre("scratch"));
  EXPECT_FALSE(check.stock);
}

TEST(Preflight, NativeSidecarsAreTakenBeforeTheContainersThatTheyServe) {
  Json pod = PodJson("web-0", "pod-uid");
  pod["spec"]["initContainers"] = Json::parse(
      R"([{"name":"holdfast-wait"},{"name":"migrate"},{"name":"log-shipper","restartPolicy":"Always"},{"name":"istio-proxy","restartPolicy":"Always"}])");
  Json sidecar = pod["status"]["containerStatuses"][0];
  sidecar["name"] = "log-shipper";
  sidecar["containerID"] = "containerd://c2";
  pod["status"]["initContainerStatuses"] = Json::array({sidecar});
  kube::Pod typed = kube::Pod::FromJson(pod);
  Preflight check = Check(api::Checkpoint::FromJson(CheckpointJson(true)), &typed, "node1");
  ASSERT_EQ(check.reason, "") << check.message;
  ASSERT_EQ(check.containers.size(), 2u);
  EXPECT_EQ(check.containers[0].name, "log-shipper");
  EXPECT_EQ(check.containers[0].id, "c2");
  EXPECT_EQ(check.containers[1].name, "main");
}

TEST(Preflight, APodUnderPlainRuncIsTakenByTheKubeletsArchive) {
  kube::Pod pod = kube::Pod::FromJson(PodJson("web-0", "pod-uid", ""));
  Preflight check = Check(api::Checkpoint::FromJson(CheckpointJson(false)), &pod, "node1");
  EXPECT_EQ(check.reason, "");
  EXPECT_TRUE(check.stock);
}

TEST(Journal, HostileEntriesAreNotRead) {
  TempDir dir;
  Journal journal(dir.path());
  JournalEntry entry;
  entry.uid = entry.ns = entry.name = entry.pod = entry.pod_uid = "x";
  entry.containers = {{"main", "c1", "", ""}};
  const Json good = entry.ToJson();
  EXPECT_TRUE(JournalEntry::FromJson(good).ok());
  for (const char* key : {"uid", "namespace", "name", "pod", "podUID", "step"}) {
    Json bad = good;
    bad[key] = "../../etc";
    EXPECT_FALSE(JournalEntry::FromJson(bad).ok()) << key;
    bad[key] = 7;
    EXPECT_FALSE(JournalEntry::FromJson(bad).ok()) << key;
  }
  Json bad = good;
  bad["containers"][0]["id"] = "../c";
  EXPECT_FALSE(JournalEntry::FromJson(bad).ok());
  entry.uid = "..";
  EXPECT_FALSE(journal.Write(entry).ok());
  EXPECT_FALSE(journal.Read("../x").ok());
}

TEST(Journal, AnEntryOfAnotherCheckpointIsDamage) {
  TempDir dir;
  Journal journal(dir.path());
  JournalEntry entry;
  entry.uid = entry.ns = entry.name = entry.pod = entry.pod_uid = "x";
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/y.json", DumpJson(entry.ToJson())).ok());
  EXPECT_EQ(journal.Read("y").status().code(), Code::kDataLoss);
  std::vector<std::string> damaged;
  EXPECT_TRUE(journal.List(&damaged)->empty());
  EXPECT_THAT(damaged, testing::ElementsAre("y.json"));
}

}  // namespace
}  // namespace holdfast::agent
