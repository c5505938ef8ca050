#include "kube/events.h"
#include "kube/lease.h"
#include "tests/integration/kube/fixture.h"

namespace holdfast::kube {
namespace {

TEST_F(KubeTest, OneOfTwoElectorsLeadsAndTheOtherFollows) {
  std::atomic<int64_t> fence_a{-1}, fence_b{-1};
  LeaseOptions options{.ns = ns_, .name = "holdfast", .identity = "a"};
  options.lease_duration = std::chrono::seconds(3);
  options.renew_deadline = std::chrono::seconds(2);
  options.renew_every = std::chrono::milliseconds(200);
  std::atomic<bool> a_stopped{false};
  LeaderElector a(
      client_, options, [&](int64_t fence) { fence_a = fence; }, [&] { a_stopped = true; });
  options.identity = "b";
  LeaderElector b(
      client_, options,
      [&](int64_t fence) {
        EXPECT_TRUE(a_stopped) << "two leaders";
        fence_b = fence;
      },
      [] {});
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.leading() && fence_a >= 0; }));
  b.Start();
  Clock::Real().Sleep(std::chrono::seconds(4), {});  // longer than the lease: only renewals keep `a`
  EXPECT_TRUE(a.leading());
  EXPECT_FALSE(b.leading());
  a.Stop();
  MonoTime released = Clock::Real().Mono();
  ASSERT_TRUE(Eventually([&] { return b.leading() && fence_b >= 0; }));
  EXPECT_LT(Clock::Real().Mono() - released, std::chrono::milliseconds(2500)) << "a released lease need not expire";
  EXPECT_GT(fence_b, fence_a);
}

TEST_F(KubeTest, EqualEventsBecomeASeries) {
  Result<Json> made = client_.Create(Pod::kResource, ns_, PodObject("web-0"));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ObjectReference about = ObjectReference::To(Pod::kResource, ObjectMeta::FromJson(*made));
  {
    EventRecorder recorder(client_, "holdfast.dev/test", "test-0");
    for (int i = 0; i < 3; ++i) recorder.Warning(about, "Unsupported", "Checkpoint", "io_uring is in use");
    recorder.Normal(about, "Completed", "Checkpoint", "stored");
  }
  Result<std::vector<Json>> events = client_.List(kEvents, {.ns = ns_});
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2u);
  for (const Json& event : *events) {
    EXPECT_EQ(GetString(event, {"regarding", "uid"}), about.uid);
    if (GetString(event, {"reason"}) == "Unsupported") {
      EXPECT_EQ(GetInt(event, {"series", "count"}), 3) << event.dump();
      EXPECT_EQ(GetString(event, {"type"}), "Warning");
    } else {
      EXPECT_EQ(Find(event, {"series"}), nullptr);
    }
  }
}

}  // namespace
}  // namespace holdfast::kube
