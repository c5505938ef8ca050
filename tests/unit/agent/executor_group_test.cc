// The executor and a pod that is frozen together with the rest of its group: at the barrier, through it, and back.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExecutorInCut : public ExecutorTest {
 protected:
  ExecutorInCut() {
    cluster.checkpoint["spec"]["final"] = false;
    cluster.checkpoint["spec"]["cut"] = {{"group", "ring"},
                                         {"id", "ck-uid"},
                                         {"members",
                                          {{{"pod", "web-0"}, {"podUID", "pod-uid"}, {"checkpoint", "ck"}},
                                           {{"pod", "web-1"}, {"podUID", "pod-1"}, {"checkpoint", "ck-1"}}}}};
    node.on_dump = [this](const std::string& landing) { Freeze(landing); };
    node.on_look = [this] { GoOn(); };
    cluster.on_patch = [this](const Json& patch) {
      if (!GetString(patch, {"status", "barrier", "frozenAt"}).empty() && on_frozen) on_frozen();
      if (!GetString(patch, {"status", "barrier", "dumpedAt"}).empty()) on_dumped();
      const bool failed = GetString(cluster.checkpoint, {"status", "phase"}) == "Failed";
      if (failed && GetString(patch, {"status", "phase"}) != "Failed")
        return Status(Code::kInvalidArgument, "a Failed checkpoint stays Failed");
      return Status::Ok();
    };
  }

  // holdfast-runc goes on when it is told to, and says how it went.
  void GoOn() {
    auto told = [this](const std::string& said, const std::string& word) {
      if (!Exists(Landing() + "/" + said) || !Exists(Landing() + "/" + word)) return false;
      for (const std::string& file : {said, word}) unlink((Landing() + "/" + file).c_str());
      return true;
    };
    if (told("frozen.json", "go.json")) {
      if (at_work) at_work();
      ASSERT_TRUE(WriteFileAtomically(Landing() + "/dumped.json", "{}").ok());
    }
    if (told("dumped.json", "thaw.json")) {
      node.containers["c1"] = ContainerState::kRunning;
      Dump(Landing(), true);
    }
  }

  std::string Landing() const { return layout.Landing("ck-uid", Place::kDisk); }
  void Freeze(const std::string& landing) {
    request = *ParseJson(*ReadFile(landing + "/request.json"));
    node.dump_running = true;
    node.containers["c1"] = ContainerState::kPaused;
    ASSERT_TRUE(WriteFileAtomically(landing + "/frozen.json", "{}").ok());
  }
  // The controller's word. Called while the patch that it answers is being made.
  void AllFrozen() { cluster.checkpoint["status"]["barrier"]["allFrozenAt"] = FormatTime(clock.Wall()); }
  void AllDumped() { cluster.checkpoint["status"]["barrier"]["allDumpedAt"] = FormatTime(clock.Wall()); }
  void CutFails() {
    cluster.checkpoint["status"]["phase"] = "Failed";
    cluster.checkpoint["status"]["conditions"] = {{{"type", "Ready"},
                                                   {"status", "False"},
                                                   {"reason", "GroupMemberFailed"},
                                                   {"message", "member web-1 of group ring: StoreFull: full"},
                                                   {"lastTransitionTime", FormatTime(clock.Wall())}}};
  }
  // What holdfast-runc does at its own limits.
  void GivesUp() {
    for (const char* file : {"/frozen.json", "/dumped.json"}) unlink((Landing() + file).c_str());
    node.containers["c1"] = ContainerState::kRunning;
    node.dump_running = false;
    runtime::DumpResult result;
    result.reason = "GroupMemberFailed";
    result.message = "it was thawed";
    ASSERT_TRUE(WriteFileAtomically(Landing() + "/result.json", DumpJson(result.ToJson())).ok());
  }

  std::function<void()> on_frozen, on_dumped = [this] { AllDumped(); }, at_work;
  Json request;
};

