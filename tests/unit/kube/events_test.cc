#include "kube/events.h"

#include <gtest/gtest.h>

#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class Events : public ::testing::Test {
 protected:
  size_t Sent() { return transport_->sent().size(); }
  Json Body(size_t index) { return *ParseJson(transport_->sent()[index].body); }

  FakeClock clock_;
  std::shared_ptr<FakeTransport> transport_ =
      std::make_shared<FakeTransport>([](const HttpRequest&) { return JsonAnswer(201, Json::object()); });
  Client client_{transport_, clock_};
  const ObjectReference pod_{"v1", "Pod", "ns", "web-0", "u1"};
};

TEST_F(Events, SecondOfEqualOnesMakesASeriesAndLaterOnesAreCounted) {
  EventRecorder recorder(client_, "holdfast.dev/agent", "node-a");
  recorder.Warning(pod_, "DumpFailed", "Checkpoint", "CRIU: no");
  ASSERT_TRUE(Eventually([&] { return Sent() == 1; }));
  for (int i = 0; i < 5; ++i) recorder.Warning(pod_, "DumpFailed", "Checkpoint", "CRIU: no");
  ASSERT_TRUE(Eventually([&] { return Sent() == 2; }));
  EXPECT_EQ(transport_->sent()[1].method, "PATCH");
  EXPECT_EQ(GetInt(Body(1), {"series", "count"}), 2);
  ASSERT_TRUE(AdvanceUntil(clock_, seconds(5), minutes(3), [&] { return Sent() == 3; }));
  EXPECT_EQ(GetInt(Body(2), {"series", "count"}), 6);
  Json first = Body(0);
  EXPECT_EQ(GetString(first, {"regarding", "uid"}), "u1");
  EXPECT_EQ(GetString(first, {"reportingController"}), "holdfast.dev/agent");
  EXPECT_EQ(GetString(first, {"type"}), "Warning");
}

TEST_F(Events, ANewOneBeginsAfterSixQuietMinutes) {
  EventRecorder recorder(client_, "c", "i");
  recorder.Normal(pod_, "Completed", "Checkpoint", "stored");
  ASSERT_TRUE(Eventually([&] { return Sent() == 1; }));
  clock_.Advance(minutes(7));
  recorder.Normal(pod_, "Completed", "Checkpoint", "stored");
  ASSERT_TRUE(Eventually([&] { return Sent() == 2; }));
  EXPECT_EQ(transport_->sent()[1].method, "POST");
  EXPECT_NE(GetString(Body(0), {"metadata", "name"}), GetString(Body(1), {"metadata", "name"}));
}

TEST_F(Events, KeepTheLimitsOfTheApi) {
  {
    EventRecorder recorder(client_, "c", "i");
    std::string note(1020, 'x');
    note += "äöüäöü";
    recorder.Normal({"v1", "Node", "", "node-a", ""}, std::string(200, 'r'), "", note);
  }
  ASSERT_EQ(Sent(), 1u) << "sent before the recorder is gone";
  Json event = Body(0);
  EXPECT_LE(GetString(event, {"note"}).size(), 1024u);
  EXPECT_LE(GetString(event, {"reason"}).size(), 128u);
  EXPECT_FALSE(GetString(event, {"action"}).empty());
  EXPECT_EQ(GetString(event, {"metadata", "namespace"}), "default") << "cluster-scoped objects have their events there";
  EXPECT_EQ(event.dump().find("\xef\xbf\xbd"), std::string::npos) << "cut within a character";
}

TEST_F(Events, EndWithinTwoSecondsWhenNothingAnswers) {
  transport_->SetAnswer([](const HttpRequest&) { return Status(Code::kUnavailable, "away"); });
  MonoTime start = Clock::Real().Mono();
  {
    EventRecorder recorder(client_, "c", "i");
    for (int i = 0; i < 2000; ++i) recorder.Normal(pod_, "R", "A", std::to_string(i));
  }
  EXPECT_LT(Clock::Real().Mono() - start, seconds(4));
}

}  // namespace
}  // namespace holdfast::kube
