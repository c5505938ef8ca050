// Lists that come as a stream: client-go tools/cache/reflector_watchlist_test.go.
#include "kube/initial_events_timer.h"
#include "tests/unit/kube/reflector_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchListTest : public ReflectorTest {
 protected:
  void SetUp() override {
    transport_->AllowWatchLists();
    Serve(TestList(1));
  }
  static bool IsWatchList(const std::string& path) { return path.find("sendInitialEvents=true") != std::string::npos; }
  // "watchlist", "list", "watch" for each request, with its version.
  std::vector<std::string> Requests() {
    std::vector<std::string> out;
    for (const std::string& path : transport_->paths()) {
      out.push_back((IsWatchList(path) ? "watchlist " : IsWatch(path) ? "watch " : "list ") + VersionIn(path));
    }
    return out;
  }
  bool Requested(size_t count) {
    return AdvanceUntil(clock_, milliseconds(200), minutes(2), [&] { return transport_->paths().size() >= count; });
  }
};

TEST_F(WatchListTest, IsSyncedByTheBookmarkAndGoesOnWithTheSameStream) {
  Start();
  auto watch = WatchNumber(0);
  EXPECT_EQ(
      watch->request.path,
      "/apis/test/v1/items?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=300");
  watch->Event("ADDED", TestObject("p2", 2));
  watch->Event("ADDED", TestObject("p1", 1));
  ASSERT_TRUE(Logged(2));
  EXPECT_FALSE(reflector_->synced());
  EXPECT_EQ(objects(), Names{}) << "half a list is seen";
  watch->Event("BOOKMARK", TestBookmark(2, "true"));
  EXPECT_TRUE(Holds({{"p1", "1"}, {"p2", "2"}}));
  EXPECT_TRUE(Eventually([&] { return reflector_->synced(); }));
  watch->Event("MODIFIED", TestObject("p1", 3));
  watch->Event("BOOKMARK", TestBookmark(9));
  EXPECT_TRUE(Holds({{"p1", "3"}, {"p2", "2"}}));
  ASSERT_TRUE(Logged(5));
  EXPECT_THAT(log(), ElementsAre("item p2@2", "item p1@1", "list 2", "put p1@3", "bookmark 9"));
  EXPECT_THAT(Requests(), ElementsAre("watchlist "));
  EXPECT_EQ(reflector_->stats().watch_lists, 1u);
}

TEST_F(WatchListTest, TakesUpdatesAndDeletionsWhileTheListComesIn) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("ADDED", TestObject("p2", 2));
  watch->Event("MODIFIED", TestObject("p1", 3));
  watch->Event("ADDED", TestObject("p3", 4));
  watch->Event("DELETED", TestObject("p3", 5));
  watch->Event("BOOKMARK", TestBookmark(5, "true"));
  EXPECT_TRUE(Holds({{"p1", "3"}, {"p2", "2"}}));
}

TEST_F(WatchListTest, IsNotSyncedByABookmarkThatSaysSomethingElse) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("BOOKMARK", TestBookmark(2));
  watch->Event("BOOKMARK", TestBookmark(2, "false"));
  watch->Event("ADDED", TestObject("p2", 2));
  ASSERT_TRUE(Logged(2));
  EXPECT_FALSE(reflector_->synced());
  EXPECT_EQ(objects(), Names{});
}

TEST_F(WatchListTest, IsNotUsedWhenTurnedOff) {
  Start({.watch_list = false});
  WatchNumber(0);
  EXPECT_THAT(Requests(), ElementsAre("list ", "watch 1"));
}

TEST_F(WatchListTest, FallsBackToPagesAndRemembersThatTheServerCannot) {
  Start();
  WatchNumber(0)->End(Failure(422, "Invalid", "streaming is not allowed"));
  auto watch = WatchNumber(1);
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "list ", "watch 1"));
  watch->Event("ADDED", TestObject("p2", 2));
  watch->End(Failure(410, "Expired"));
  Serve(TestList(3));
  watch = WatchNumber(2);
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "list ", "watch 1", "list 2", "watch 3"));

  clock_.Advance(minutes(60));  // it may have been upgraded
  watch->End(Failure(410, "Expired"));
  ASSERT_TRUE(Requested(6));
  EXPECT_EQ(Requests()[5], "watchlist 3");
}

