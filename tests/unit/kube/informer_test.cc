#include "tests/unit/kube/informer_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(InformerTest, WatchesFromTheListOnAndTellsOldAndNew) {
  Serve(5, {Object("a", 3)});
  Start();
  auto watch = WatchNumber(0);
  EXPECT_THAT(watch->request.path,
              HasSubstr("/apis/test/v1/namespaces/ns/items?watch=1&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds="));
  EXPECT_THAT(watch->request.path, HasSubstr("&labelSelector=a%3Db"));
  watch->Event("ADDED", Object("b", 6));
  watch->Event("MODIFIED", Object("a", 7));
  watch->Event("DELETED", Object("b", 8));
  EXPECT_THAT(Heard(4), ElementsAre("->a@3", "->b@6", "a@3>a@7", "b@8>-"));
  EXPECT_EQ(informer_.size(), 1u);
}

TEST_F(InformerTest, AsksForFiveToTenMinutes) {
  Serve(5, {});
  Start();
  for (size_t i = 0; i < 20; ++i) {
    auto watch = WatchNumber(i);
    ASSERT_NE(watch, nullptr);
    size_t at = watch->request.path.find("timeoutSeconds=");
    int timeout = std::stoi(watch->request.path.substr(at + strlen("timeoutSeconds=")));
    EXPECT_GE(timeout, 300);
    EXPECT_LE(timeout, 600);
    watch->Event("BOOKMARK", Object("", 6));
    watch->End();
  }
}

TEST_F(InformerTest, IsSyncedOnlyAfterHandlersSawTheList) {
  Serve(5, {Object("a", 3), Object("b", 4)});
  std::atomic<bool> go{false};
  std::atomic<int> seen{0};
  informer_.AddHandler([&](const auto&, const auto&) {
    go.wait(false);
    ++seen;
  });
  informer_.Start();
  EXPECT_TRUE(Eventually([&] { return informer_.size() == 2; }));
  EXPECT_FALSE(informer_.synced());
  EXPECT_FALSE(informer_.WaitForSync(seconds(0), {}));
  go = true;
  go.notify_all();
  EXPECT_TRUE(Eventually([&] { return informer_.synced(); }));
  EXPECT_EQ(seen, 2);
}

TEST_F(InformerTest, GoesOnFromTheBookmarkAfterTheWatchEnded) {
  Serve(5, {});
  Start();
  auto watch = WatchNumber(0);
  watch->Event("BOOKMARK", Object("", 42));
  watch->End();
  EXPECT_THAT(WatchNumber(1)->request.path, HasSubstr("resourceVersion=42&"));
  EXPECT_EQ(Lists(), 1u) << "the end of a watch is no reason for a list";
}

TEST_F(InformerTest, RelistsAfterAnExpiredErrorEvent) {
  Serve(5, {Object("a", 3), Object("b", 4)});
  Start();
  auto watch = WatchNumber(0);
  Serve(20, {Object("b", 15), Object("c", 16)});
  watch->Event("ERROR", GoneStatus());
  EXPECT_THAT(WatchNumber(1)->request.path, HasSubstr("resourceVersion=20&"));
  std::vector<std::string> heard = Heard(5);
  EXPECT_EQ(heard[2], "a@3>-") << "gone while nobody watched";
  EXPECT_THAT(std::vector(heard.begin() + 3, heard.end()), ::testing::UnorderedElementsAre("b@4>b@15", "->c@16"));
}

TEST_F(InformerTest, RelistsWhenTheWatchIsRefusedWithGone) {
  Serve(5, {});
  Start();
  Serve(30, {});
  WatchNumber(0)->End(Failure(410, "Expired"));
  EXPECT_THAT(WatchNumber(1)->request.path, HasSubstr("resourceVersion=30&"));
  EXPECT_EQ(Lists(), 2u);
}

TEST_F(InformerTest, RelistsAfterADeadStream) {
  Serve(5, {Object("a", 3)});
  Start();
  Serve(9, {Object("a", 8)});
  WatchNumber(0)->End(Status(Code::kDeadlineExceeded, "no byte for 150 s"));
  WatchNumber(1);
  EXPECT_THAT(Heard(2), ElementsAre("->a@3", "a@3>a@8"));
}

TEST_F(InformerTest, WatchesAgainWithoutAListWhenTheServerIsBusyOrAway) {
  Serve(5, {});
  Start();
  WatchNumber(0)->End(Failure(429, "TooManyRequests"));
  WatchNumber(1)->End(Status(Code::kUnavailable, "connection refused"));
  WatchNumber(2)->End(Failure(500, "InternalError"));
  EXPECT_THAT(WatchNumber(3)->request.path, HasSubstr("resourceVersion=5&"));
  EXPECT_EQ(Lists(), 1u);
}

TEST_F(InformerTest, BacksOffFrom800MsTo30SWithJitter) {
  Serve(5, {});
  Start();
  MonoTime before = clock_.Mono();
  double expected = 0.8;
  for (size_t i = 0; i < 8; ++i) {
    auto watch = WatchNumber(i);
    double waited = std::chrono::duration<double>(clock_.Mono() - before).count();
    if (i > 0) {
      EXPECT_GE(waited, expected) << i;
      EXPECT_LE(waited, 2 * expected + 0.4) << i;
      expected = std::min(expected * 2, 30.0);
    }
    before = clock_.Mono();
    watch->End(Status(Code::kUnavailable, "connection refused"));
  }
}

