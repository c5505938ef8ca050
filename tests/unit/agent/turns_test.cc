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

TEST_F(ExecutorInTurn, AStoreThatIsDownKeepsTheTurnOfItsNamespaceOnly) {
  cluster.checkpoint["spec"]["final"] = false;
  store.reachable = false;
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(turns.Take("another", "default"));
  EXPECT_TRUE(turns.Take("one more", "other"));
}

}  // namespace
}  // namespace holdfast::agent
