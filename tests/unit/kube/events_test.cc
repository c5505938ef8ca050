#include "kube/events.h"

#include <gtest/gtest.h>

#include "kube/metrics.h"
#include "kube/token_buckets.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

class Events : public ::testing::Test {
 protected:
  size_t Sent() { return transport_->sent().size(); }
  Json Body(size_t index) { return *ParseJson(transport_->sent()[index].body); }
  std::string Method(size_t index) { return transport_->sent()[index].method; }
  int64_t Count(size_t index) { return GetInt(Body(index), {"series", "count"}); }
  // The recorder has nothing to do now.
  bool Idle() { return clock_.Settle(1); }
  void Pass(Duration duration) {
    (void)Simulate(clock_, 1, duration, [] { return false; });
  }
  void Times(EventRecorder& recorder, int count, const std::string& note = "CRIU: no") {
    for (int i = 0; i < count; ++i) recorder.Warning(pod_, "DumpFailed", "Checkpoint", note);
    ASSERT_TRUE(Idle());
  }

  FakeClock clock_;
  prometheus::Registry registry_;
  RuntimeMetrics metrics_{registry_};
  std::shared_ptr<FakeTransport> transport_ =
      std::make_shared<FakeTransport>([](const HttpRequest&) { return JsonAnswer(201, Json::object()); });
  Client client_{transport_, clock_};
  const ObjectReference pod_{"v1", "Pod", "ns", "web-0", "u1"};
};

TEST_F(Events, SayWhoWhatAboutWhomAndWhen) {
  EventRecorder recorder(client_, "example.org/agent", "node-a");
  const ObjectReference node{"v1", "Node", "", "node-a", "u2"};
  recorder.Warning(pod_, "DumpFailed", "Checkpoint", "CRIU: no", node);
  ASSERT_TRUE(Idle());
  ASSERT_EQ(Sent(), 1u);
  EXPECT_EQ(transport_->sent()[0].path, "/apis/events.k8s.io/v1/namespaces/ns/events");
  Json event = Body(0);
  EXPECT_TRUE(GetString(event, {"metadata", "name"}).starts_with("web-0.")) << event.dump();
  EXPECT_EQ(GetString(event, {"metadata", "namespace"}), "ns");
  EXPECT_EQ(GetString(event, {"type"}), "Warning");
  EXPECT_EQ(GetString(event, {"reason"}), "DumpFailed");
  EXPECT_EQ(GetString(event, {"action"}), "Checkpoint");
  EXPECT_EQ(GetString(event, {"note"}), "CRIU: no");
  EXPECT_EQ(GetString(event, {"reportingController"}), "example.org/agent");
  EXPECT_EQ(GetString(event, {"reportingInstance"}), "node-a");
  EXPECT_FALSE(GetString(event, {"eventTime"}).empty());
  EXPECT_EQ(event["regarding"], Json::parse(R"({"apiVersion":"v1","kind":"Pod","namespace":"ns","name":"web-0","uid":"u1"})"));
  EXPECT_EQ(event["related"], Json::parse(R"({"apiVersion":"v1","kind":"Node","name":"node-a","uid":"u2"})"));
}

TEST_F(Events, TheFirstIsCreatedTheSecondMakesASeriesAndLaterOnesAreOnlyCounted) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 1);
  Times(recorder, 1);
  Times(recorder, 8);
  ASSERT_EQ(Sent(), 2u);
  EXPECT_EQ(Method(0), "POST");
  EXPECT_EQ(Method(1), "PATCH");
  EXPECT_EQ(Count(1), 2);
  EXPECT_TRUE(transport_->sent()[1].path.starts_with("/apis/events.k8s.io/v1/namespaces/ns/events/web-0.")) << transport_->sent()[1].path;
}

TEST_F(Events, AreNotEqualWhenAnyPartOfTheirKeyDiffers) {
  EventRecorder recorder(client_, "c", "i");
  const ObjectReference other_life{"v1", "Pod", "ns", "web-0", "u9"};
  recorder.Warning(pod_, "R", "A", "n");
  recorder.Normal(pod_, "R", "A", "n");
  recorder.Warning(pod_, "R2", "A", "n");
  recorder.Warning(pod_, "R", "A2", "n");
  recorder.Warning(other_life, "R", "A", "n");
  recorder.Warning(pod_, "R", "A", "n", other_life);
  recorder.Warning(pod_, "R", "A", "another note");
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Sent(), 7u);
  for (size_t i = 0; i < Sent(); ++i) EXPECT_EQ(Method(i), "POST");
}

