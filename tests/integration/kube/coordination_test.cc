#include "kube/events.h"
#include "kube/lease.h"
#include "tests/integration/kube/fixture.h"

namespace holdfast::kube {
namespace {

TEST_F(KubeTest, OneOfTwoElectorsLeadsAndTheOtherFollows) {
  std::atomic<int64_t> fence_a{-1}, fence_b{-1};
  LeaseOptions options{.ns = ns_, .name = "holdfast", .identity = "a"};
  options.lease_duration = std::chrono::seconds(6);
  options.renew_deadline = std::chrono::seconds(5);
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
  ASSERT_TRUE(a.Start().ok());
  ASSERT_TRUE(Eventually([&] { return a.leading() && fence_a >= 0; }));
  ASSERT_TRUE(b.Start().ok());
  Clock::Real().Sleep(std::chrono::seconds(7), {});  // longer than the lease: only renewals keep `a`
  EXPECT_TRUE(a.leading());
  EXPECT_FALSE(b.leading());
  a.Stop();
  MonoTime released = Clock::Real().Mono();
  ASSERT_TRUE(Eventually([&] { return b.leading() && fence_b >= 0; }));
  EXPECT_LT(Clock::Real().Mono() - released, std::chrono::seconds(5)) << "a released lease need not expire";
  EXPECT_GT(fence_b, fence_a);
}

// A way to the API server that can break.
class BreakableTransport final : public Transport {
 public:
  explicit BreakableTransport(Transport& inner) : inner_(inner) {}
  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override {
    if (broken) return Status(Code::kUnavailable, "no route to host");
    return inner_.Send(request, std::move(stop));
  }
  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    return inner_.Stream(request, on_chunk, std::move(stop));
  }
  std::atomic<bool> broken{false};

 private:
  Transport& inner_;
};

TEST_F(KubeTest, AHolderThatVanishesHasASuccessorWithinTheLeaseDurationAndASecond) {
  auto way = std::make_shared<BreakableTransport>(client_.transport());
  Client breakable(way);
  LeaseOptions options{.ns = ns_, .name = "failover", .identity = "a"};
  options.lease_duration = std::chrono::seconds(4);
  options.renew_deadline = std::chrono::seconds(2);
  options.renew_every = std::chrono::milliseconds(500);
  std::atomic<bool> a_leads{false}, a_stopped{false}, b_leads{false};
  LeaderElector a(
      breakable, options, [&](int64_t) { a_leads = true; }, [&] { a_stopped = true; });
  options.identity = "b";
  LeaderElector b(
      client_, options,
      [&](int64_t) {
        EXPECT_TRUE(a_stopped) << "two leaders";
        b_leads = true;
      },
      [] {});
  ASSERT_TRUE(a.Start().ok());
  ASSERT_TRUE(Eventually([&] { return a_leads.load(); }));
  ASSERT_TRUE(b.Start().ok());
  Clock::Real().Sleep(std::chrono::seconds(2), {});
  way->broken = true;
  const MonoTime vanished = Clock::Real().Mono();
  ASSERT_TRUE(Eventually([&] { return b_leads.load(); }));
  EXPECT_LE(Clock::Real().Mono() - vanished, std::chrono::seconds(7)) << "and 2 s for a server that is busy with other tests";
  EXPECT_EQ(b.transitions(), a.transitions() + 1);
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