TEST_F(WatchListTest, FallsBackToPagesOnEveryOtherFailureButAsksAgainNextTime) {
  Start();
  WatchNumber(0)->End(Failure(500, "InternalError", "dummy error"));
  auto watch = WatchNumber(1);
  watch->End(Failure(410, "Expired"));
  ASSERT_TRUE(Requested(4));
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "list ", "watch 1", "watchlist 1"));
}

// What kube-apiserver does on etcd 3.4: 200, then an ERROR event.
TEST_F(WatchListTest, FallsBackToPagesWhenEtcdCannotDoIt) {
  Start();
  Json error = TestStatus(500, "InternalError");
  error["message"] = "required storage feature RequestWatchProgress is disabled";
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("half", 1));
  watch->Event("ERROR", error);
  watch = WatchNumber(1);
  EXPECT_EQ(objects(), Names{});
  watch->End(Failure(410, "Expired"));
  Serve(TestList(3));
  WatchNumber(2);
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "list ", "watch 1", "list 1", "watch 3"));
}

TEST_F(WatchListTest, TriesAgainOnTooManyRequests) {
  Start();
  WatchNumber(0)->End(Failure(429, "TooManyRequests"));
  WatchNumber(1)->Event("ERROR", TestStatus(429, "TooManyRequests"));
  auto watch = WatchNumber(2);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("BOOKMARK", TestBookmark(2, "true"));
  EXPECT_TRUE(Holds({{"p1", "1"}}));
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watchlist ", "watchlist "));
}

TEST_F(WatchListTest, TriesAgainWhenTheStreamEndsTooSoonAndThenTakesPages) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("ADDED", TestObject("gone", 1));
  watch->End();
  watch = WatchNumber(1);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("BOOKMARK", TestBookmark(1, "true"));
  EXPECT_TRUE(Holds({{"p1", "1"}})) << "something of the first stream is left";
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watchlist "));

  watch->Event("ERROR", TestStatus(410, "Expired"));
  for (size_t i = 2; i < 5; ++i) WatchNumber(i)->End(Status(Code::kUnavailable, "connection reset"));
  WatchNumber(5);
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watchlist ", "watchlist 1", "watchlist 1", "watchlist 1", "list 1", "watch 1"));
}

TEST_F(WatchListTest, WatchesOnFromTheLastEventWhenTheStreamEndsLater) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("BOOKMARK", TestBookmark(2, "true"));
  watch->Event("ADDED", TestObject("p3", 3));
  watch->End();
  watch = WatchNumber(1);
  watch->Event("ADDED", TestObject("p4", 4));
  EXPECT_TRUE(Holds({{"p1", "1"}, {"p3", "3"}, {"p4", "4"}}));
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watch 3"));
}

TEST_F(WatchListTest, ListsAgainFromTheLastVersionWhenTheWatchExpired) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  watch->Event("BOOKMARK", TestBookmark(2, "true"));
  watch->Event("ADDED", TestObject("p3", 3));
  watch->End();
  WatchNumber(1)->End(Failure(410, "Expired"));
  watch = WatchNumber(2);
  EXPECT_EQ(objects(), (Names{{"p1", "1"}, {"p3", "3"}}));
  watch->Event("ADDED", TestObject("p3", 3));
  watch->Event("BOOKMARK", TestBookmark(4, "true"));
  EXPECT_TRUE(Holds({{"p3", "3"}}));
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watch 3", "watchlist 3"));
}

TEST_F(WatchListTest, AsksForTheNewestWhenItsVersionCannotBeHad) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("BOOKMARK", TestBookmark(5, "true"));
  watch->Event("ERROR", TestStatus(410, "Expired"));
  WatchNumber(1)->End(Failure(410, "Expired"));
  watch = WatchNumber(2);
  watch->Event("BOOKMARK", TestBookmark(6, "true"));
  watch->Event("ERROR", TestStatus(410, "Expired"));
  WatchNumber(3)->Event("ERROR", TestStatus(504, "Timeout", {{{"reason", "ResourceVersionTooLarge"}}}));
  WatchNumber(4);
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "watchlist 5", "watchlist ", "watchlist 6", "watchlist "));
}