TEST_F(InformerTest, RefusesAListFromThePastUntilItIsClearThatTheServerWentBack) {
  Serve(50, {Object("a", 40)});
  Start();
  Serve(10, {Object("a", 9)});
  WatchNumber(0)->End(Status(Code::kDeadlineExceeded, "silent"));
  ASSERT_TRUE(Eventually([&] { return Lists() == 2; }));
  EXPECT_EQ(informer_.Get("ns", "a")->meta.resource_version, "40");
  Serve(60, {Object("a", 55)});
  WatchNumber(1);
  EXPECT_THAT(Heard(2), ElementsAre("->a@40", "a@40>a@55"));

  Serve(10, {Object("a", 9)});  // and now it stays in the past: restored from a backup
  transport_->WaitForWatch(1)->End(Status(Code::kDeadlineExceeded, "silent"));
  EXPECT_THAT(WatchNumber(2)->request.path, HasSubstr("resourceVersion=10&"));
  EXPECT_THAT(Heard(3), ElementsAre("->a@40", "a@40>a@55", "a@55>a@9"));
  EXPECT_EQ(Lists(), 3u + 4u) << "three refused, the fourth believed";
}

TEST_F(InformerTest, DropsEventsThatAreOlderThanTheCache) {
  Serve(50, {Object("a", 40)});
  Start();
  auto watch = WatchNumber(0);
  watch->Event("MODIFIED", Object("a", 39));
  watch->Event("DELETED", Object("a", 38));
  watch->Event("MODIFIED", Object("a", 51));
  EXPECT_THAT(Heard(2), ElementsAre("->a@40", "a@40>a@51"));
}

TEST_F(InformerTest, ShowsOwnWritesAtOnceAndTellsThemOnceTheWatchBringsThem) {
  Serve(5, {Object("a", 3)});
  Start();
  auto watch = WatchNumber(0);
  informer_.Observe(Object("a", 7, "mine"));
  EXPECT_EQ(informer_.Get("ns", "a")->value, "mine");
  informer_.Observe(Object("a", 6, "older"));
  EXPECT_EQ(informer_.Get("ns", "a")->value, "mine");
  watch->Event("MODIFIED", Object("a", 6, "before mine"));
  watch->Event("MODIFIED", Object("a", 7, "mine"));
  EXPECT_THAT(Heard(2), ElementsAre("->a@3", "a@3>a@7"));
}

TEST_F(InformerTest, DoesNotBringBackWhatTheWatchDeleted) {
  Serve(5, {Object("a", 3)});
  Start();
  auto watch = WatchNumber(0);
  watch->Event("DELETED", Object("a", 9));
  Heard(2);
  informer_.Observe(Object("a", 8));
  EXPECT_EQ(informer_.size(), 0u);
  informer_.Observe(Object("b", 10));
  EXPECT_EQ(informer_.size(), 1u);
  informer_.Observe({{"metadata", {{"name", "c"}, {"namespace", "elsewhere"}, {"resourceVersion", "11"}}}});
  EXPECT_EQ(informer_.size(), 1u) << "not in our scope";
}

TEST_F(InformerTest, KeepsOwnWritesThatAListIsTooOldToKnow) {
  Serve(5, {});
  Start();
  auto watch = WatchNumber(0);
  informer_.Observe(Object("new", 30));
  Serve(20, {});
  watch->Event("ERROR", GoneStatus());
  WatchNumber(1);
  EXPECT_NE(informer_.Get("ns", "new"), nullptr);
}

TEST_F(InformerTest, FindsByIndexThroughChanges) {
  Serve(5, {Object("a", 3, "x"), Object("b", 4, "x")});
  informer_.AddIndex("value", [](const Item& item) { return std::vector{item.value}; });
  Start();
  EXPECT_EQ(informer_.ByIndex("value", "x").size(), 2u);
  auto watch = WatchNumber(0);
  watch->Event("MODIFIED", Object("a", 6, "y"));
  watch->Event("DELETED", Object("b", 7, "x"));
  Heard(4);
  EXPECT_EQ(informer_.ByIndex("value", "x").size(), 0u);
  ASSERT_EQ(informer_.ByIndex("value", "y").size(), 1u);
  EXPECT_EQ(informer_.ByIndex("value", "y")[0]->meta.name, "a");
  EXPECT_EQ(informer_.ByIndex("none", "y").size(), 0u);
}

TEST_F(InformerTest, SurvivesGarbageAndThrowingHandlers) {
  Serve(5, {});
  informer_.AddHandler([](const auto&, const auto&) { throw std::runtime_error("handler"); });
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", {{"kind", "Table"}});
  watch->Event("ADDED", Object("a", 6));
  EXPECT_THAT(Heard(1), ElementsAre("->a@6"));
  Serve(9, {Object("a", 8)});
  watch->Feed("this is not JSON\n");
  WatchNumber(1);
  EXPECT_THAT(Heard(2), ElementsAre("->a@6", "a@6>a@8"));
}

TEST_F(InformerTest, ListsAgainUntilTheResourceExists) {
  transport_->SetAnswer([](const HttpRequest&) { return Failure(404, "NotFound"); });
  informer_.Start();
  ASSERT_TRUE(AdvanceUntil(clock_, milliseconds(200), seconds(60), [&] { return Lists() > 2; }));
  EXPECT_FALSE(informer_.synced());
  Serve(5, {});
  EXPECT_TRUE(AdvanceUntil(clock_, milliseconds(200), seconds(60), [&] { return informer_.synced(); }));
}

}  // namespace
}  // namespace holdfast::kube
