// Hole 11: one tenant's checkpoints, however many and slow, take neither the workers of drains nor those of other tenants.
#include "agent/turns.h"

#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

TEST(Turns, HalfOfTheWorkersAreForDrainsAndOneNamespaceGetsHalfOfTheRest) {
  struct Case {
    int workers, all, of_namespace;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{2, 1, 1}, Case{4, 2, 1}, Case{8, 4, 2}, Case{64, 32, 16}}) {
    Turns turns(c.workers);
    EXPECT_EQ(turns.limit(), c.all);
    EXPECT_EQ(turns.limit_of_namespace(), c.of_namespace);
  }
  Turns turns(8);
  EXPECT_TRUE(turns.Take("a1", "a"));
  EXPECT_TRUE(turns.Take("a2", "a"));
  EXPECT_FALSE(turns.Take("a3", "a"));
  EXPECT_TRUE(turns.Take("a1", "a")) << "it has its turn already";
  EXPECT_TRUE(turns.Take("b1", "b"));
  EXPECT_TRUE(turns.Take("c1", "c"));
  EXPECT_FALSE(turns.Take("d1", "d"));
  turns.Release("a1");
  turns.Release("a1");
  EXPECT_TRUE(turns.Take("d1", "d"));
}

TEST(Turns, DrainsHaveThreadsOfTheirOwnAndNoNamespaceHasAllOfTheRest) {
  const Work drain{Line::kDrain, "a"}, urgent{Line::kUrgent, "hog"}, manual{Line::kCanWait, "hog"}, member{Line::kMember, "hog"};
  using Works = std::vector<Work>;
  struct Case {
    const char* what;
    Work me;
    Works under_way;
    bool may;
  };
  for (const Case& c : {
           Case{"nothing is under way", drain, {}, true},
           {"a tenant has all that is not for drains", drain, {member, member, urgent, manual}, true},
           {"the node has as many drains as it may have", drain, {drain, drain, drain, drain}, false},
           {"drains take nothing from the rest", urgent, {drain, drain, drain, drain}, true},
           {"a namespace leaves one to others", urgent, {urgent, urgent, manual}, false},
           {"which they get", {Line::kUrgent, "b"}, {urgent, urgent, manual}, true},
           {"also for what can wait", {Line::kCanWait, "b"}, {urgent, urgent, manual}, true},
           {"a cut is frozen at one moment", member, {member, member, member}, true},
           {"there are no more", {Line::kUrgent, "b"}, {member, member, member, member}, false},
       }) {
    EXPECT_EQ(MayBegin(c.me, c.under_way, 4), c.may) << c.what;
  }
  for (const int workers : {1, 2, 64}) {
    Works all;
    while (MayBegin(drain, all, workers)) all.push_back(drain);
    while (MayBegin(member, all, workers)) all.push_back(member);
    EXPECT_EQ(static_cast<int>(all.size()) + 1, ThreadsFor(workers)) << "one is for what takes a moment";
  }
  EXPECT_TRUE(MayBegin(urgent, {}, 1));
}

TEST(Turns, ALineIsWhatACheckpointIsFor) {
  api::Checkpoint c;
  JournalEntry entry;
  EXPECT_EQ(LineOf(c), Line::kCanWait);
  EXPECT_EQ(LineOf(entry), Line::kCanWait);
  c.spec.trigger = api::Trigger::kDrain;
  EXPECT_EQ(LineOf(c), Line::kCanWait) << "nobody stands still for it";
  c.spec.final = entry.final = true;
  EXPECT_EQ(LineOf(c), Line::kDrain);
  EXPECT_EQ(LineOf(entry), Line::kDrain);
  entry.on_stop = true;
  EXPECT_EQ(LineOf(entry), Line::kUrgent);
  for (const api::Trigger trigger : {api::Trigger::kManual, api::Trigger::kStop, api::Trigger::kSuspend, api::Trigger::kIdle}) {
    c.spec.trigger = trigger;
    EXPECT_EQ(LineOf(c), Line::kUrgent) << api::TriggerName(trigger);
  }
  c.spec.final = entry.final = false;
  c.spec.cut.id = "ring";
  entry.in_cut = true;
  EXPECT_EQ(LineOf(c), Line::kMember);
  EXPECT_EQ(LineOf(entry), Line::kMember);
}

TEST(Turns, NobodyWaitsWhosePodStandsStill) {
  api::Checkpoint c;
  EXPECT_TRUE(CanWait(c));
  c.spec.cut.id = "ring";
  EXPECT_FALSE(CanWait(c)) << "the others of its group are frozen";
  c.spec.cut.id = "";
  c.spec.final = true;
  EXPECT_FALSE(CanWait(c));
}

class ExecutorInTurn : public ExecutorTest {
 protected:
  Result<std::optional<Duration>> Run() { return RunInTurn(turns, *executor, journal, cluster, clock, "ck-uid", {}); }
  Turns turns{4};
};

TEST_F(ExecutorInTurn, AManualOneWaitsForAnotherOfItsNamespace) {
  cluster.checkpoint["spec"]["final"] = false;
  ASSERT_TRUE(turns.Take("another", "default"));
  const auto waits = Run();
  ASSERT_TRUE(waits.ok() && *waits);
  EXPECT_TRUE(kubelet.asked.empty());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kAssigned);
  EXPECT_EQ(Reason(), api::reason::kQueued);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(cluster.phases.size(), 1u) << "told once";
  turns.Release("another");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Run().ok());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(turns.Take("another", "default")) << "it gave its turn back when it was over";
}

TEST_F(ExecutorInTurn, ADrainNeverWaits) {
  ASSERT_TRUE(turns.Take("another", "default"));
  ASSERT_TRUE(turns.Take("one more", "other"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run().ok());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorInTurn, AFinalOneWaitsWhileItsNamespaceHasAllButOneThreadAndSaysSo) {
  cluster.checkpoint["spec"]["trigger"] = "Suspend";
  for (const char* other : {"1", "2", "3"}) ASSERT_TRUE(turns.Begin(other, {Line::kUrgent, "default"}));
  const auto waits = Run();
  ASSERT_TRUE(waits.ok() && *waits);
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), api::reason::kQueued);
  turns.End("3");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run().ok());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(turns.Begin("3", {Line::kUrgent, "default"})) << "what is Ready blocks no thread";
}

TEST_F(ExecutorInTurn, ADrainBeginsAtOnceWhereOneTenantHasAllElse) {
  cluster.checkpoint["spec"]["trigger"] = "Drain";
  for (const char* other : {"1", "2", "3", "4"}) ASSERT_TRUE(turns.Begin(other, {Line::kMember, "hog"}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run().ok());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorInTurn, AStoreThatIsDownKeepsTheTurnOfItsNamespaceOnly) {
  cluster.checkpoint["spec"]["final"] = false;
  store.reachable = false;
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(turns.Take("another", "default"));
  EXPECT_TRUE(turns.Take("one more", "other"));
}

}  // namespace
}  // namespace holdfast::agent