TEST_F(Events, EachTextIsShownAndCountedByItself) {
  EventRecorder recorder(client_, "c", "i");
  for (int i = 0; i < 3; ++i) {
    Times(recorder, 1, "store is full");
    Times(recorder, 1, "store is away");
  }
  ASSERT_EQ(Sent(), 4u);
  EXPECT_EQ(GetString(Body(0), {"note"}), "store is full");
  EXPECT_EQ(GetString(Body(1), {"note"}), "store is away");
  EXPECT_EQ(Count(2), 2);
  EXPECT_EQ(Count(3), 2);
  Pass(minutes(8));
  ASSERT_EQ(Sent(), 6u);
  EXPECT_EQ(Count(4), 3);
  EXPECT_EQ(Count(5), 3);
}

TEST_F(Events, BeyondTenTextsOfOneThingAreCombinedAndOtherThingsAreNot) {
  EventRecorder recorder(client_, "c", "i");
  auto fail = [&](int attempt) { recorder.Warning(pod_, "DumpFailed", "Checkpoint", "failed at attempt " + std::to_string(attempt)); };
  for (int i = 1; i <= 30; ++i) fail(i);
  ASSERT_TRUE(Idle());
  ASSERT_EQ(Sent(), 12u) << "ten, what combines the others, and that it is a series";
  EXPECT_EQ(GetString(Body(9), {"note"}), "failed at attempt 10");
  EXPECT_EQ(GetString(Body(10), {"note"}), "(combined from similar events): failed at attempt 11");
  EXPECT_EQ(Method(11), "PATCH");
  fail(3);
  recorder.Warning(pod_, "Stored", "Checkpoint", "in 3 s");
  ASSERT_TRUE(Idle());
  ASSERT_EQ(Sent(), 14u);
  EXPECT_EQ(Method(12), "PATCH") << "a text that is shown goes on by itself";
  EXPECT_EQ(GetString(Body(13), {"note"}), "in 3 s");
  EXPECT_EQ(recorder.dropped(), 0);
  // For as long as it goes on there are no more.
  for (int i = 31; i <= 60; ++i) {
    Pass(minutes(1));
    fail(i);
    ASSERT_TRUE(Idle());
  }
  for (size_t i = 14; i < Sent(); ++i) EXPECT_EQ(Method(i), "PATCH") << Body(i).dump();
  EXPECT_LE(Sent(), 16u);
  Pass(minutes(10));
  const size_t quiet = Sent();
  EXPECT_EQ(Count(quiet - 1), 50) << "the combined ones, at their end";
  fail(61);
  ASSERT_TRUE(Idle());
  ASSERT_EQ(Sent(), quiet + 1);
  EXPECT_EQ(GetString(Body(quiet), {"note"}), "failed at attempt 61");
}

TEST_F(Events, TextsThatAreNoLongerHeardMakeRoomForNewOnes) {
  EventRecorder recorder(client_, "c", "i");
  for (int i = 0; i < 20; ++i) {
    Times(recorder, 1, "text " + std::to_string(i));
    Pass(minutes(1));
  }
  ASSERT_EQ(Sent(), 20u);
  EXPECT_EQ(GetString(Body(19), {"note"}), "text 19");
}

TEST_F(Events, ASeriesThatIsQuietForSixMinutesGetsItsLastCountAndEnds) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 10);
  ASSERT_EQ(Sent(), 2u);
  Pass(minutes(8));
  ASSERT_EQ(Sent(), 3u);
  EXPECT_EQ(Count(2), 10);
  Pass(hours(2));
  EXPECT_EQ(Sent(), 3u);
  Times(recorder, 1);
  EXPECT_EQ(Method(3), "POST") << "a new one begins";
  EXPECT_NE(GetString(Body(0), {"metadata", "name"}), GetString(Body(3), {"metadata", "name"}));
}

TEST_F(Events, ASingleOneEndsWithoutAWord) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 1);
  Pass(minutes(8));
  EXPECT_EQ(Sent(), 1u);
  Times(recorder, 1);
  EXPECT_EQ(Method(1), "POST");
}

TEST_F(Events, ASeriesThatGoesOnIsWrittenEveryThirtyMinutes) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 2);
  for (int i = 0; i < 40; ++i) {
    Pass(minutes(1));
    Times(recorder, 1);
  }
  ASSERT_EQ(Sent(), 3u);
  EXPECT_EQ(Method(2), "PATCH");
  EXPECT_GE(Count(2), 30);
  EXPECT_LE(Count(2), 33);
}