TEST_F(ExecutorInCut, IsDumpedOnceAllAreFrozenAndNotThroughTheKubelet) {
  on_frozen = [this] {
    EXPECT_FALSE(Exists(Landing() + "/go.json"));
    AllFrozen();
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
  EXPECT_FALSE(cluster.Seen().status.frozen_at.empty());
  EXPECT_EQ(GetInt(request, {"barrier_ms"}), 30'000);
  EXPECT_EQ(GetInt(request, {"hold_ms"}), 60'000);
  EXPECT_THAT(kubelet.asked, IsEmpty());
  EXPECT_EQ(node.dumps, 1);
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, GoesOnWhenItsCutHasFailed) {
  on_frozen = [this] { CutFails(); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_THAT(Message(), HasSubstr("member web-1 of group ring: StoreFull"));
  EXPECT_GE(node.kills, 1);
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, GoesOnWhenItsCheckpointIsDeletedAtTheBarrier) {
  on_frozen = [this] { cluster.checkpoint["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall()); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, ADumpedPodStandsStillUntilTheOthersAreDumped) {
  on_frozen = [this] { AllFrozen(); };
  int looks = 0;
  on_dumped = [] {};
  node.on_look = [this, &looks] {
    GoOn();
    if (!Exists(Landing() + "/dumped.json") || ++looks < 20) return;
    EXPECT_EQ(node.containers["c1"], ContainerState::kPaused);
    EXPECT_FALSE(Exists(Landing() + "/thaw.json")) << "nobody has said so";
    EXPECT_FALSE(GetString(cluster.checkpoint, {"status", "barrier", "dumpedAt"}).empty());
    AllDumped();
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_GE(looks, 20);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, AMemberThatFailsThawsOneThatIsDumped) {
  on_frozen = [this] { AllFrozen(); };
  on_dumped = [this] { CutFails(); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_THAT(Message(), HasSubstr("member web-1 of group ring: StoreFull"));
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, CriuAtWorkIsNotKilledForAnotherMember) {
  on_frozen = [this] { AllFrozen(); };
  at_work = [this] {
    CutFails();
    EXPECT_EQ(node.kills, 0);
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, SaysSoWhenNobodySaidThatAllAreDumped) {
  on_frozen = [this] { AllFrozen(); };
  on_dumped = [this] { GivesUp(); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_EQ(node.dumps, 1);
  EXPECT_EQ(store.commits, 0) << "somebody may have been dumped after it went on";
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, SaysSoWhenNobodyGaveTheWord) {
  on_frozen = [this] { GivesUp(); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  EXPECT_EQ(node.dumps, 1);
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, WithoutAnApiServerHoldfastRuncThawsItAndTheReportComesLater) {
  int tries = 0;
  cluster.on_patch = [&](const Json& patch) {
    if (GetString(patch, {"status", "barrier", "frozenAt"}).empty()) return Status::Ok();
    if (++tries == 3) GivesUp();
    return Status(Code::kUnavailable, "no API server");
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(tries, 3) << "it is tried again while the pod stands still";
  EXPECT_EQ(Reason(), "GroupMemberFailed");
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, IsNotFrozenASecondTimeWhenItsDumpWasLost) {
  node.on_dump = [this](const std::string&) { node.containers["c1"] = ContainerState::kPaused; };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_EQ(node.dumps, 1) << "a second freeze would be of another moment";
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, AnAgentThatDiedAtTheBarrierGoesOnFromThere) {
  JournalEntry entry = Entry(Step::kDumping);
  entry.final = false;
  entry.in_cut = true;
  ASSERT_TRUE(journal.Write(entry).ok());
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  Freeze(Landing());
  Restart();
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Frozen()) << "it still stands with the others";
  on_frozen = [this] { AllFrozen(); };
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, AnAgentThatDiedWhileItsPodStoodStillDumpedGoesOnFromThere) {
  JournalEntry entry = Entry(Step::kDumping);
  entry.final = false;
  entry.in_cut = true;
  ASSERT_TRUE(journal.Write(entry).ok());
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  Freeze(Landing());
  unlink((Landing() + "/frozen.json").c_str());
  ASSERT_TRUE(WriteFileAtomically(Landing() + "/dumped.json", "{}").ok());
  for (const char* at : {"frozenAt", "allFrozenAt"}) cluster.checkpoint["status"]["barrier"][at] = FormatTime(clock.Wall());
  Restart();
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Frozen());
  Pump pump(clock);
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInCut, APodUnderPlainRuncIsRefused) {
  cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid", "");
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Unsupported");
  EXPECT_THAT(Message(), HasSubstr("group ring"));
  EXPECT_EQ(node.dumps, 0);
}

}  // namespace
}  // namespace holdfast::agent
