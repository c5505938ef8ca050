#include "runtime/volumes.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "runtime/beside.h"
#include "runtime/tree.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

// A pod that is restored: a checkpoint's folder with a volume and shared memory, and where they belong.
class Volumes : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
    ASSERT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    for (const std::string& path :
         {volume_, shm_, dir_ / "kept", dir_ / "from/volumes", dir_ / "from/main", dir_ / "from/side", dir_ / "root"})
      ASSERT_TRUE(MakeDirs(path).ok());
    ASSERT_EQ(mount("tmpfs", shm_.c_str(), "tmpfs", 0, nullptr), 0);
    Put("kept/file", "kept");
    ASSERT_TRUE(ArchiveTree(dir_ / "kept", dir_ / "from/volumes/data.tar").ok());
    ASSERT_TRUE(ArchiveTree(dir_ / "kept", dir_ / "from/shm.tar").ok());
    node_.run = dir_ / "run";
    answer_.action = "restore";
    answer_.dir = dir_ / "from";
    answer_.container = "main";
    answer_.first = true;
    answer_.volumes = {{"data", volume_}};
  }
  void TearDown() override { umount2(shm_.c_str(), MNT_DETACH); }

  void Put(const std::string& name, const std::string& text) { ASSERT_TRUE(WriteFileAtomically(dir_ / name, text).ok()) << name; }
  Status Fill() { return FillVolumes(node_, dir_ / "root", spec_, answer_); }
  Status Reset() { return ResetVolumes(node_, dir_ / "root", spec_, answer_); }
  std::string InVolume() { return ReadFile(volume_ + "/file").value_or("(none)"); }
  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(volume_ + "/file", text).ok()); }

  TempDir dir_;
  const std::string volume_ = dir_ / "kubelet/pods/u1/volumes/kubernetes.io~empty-dir/data";
  const std::string shm_ = dir_ / "sandboxes/s1/shm";
  Node node_;
  CreateAnswer answer_;
  // What this container has at /dev/shm is a volume of the node's: not the sandbox's.
  const Spec spec_ = Spec({{"annotations", {{"io.kubernetes.cri.sandbox-uid", "u1"}, {"io.kubernetes.cri.sandbox-id", "s1"}}},
                           {"mounts", {{{"destination", "/dev/shm"}, {"source", dir_ / "kept"}}}}});
};

TEST_F(Volumes, AreFilledByEachTryUntilSomethingRuns) {
  ASSERT_TRUE(Fill().ok());
  EXPECT_EQ(InVolume(), "kept");
  EXPECT_EQ(ReadFile(shm_ + "/file").value_or(""), "kept");
  Write("by CRIU, in a try that failed");
  ASSERT_TRUE(Fill().ok());
  EXPECT_EQ(InVolume(), "kept");
  Put("from/side/restored", "c1");
  Write("by what was restored");
  ASSERT_TRUE(Fill().ok());
  ASSERT_TRUE(Reset().ok());
  EXPECT_EQ(InVolume(), "by what was restored");
}

// Hole 17: a container that started cold beside one that is still to be restored had its volumes emptied while it ran.
TEST_F(Volumes, AreLeftToAContainerThatStartedCold) {
  answer_.more = true;
  ASSERT_TRUE(Fill().ok());
  Write("by CRIU, in a try that failed");
  ASSERT_TRUE(Reset().ok());
  EXPECT_EQ(InVolume(), "kept") << "they are the pod's: what is restored next needs them";
  Write("by the container that started cold");
  answer_.more = false;
  ASSERT_TRUE(Fill().ok());
  EXPECT_EQ(InVolume(), "by the container that started cold");
  ASSERT_TRUE(Reset().ok());
  EXPECT_EQ(InVolume(), "by the container that started cold");
}

TEST_F(Volumes, AreEmptyWhereTheWholePodStartsCold) {
  ASSERT_TRUE(Fill().ok());
  ASSERT_TRUE(Reset().ok());
  EXPECT_TRUE(ListDir(volume_)->empty());
  EXPECT_TRUE(ListDir(shm_)->empty());
  EXPECT_FALSE(VolumesAreInUse(answer_.dir));
}

// Hole 1: whatever is mounted at /dev/shm, and wherever an answer points.
TEST_F(Volumes, OfNobodyElseAreTouched) {
  Put("kept/file", "of the node");
  ASSERT_TRUE(Fill().ok());
  ASSERT_TRUE(Reset().ok());
  EXPECT_EQ(ReadFile(dir_ / "kept/file").value_or(""), "of the node");
  answer_.volumes = {{"data", dir_ / "kept"}};
  EXPECT_EQ(Fill().code(), Code::kInvalidArgument);
  EXPECT_EQ(Reset().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadFile(dir_ / "kept/file").value_or(""), "of the node");
}

// Hole 1: those that run already stand still meanwhile, and run on after it.
TEST_F(Volumes, ContainersThatRunAlreadyStandStillMeanwhile) {
  for (const auto& [id, uid] : {std::pair("side", "u1"), std::pair("stranger", "u2")}) {
    const std::string freezer = dir_ / id;
    ASSERT_TRUE(MakeDirs(freezer).ok());
    ASSERT_TRUE(MakeDirs(dir_ / "root/" + id).ok());
    Put(std::string(id) + "/freezer.state", "THAWED");
    const Json labels = {std::string("io.kubernetes.cri.sandbox-uid=") + uid, "io.kubernetes.cri.container-name=" + std::string(id)};
    Put(std::string("root/") + id + "/state.json", DumpJson({{"cgroup_paths", {{"freezer", freezer}}}, {"config", {{"labels", labels}}}}));
  }
  {
    HeldBeside held(node_, dir_ / "root", "u1");
    EXPECT_EQ(held.Freeze({}, Clock::Real().Mono() + std::chrono::seconds(2)), "");
    EXPECT_EQ(ReadFile(dir_ / "side/freezer.state").value_or(""), "FROZEN");
    EXPECT_EQ(ReadFile(dir_ / "stranger/freezer.state").value_or(""), "THAWED");
    EXPECT_TRUE(IsHeldBeside(node_, "side"));
  }
  EXPECT_EQ(ReadFile(dir_ / "side/freezer.state").value_or(""), "THAWED");
  EXPECT_FALSE(IsHeldBeside(node_, "side"));
  ASSERT_TRUE(Fill().ok());
  EXPECT_EQ(ReadFile(dir_ / "side/freezer.state").value_or(""), "THAWED");
}

}  // namespace
}  // namespace holdfast::runtime