TEST_F(Events, ARefreshThatFailsIsTriedAgain) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 5);
  transport_->SetAnswer([](const HttpRequest&) { return Status(Code::kUnavailable, "away"); });
  Pass(minutes(8));
  const size_t failed = Sent();
  EXPECT_GT(failed, 2u);
  transport_->SetAnswer([](const HttpRequest&) { return JsonAnswer(200, Json::object()); });
  Pass(minutes(2));
  EXPECT_EQ(Sent(), failed + 1);
  EXPECT_EQ(Count(failed), 5);
  Pass(hours(1));
  EXPECT_EQ(Sent(), failed + 1);
}

TEST_F(Events, ASeriesWhoseEventIsGoneIsCreatedAnew) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 1);
  transport_->SetAnswer(
      [](const HttpRequest& request) { return request.method == "PATCH" ? Failure(404, "NotFound") : JsonAnswer(201, Json::object()); });
  Times(recorder, 1);
  ASSERT_EQ(Sent(), 3u);
  EXPECT_EQ(Method(2), "POST");
  EXPECT_EQ(Count(2), 2);
  EXPECT_EQ(GetString(Body(2), {"metadata", "name"}), GetString(Body(0), {"metadata", "name"}));
  EXPECT_EQ(GetString(Body(2), {"reason"}), "DumpFailed");
}

TEST_F(Events, ASeriesThatIsThereAfterAllIsPatchedAgain) {
  EventRecorder recorder(client_, "c", "i");
  Times(recorder, 1);
  std::atomic<int> patches{0};
  transport_->SetAnswer([&](const HttpRequest& request) {
    if (request.method == "POST") return Failure(409, "AlreadyExists");
    return ++patches == 1 ? Failure(404, "NotFound") : JsonAnswer(200, Json::object());
  });
  recorder.Warning(pod_, "DumpFailed", "Checkpoint", "CRIU: no");
  ASSERT_TRUE(Simulate(clock_, 1, seconds(20), [&] { return Sent() == 4; }));
  EXPECT_EQ(Method(3), "PATCH");
}

TEST_F(Events, OneThatIsThereAlreadyCountsAsSent) {
  transport_->SetAnswer([](const HttpRequest& request) {
    return request.method == "POST" ? Failure(409, "AlreadyExists") : JsonAnswer(200, Json::object());
  });
  EventRecorder recorder(client_, "c", "i", &metrics_);
  Times(recorder, 2);
  ASSERT_EQ(Sent(), 2u);
  EXPECT_EQ(Method(1), "PATCH");
  EXPECT_EQ(recorder.dropped(), 0);
}

TEST_F(Events, AreTriedTwelveTimesTenSecondsApartWhileTheServerIsAway) {
  transport_->SetAnswer([](const HttpRequest&) { return Status(Code::kUnavailable, "away"); });
  EventRecorder recorder(client_, "c", "i", &metrics_);
  recorder.Normal(pod_, "R", "A", "n");
  Pass(minutes(5));
  EXPECT_EQ(Sent(), 12u);
  EXPECT_EQ(recorder.dropped(), 1);
  EXPECT_EQ(MetricValue(registry_, "events_dropped_total", {{"controller", "c"}, {"reason", "rejected"}}), 1);
}

TEST_F(Events, ARefusalIsNotTriedAgain) {
  transport_->SetAnswer([](const HttpRequest&) { return Failure(403, "Forbidden"); });
  EventRecorder recorder(client_, "c", "i");
  recorder.Normal(pod_, "R", "A", "n");
  Pass(minutes(5));
  EXPECT_EQ(Sent(), 1u);
}

TEST_F(Events, OfOneObjectAreLimitedAndOthersAreNotHeldUp) {
  EventRecorder recorder(client_, "c", "i", &metrics_);
  for (int i = 0; i < 40; ++i) recorder.Normal(pod_, "R" + std::to_string(i), "A", "n");
  recorder.Normal({"v1", "Pod", "ns", "web-1", "u2"}, "R", "A", "n");
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Sent(), 26u);
  EXPECT_EQ(recorder.dropped(), 15);
  EXPECT_EQ(MetricValue(registry_, "events_dropped_total", {{"controller", "c"}, {"reason", "rate_limited"}}), 15);
  Pass(minutes(5));
  for (int i = 0; i < 3; ++i) recorder.Normal(pod_, "S" + std::to_string(i), "A", "n");
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Sent(), 27u) << "one more every five minutes";
  for (int i = 0; i < 5; ++i) recorder.Normal(pod_, "R3", "A", "n");
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Sent(), 28u) << "a series under way is not limited";
}