TEST_F(WatchListTest, RefusesAStreamFromThePast) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("a", 40));
  watch->Event("BOOKMARK", TestBookmark(50, "true"));
  watch->Event("ERROR", TestStatus(410, "Expired"));
  watch = WatchNumber(1);
  watch->Event("ADDED", TestObject("a", 9));
  watch->Event("BOOKMARK", TestBookmark(10, "true"));
  watch = WatchNumber(2);
  EXPECT_EQ(objects(), (Names{{"a", "40"}}));
  watch->Event("ADDED", TestObject("a", 60));
  watch->Event("BOOKMARK", TestBookmark(61, "true"));
  EXPECT_TRUE(Holds({{"a", "60"}}));
}

TEST_F(WatchListTest, GivesUpWaitingForABookmarkThatNeverComes) {
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("p1", 1));
  ASSERT_TRUE(Logged(1));
  // 30 s of silence: a server that does not know the parameter goes on as a plain watch.
  ASSERT_TRUE(Requested(3));
  EXPECT_THAT(Requests(), ElementsAre("watchlist ", "list ", "watch 1"));
  EXPECT_EQ(objects(), Names{});
}

TEST(InitialEventsTimer, WarnsEveryTenSecondsOfSilence) {
  FakeClock clock;
  std::stop_source end;
  InitialEventsTimer timer(clock, "items", end);
  auto step = [&](Duration by) {
    EXPECT_TRUE(Eventually([&] { return clock.waiters() == 1; }));
    clock.Advance(by);
    Clock::Real().Sleep(milliseconds(5), {});
  };
  step(milliseconds(9999));
  EXPECT_EQ(timer.warnings(), 0);
  step(milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return timer.warnings() == 1; }));
  step(seconds(4));
  timer.OnEvent();
  step(seconds(6));
  EXPECT_EQ(timer.warnings(), 1) << "an event came 6 s ago";
  step(seconds(10));
  EXPECT_TRUE(Eventually([&] { return timer.warnings() == 2; }));
  step(seconds(10));
  EXPECT_TRUE(Eventually([&] { return timer.warnings() == 3; }));
  EXPECT_FALSE(end.stop_requested());
  step(seconds(10));
  EXPECT_TRUE(Eventually([&] { return timer.gave_up() && end.stop_requested(); }));
}

TEST(InitialEventsTimer, EndsWithoutAWordWhenDone) {
  FakeClock clock;
  std::stop_source end;
  InitialEventsTimer timer(clock, "items", end);
  timer.Done();
  timer.Done();
  clock.Advance(minutes(5));
  EXPECT_EQ(timer.warnings(), 0);
  EXPECT_FALSE(end.stop_requested());
}

TEST(ReflectorBackoff, IsExactAndStartsAnewAfterTwoMinutes) {
  FakeClock clock;
  ReflectorBackoff backoff(clock, [] { return 0.25; });
  for (int ms : {1000, 2000, 4000, 8000, 16000, 32000, 37500, 37500}) EXPECT_EQ(backoff.Next(), milliseconds(ms));
  clock.Advance(milliseconds(37500) + minutes(2) - milliseconds(1));
  EXPECT_EQ(backoff.Next(), milliseconds(37500));
  clock.Advance(milliseconds(37500) + minutes(2));
  EXPECT_EQ(backoff.Next(), milliseconds(1000));
}

TEST(RetryWindow, CountsFromTheFirstErrorAndForgetsAfterAMinute) {
  FakeClock clock;
  EXPECT_FALSE(RetryWindow(clock, seconds(0)).ShouldRetry());
  RetryWindow window(clock, seconds(30));
  int retries = 0;
  for (; window.ShouldRetry(); ++retries) clock.Advance(seconds(1));
  EXPECT_EQ(retries, 31);
  for (retries = 0; window.ShouldRetry(); ++retries) clock.Advance(retries == 9 ? minutes(1) : Duration(seconds(1)));
  EXPECT_EQ(retries, 10 + 31) << "a quiet minute starts the window anew";
}

}  // namespace
}  // namespace holdfast::kube
