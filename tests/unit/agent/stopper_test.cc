#include "agent/stopper.h"

#include <gtest/gtest.h>

#include "agent/freezer.h"
#include "tests/unit/agent/fakes.h"

namespace holdfast::agent {
namespace {

const runtime::StopQuestion kQuestion{"pod-uid", "default", "web-0", "main", "c1"};

class StopperTest : public ::testing::Test {
 protected:
  StopperTest() {
    layout_.run = dir_.path() + "/run";
    layout_.state = dir_.path() + "/state";
    EXPECT_TRUE(layout_.Make().ok());
    Json pod = PodJson("web-0", "pod-uid");
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z";
    cluster_.pods["default/web-0"] = pod;
    cluster_.checkpoint = nullptr;
  }
  runtime::StopAnswer Ask(bool enabled = true) {
    Stopper stopper({.enabled = enabled, .patience = std::chrono::milliseconds(80), .dump_begins = std::chrono::milliseconds(80)}, layout_,
                    cluster_, Clock::Real());
    return stopper.Answer(kQuestion, {});
  }
  Json& Pod() { return cluster_.pods["default/web-0"]; }
  void AskForIt(const char* phase) {
    cluster_.checkpoint = CheckpointJson(true);
    cluster_.checkpoint["spec"]["trigger"] = "Stop";
    cluster_.checkpoint["spec"]["podRef"]["uid"] = "pod-uid";
    cluster_.checkpoint["status"]["phase"] = phase;
  }
  Status BeginDump() {
    JournalEntry entry;
    entry.uid = "ck-uid";
    entry.pod_uid = "pod-uid";
    entry.final = true;
    entry.containers = {{"main", "c1", "", ""}};
    return WriteIntents(layout_, entry);
  }

  TempDir dir_;
  Layout layout_;
  FakeCluster cluster_;
};

TEST_F(StopperTest, TheSignalOfADumpedContainerIsReplaced) {
  ASSERT_TRUE(BeginDump().ok());
  EXPECT_EQ(Ask().action, "dump");
}

TEST_F(StopperTest, ASignalWaitsNoLongerThanItsDumpMayTakeToBegin) {
  AskForIt("Assigned");
  const runtime::StopAnswer answer = Ask();
  EXPECT_EQ(answer.action, "signal");
  EXPECT_NE(answer.reason.find("did not say in time"), std::string::npos) << answer.reason;
}

TEST_F(StopperTest, WhatTheControllerLetsGoIsToldSoAtOnce) {
  Pod()["metadata"]["annotations"][api::kLetGo] = "it is not protected";
  const runtime::StopAnswer answer = Ask();
  EXPECT_EQ(answer.action, "signal");
  EXPECT_EQ(answer.reason, "it is not protected");
}

TEST_F(StopperTest, AFailedCheckpointHoldsNoSignalBack) {
  AskForIt("Failed");
  EXPECT_EQ(Ask().action, "signal");
}

TEST_F(StopperTest, ARestartInPlaceIsNoStop) {
  Pod()["metadata"].erase("deletionTimestamp");
  const runtime::StopAnswer answer = Ask();
  EXPECT_EQ(answer.action, "signal");
  EXPECT_NE(answer.reason.find("not being deleted"), std::string::npos);
}

TEST_F(StopperTest, SwitchedOffItHoldsNothingBack) {
  ASSERT_TRUE(BeginDump().ok());
  EXPECT_EQ(Ask(false).action, "signal");
}

}  // namespace
}  // namespace holdfast::agent