TEST_F(Events, BeyondAThousandThatWaitAreDroppedAndCounted) {
  std::atomic<bool> go{false};
  transport_->SetAnswer([&](const HttpRequest&) {
    EXPECT_TRUE(Eventually([&] { return go.load(); }));
    return JsonAnswer(201, Json::object());
  });
  EventRecorder recorder(client_, "c", "i", &metrics_);
  recorder.Normal(pod_, "first", "A", "n");
  ASSERT_TRUE(Eventually([&] { return Sent() == 1; }));
  for (int i = 0; i < 1010; ++i) recorder.Normal({"v1", "Pod", "ns", "p" + std::to_string(i), ""}, "R", "A", "n");
  EXPECT_EQ(recorder.dropped(), 10);
  EXPECT_EQ(MetricValue(registry_, "events_dropped_total", {{"controller", "c"}, {"reason", "queue_full"}}), 10);
  go = true;
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Sent(), 1001u);
}

TEST_F(Events, KeepTheLimitsOfTheApi) {
  {
    EventRecorder recorder(client_, std::string(200, 'c'), std::string(200, 'i'));
    std::string note(1020, 'x');
    note += "äöüäöü";
    recorder.Normal({"v1", "Node", "", std::string(236, 'n') + "-" + std::string(16, 'm'), ""}, std::string(200, 'r'), "", note);
  }
  ASSERT_EQ(Sent(), 1u) << "sent before the recorder is gone";
  Json event = Body(0);
  EXPECT_LE(GetString(event, {"note"}).size(), 1024u);
  for (const char* word : {"reason", "action", "reportingController", "reportingInstance"}) {
    EXPECT_LE(GetString(event, {word}).size(), 128u) << word;
  }
  EXPECT_FALSE(GetString(event, {"action"}).empty());
  const std::string name = GetString(event, {"metadata", "name"});
  EXPECT_LE(name.size(), 253u);
  EXPECT_EQ(name.find("-."), std::string::npos) << "no name of a DNS subdomain: " << name;
  EXPECT_EQ(GetString(event, {"metadata", "namespace"}), "default") << "cluster-scoped objects have their events there";
  EXPECT_EQ(event.dump().find("\xef\xbf\xbd"), std::string::npos) << "cut within a character";
}

TEST_F(Events, LastCountsAreWrittenWhenTheRecorderEnds) {
  {
    EventRecorder recorder(client_, "c", "i");
    for (int i = 0; i < 7; ++i) recorder.Normal(pod_, "R", "A", "n");
  }
  ASSERT_EQ(Sent(), 3u);
  EXPECT_EQ(Count(2), 7);
}

TEST_F(Events, EndWithinTwoSecondsWhenNothingAnswers) {
  transport_->SetAnswer([](const HttpRequest&) { return Status(Code::kUnavailable, "away"); });
  MonoTime start = Clock::Real().Mono();
  {
    EventRecorder recorder(client_, "c", "i");
    for (int i = 0; i < 2000; ++i) recorder.Normal({"v1", "Pod", "ns", "p" + std::to_string(i), ""}, "R", "A", std::to_string(i));
  }
  EXPECT_LT(Clock::Real().Mono() - start, seconds(4));
}

TEST(TokenBuckets, GiveABurstAndThenOneAtATime) {
  TokenBuckets buckets(3, seconds(10), 100);
  MonoTime now(hours(1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(buckets.Take("a", now));
  EXPECT_FALSE(buckets.Take("a", now));
  EXPECT_TRUE(buckets.Take("b", now));
  EXPECT_FALSE(buckets.Take("a", now + seconds(9)));
  EXPECT_TRUE(buckets.Take("a", now + seconds(10)));
  EXPECT_FALSE(buckets.Take("a", now + seconds(19)));
  EXPECT_TRUE(buckets.Take("a", now + seconds(20)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(buckets.Take("a", now + hours(1))) << "never more than the burst";
  EXPECT_FALSE(buckets.Take("a", now + hours(1)));
}

TEST(TokenBuckets, RememberABoundedNumberOfNames) {
  TokenBuckets buckets(3, seconds(10), 100);
  MonoTime now(hours(1));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(buckets.Take(std::to_string(i), now));
  EXPECT_EQ(buckets.size(), 100u);
  EXPECT_TRUE(buckets.Take("x", now + hours(1)));
  EXPECT_EQ(buckets.size(), 1u) << "those that have their tokens back are forgotten";
}

}  // namespace
}  // namespace holdfast::kube
