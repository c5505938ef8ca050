// LIST and WATCH: client-go tools/cache/reflector_test.go. What comes as a stream is in watch_list_test.cc.
#include "tests/unit/kube/reflector_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const Status kRefused(Code::kUnavailable, "connection refused");
const Status kDead(Code::kDeadlineExceeded, "no byte for 150 s");

TEST_F(ReflectorTest, ListsAndThenWatchesFromTheListsVersion) {
  Serve(TestList(1, {TestObject("foo", 1)}));
  Start();
  auto watch = WatchNumber(0);
  EXPECT_EQ(transport_->sent()[0].path, "/apis/test/v1/items?limit=500");
  EXPECT_EQ(watch->request.path, "/apis/test/v1/items?watch=1&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=300");
  watch->Event("MODIFIED", TestObject("foo", 2));
  watch->Event("ADDED", TestObject("bar", 3));
  watch->Event("ADDED", TestObject("baz", 4));
  watch->Event("DELETED", TestObject("bar", 5));
  EXPECT_TRUE(Holds({{"foo", "2"}, {"baz", "4"}}));
  EXPECT_THAT(log(), ElementsAre("item foo@1", "list 1", "put foo@2", "put bar@3", "put baz@4", "remove bar@5"));
}

TEST_F(ReflectorTest, CountsListsAndWatchesAndWhatTheyBring) {
  Serve(TestList(4, {TestObject("foo", 1), TestObject("bar", 4)}));
  Start();
  auto metric = [&](const std::string& name, bool sum = false) {
    return MetricValue(registry_, "reflector_" + name, {{"name", "items"}}, sum);
  };
  auto watch = WatchNumber(0);
  EXPECT_EQ(metric("lists_total"), 1);
  EXPECT_EQ(metric("items_per_list", true), 2);
  EXPECT_EQ(metric("last_resource_version"), 4);
  EXPECT_EQ(metric("watches_total"), 0) << "it is open";
  watch->Event("MODIFIED", TestObject("foo", 5));
  watch->Event("DELETED", TestObject("bar", 6));
  watch->Event("BOOKMARK", TestBookmark(9));
  ASSERT_TRUE(Logged(6));
  clock_.Advance(seconds(300));
  watch->End();
  WatchNumber(1)->End();  // at once
  WatchNumber(2);
  EXPECT_EQ(metric("watches_total"), 2);
  EXPECT_EQ(metric("short_watches_total"), 1);
  EXPECT_EQ(metric("items_per_watch", true), 2);
  EXPECT_GE(metric("watch_duration_seconds", true), 300);
  EXPECT_EQ(metric("last_resource_version"), 9);
  EXPECT_EQ(metric("lists_total"), 1);
}

TEST_F(ReflectorTest, AsksForWatchesOfFiveToTenMinutes) {
  Serve(TestList(1));
  Start();
  for (auto [random, expected] : {std::pair{0.0, "300"}, {0.5, "450"}, {0.999, "599"}}) {
    random_ = random;
    static size_t index = 0;
    WatchNumber(index)->End();  // with the random number before
    EXPECT_THAT(WatchNumber(++index)->request.path, EndsWith(std::string("timeoutSeconds=") + expected));
  }
}

TEST_F(ReflectorTest, SkipsObjectsOfAnotherKindAndTables) {
  Serve(TestList(1, {TestObject("foo", 1), {{"kind", "Other"}, {"metadata", {{"name", "listed"}, {"resourceVersion", "1"}}}}}));
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", {{"kind", "Service"}, {"metadata", {{"name", "rejected"}, {"resourceVersion", "2"}}}});
  watch->Event("ADDED",
               {{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}, {"metadata", {{"resourceVersion", "99"}}}, {"rows", Json::array()}});
  watch->Event("DELETED", TestObject("foo", 3));
  watch->Event("ADDED", TestObject("baz", 32));
  EXPECT_TRUE(Holds({{"baz", "32"}}));
  EXPECT_EQ(reflector_->stats().skipped, 3u);
  watch->End();
  EXPECT_EQ(VersionIn(WatchNumber(1)->request.path), "32") << "not that of an object that was skipped";
}

TEST_F(ReflectorTest, GoesOnFromTheVersionOfEveryKindOfEvent) {
  Serve(TestList(10));
  Start();
  size_t index = 0;
  for (auto [type, version] : {std::pair{"ADDED", 11}, {"MODIFIED", 20}, {"BOOKMARK", 30}, {"DELETED", 40}}) {
    auto watch = WatchNumber(index++);
    watch->Event(type, TestObject("a", version));
    watch->End();
    EXPECT_EQ(VersionIn(WatchNumber(index)->request.path), std::to_string(version)) << type;
  }
  EXPECT_EQ(Lists(), 1u);
  EXPECT_THAT(log(), ElementsAre("list 10", "put a@11", "put a@20", "bookmark 30", "remove a@40"));
}

TEST_F(ReflectorTest, NeverGoesBackToTheVersionOfALateEvent) {
  Serve(TestList(10));
  Start();
  auto watch = WatchNumber(0);
  watch->Event("MODIFIED", TestObject("a", 20));
  watch->Event("MODIFIED", TestObject("b", 15));
  watch->Event("BOOKMARK", TestBookmark(12));
  watch->End();
  EXPECT_EQ(VersionIn(WatchNumber(1)->request.path), "20");
}

// What is there after each list and watch, and with which version the next one starts.
TEST_F(ReflectorTest, KeepsWhatItHasThroughFailuresOfListAndWatch) {
  Serve(TestList(1));
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("foo", 2));
  watch->Event("ADDED", TestObject("bar", 3));
  watch->End();
  watch = WatchNumber(1);
  watch->Event("DELETED", TestObject("foo", 4));
  watch->Event("ADDED", TestObject("qux", 5));
  const Names now = {{"bar", "3"}, {"qux", "5"}};
  EXPECT_TRUE(Holds(now));

  transport_->SetAnswer([](const HttpRequest&) { return Failure(500, "InternalError", "a list error"); });
  watch->Event("ERROR", TestStatus(410, "Expired"));
  ASSERT_TRUE(AdvanceUntil(clock_, milliseconds(200), minutes(1), [&] { return Lists() >= 3; }));
  EXPECT_EQ(objects(), now) << "a list that failed took something away";
  Serve(TestList(5, {TestObject("bar", 3), TestObject("qux", 5)}));
  watch = WatchNumber(2);
  watch->End(Failure(404, "NotFound", "a watch error"));
  watch = WatchNumber(3);
  EXPECT_EQ(objects(), now);
  watch->Event("ADDED", TestObject("baz", 6));
  EXPECT_TRUE(Holds({{"bar", "3"}, {"qux", "5"}, {"baz", "6"}}));
}

TEST_F(ReflectorTest, BacksOffExactlyWhenTheConnectionIsRefused) {
  Serve(TestList(1));
  Start();
  size_t index = 0;
  for (int ms : {800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}) {
    WatchNumber(index++)->End(kRefused);
    EXPECT_TRUE(Pauses(milliseconds(ms))) << ms;
  }
  random_ = 0.5;
  WatchNumber(index++)->End(kRefused);
  EXPECT_TRUE(Pauses(seconds(45))) << "the pause is 30 s times [1, 2)";

  random_ = 0;
  auto watch = WatchNumber(index++);
  clock_.Advance(minutes(2));
  watch->End(Failure(429, "TooManyRequests"));
  EXPECT_TRUE(Pauses(milliseconds(800))) << "two good minutes did not make it start anew";
  EXPECT_EQ(Lists(), 1u);
}

TEST_F(ReflectorTest, BacksOffWithoutAListOnTooManyRequests) {
  Serve(TestList(1));
  Start();
  WatchNumber(0)->End(Failure(429, "TooManyRequests"));
  EXPECT_TRUE(Pauses(milliseconds(800)));
  WatchNumber(1)->Event("ERROR", TestStatus(429, "TooManyRequests"));
  EXPECT_TRUE(Pauses(milliseconds(1600))) << "as an event";
  HttpResponse later = Failure(429, "TooManyRequests");
  later.headers["retry-after"] = "7";
  WatchNumber(2)->End(later);
  EXPECT_TRUE(Pauses(seconds(7))) << "when the server says how long";
  later.headers["retry-after"] = "3000";
  WatchNumber(3)->End(later);
  EXPECT_TRUE(Pauses(seconds(30))) << "but not forever";
  EXPECT_EQ(VersionIn(WatchNumber(4)->request.path), "1");
  EXPECT_EQ(Lists(), 1u);
}

TEST_F(ReflectorTest, ListsAfterAnInternalErrorUnlessItIsToTryAgainForAWhile) {
  Serve(TestList(1));
  Start();
  WatchNumber(0)->Event("ERROR", TestStatus(500, "InternalError"));
  WatchNumber(1);
  EXPECT_EQ(Lists(), 2u);
}

TEST_F(ReflectorTest, TriesAgainAfterInternalErrorsForAsLongAsItMay) {
  Serve(TestList(1));
  Start({.internal_error_retry = seconds(30)});
  size_t index = 0;
  // Pauses of 0.8, 1.6, 3.2, 6.4, 12.8 and 25.6 s: the seventh error comes 50 s after the first.
  for (; index < 7; ++index) WatchNumber(index)->Event("ERROR", TestStatus(500, "InternalError"));
  WatchNumber(index);
  EXPECT_EQ(Lists(), 2u) << "its time is over after 30 s";
}

TEST_F(ReflectorTest, ListsAfterAnEventThatTheServerCannotRead) {
  Serve(TestList(3, {TestObject("foo-1", 1), TestObject("foo-2", 2)}));
  Start({.internal_error_retry = seconds(30)});
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("corrupt", 4));
  EXPECT_TRUE(Holds({{"foo-1", "1"}, {"foo-2", "2"}, {"corrupt", "4"}}));
  Serve(TestList(5, {TestObject("foo-1", 1), TestObject("foo-2", 2)}));
  watch->Event("ERROR", TestStatus(500, "StorageReadError"));
  WatchNumber(1);
  EXPECT_EQ(objects(), (Names{{"foo-1", "1"}, {"foo-2", "2"}})) << "an object that was deleted by force stays";
}

TEST_F(ReflectorTest, TakesAVeryShortWatchForAFailure) {
  Serve(TestList(1));
  Start();
  WatchNumber(0)->End();
  EXPECT_TRUE(Pauses(milliseconds(800)));
  auto watch = WatchNumber(1);
  watch->Event("BOOKMARK", TestBookmark(2));
  watch->End();
  ASSERT_TRUE(Eventually([&] { return transport_->watches() == 3; })) << "with an event it is none";
  watch = WatchNumber(2);
  clock_.Advance(seconds(2));
  watch->End();
  ASSERT_TRUE(Eventually([&] { return transport_->watches() == 4; })) << "a long one is none";
  EXPECT_EQ(Lists(), 1u);
}

TEST_F(ReflectorTest, ReadsPagesOfTheSizeItWasGiven) {
  transport_->SetAnswer([](const HttpRequest& request) {
    EXPECT_THAT(request.path, HasSubstr("limit=4"));
    if (request.path.find("continue=C1") != std::string::npos) return JsonAnswer(200, TestList(10, {TestObject("c", 3)}, "C2"));
    if (request.path.find("continue=C2") != std::string::npos) return JsonAnswer(200, TestList(11, {TestObject("d", 4)}));
    return JsonAnswer(200, TestList(10, {TestObject("a", 1), TestObject("b", 2)}, "C1"));
  });
  Start({.page_size = 4});
  EXPECT_EQ(VersionIn(WatchNumber(0)->request.path), "10");
  EXPECT_EQ(objects(), (Names{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}));
}

TEST_F(ReflectorTest, RelistsFromTheLastVersionAndWithoutPages) {
  Serve(TestList(10, {TestObject("a", 1)}));
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", TestObject("b", 12));
  Serve(TestList(13, {TestObject("b", 12)}));
  watch->End(Failure(410, "Expired"));
  WatchNumber(1);
  EXPECT_THAT(ListVersions(), ElementsAre("", "12"));
  EXPECT_THAT(transport_->sent()[1].path, Not(HasSubstr("limit="))) << "the server's memory answers only without a limit";
  EXPECT_EQ(objects(), (Names{{"b", "12"}}));
}

TEST_F(ReflectorTest, ReadsTheRelistInPagesIfTheServerSendsPages) {
  Serve(TestList(10));
  Start();
  transport_->SetAnswer([](const HttpRequest& request) {
    if (request.path.find("continue=C1") != std::string::npos) return JsonAnswer(200, TestList(12, {TestObject("b", 2)}));
    return JsonAnswer(200, TestList(12, {TestObject("a", 1)}, "C1"));
  });
  WatchNumber(0)->End(kDead);
  WatchNumber(1);
  EXPECT_EQ(objects(), (Names{{"a", "1"}, {"b", "2"}}));
}

TEST_F(ReflectorTest, ListsTheNewestWhenItsVersionExpired) {
  Serve(TestList(10, {TestObject("a", 1)}));
  Start();
  auto watch = WatchNumber(0);
  transport_->SetAnswer([](const HttpRequest& request) {
    if (VersionIn(request.path) == "10") return Failure(410, "Expired");
    return JsonAnswer(200, TestList(11, {TestObject("b", 11)}));
  });
  watch->Event("ERROR", TestStatus(410, "Expired"));
  EXPECT_TRUE(Pauses(milliseconds(800))) << "an error at once is a reason to wait";
  EXPECT_EQ(VersionIn(WatchNumber(1)->request.path), "11");
  EXPECT_THAT(ListVersions(), ElementsAre("", "10", "")) << "the second try comes at once";
  EXPECT_EQ(objects(), (Names{{"b", "11"}}));

  WatchNumber(1)->End(Failure(410, "Gone"));
  WatchNumber(2);
  EXPECT_THAT(ListVersions(), ElementsAre("", "10", "", "11")) << "a list that came forgives the version";
}

TEST_F(ReflectorTest, ListsAllAtTheVersionAskedForWhenAPageExpired) {
  Serve(TestList(10, {TestObject("a", 1)}));
  Start({.page_size = 4});
  auto watch = WatchNumber(0);
  auto calls = std::make_shared<std::atomic<int>>(0);
  transport_->SetAnswer([calls](const HttpRequest& request) {
    if (request.path.find("continue=") != std::string::npos) return Failure(410, "Expired");
    return JsonAnswer(200, TestList(11, {TestObject("a", 1), TestObject("b", 2)}, ++*calls == 1 ? "C1" : ""));
  });
  watch->End(Failure(410, "Expired"));
  WatchNumber(1);
  EXPECT_THAT(ListVersions(), ElementsAre("", "10", "", "10"));
  EXPECT_EQ(objects(), (Names{{"a", "1"}, {"b", "2"}}));
}

TEST_F(ReflectorTest, ListsTheNewestWhenTheServerHasNotReachedItsVersion) {
  const std::vector<Json> answers = {
      TestStatus(504, "Timeout", {{{"reason", "ResourceVersionTooLarge"}, {"message", "Too large resource version"}}}),
      TestStatus(504, "Timeout", {{{"message", "Too large resource version"}}}),
      {{"kind", "Status"}, {"code", 504}, {"reason", "Timeout"}, {"message", "Too large resource version: 40, current: 30"}}};
  Serve(TestList(20));
  Start();
  std::vector<std::string> expected = {""};
  for (size_t i = 0; i < answers.size(); ++i) {
    auto watch = WatchNumber(i);
    const int now = 20 + 10 * static_cast<int>(i);
    transport_->SetAnswer([=](const HttpRequest& request) {
      if (!VersionIn(request.path).empty()) return JsonAnswer(504, answers[i]);
      return JsonAnswer(200, TestList(now + 10));
    });
    watch->End(Failure(410, "Expired"));
    EXPECT_EQ(VersionIn(WatchNumber(i + 1)->request.path), std::to_string(now + 10));
    expected.push_back(std::to_string(now));
    expected.emplace_back();
  }
  EXPECT_EQ(ListVersions(), expected);
}

TEST_F(ReflectorTest, ReadsWholeObjectsFromAServerThatRefusesMetadataAlone) {
  transport_->SetAnswer([](const HttpRequest& request) {
    if (request.headers.at("accept").find("PartialObjectMetadata") != std::string::npos) return Failure(406, "NotAcceptable");
    return JsonAnswer(200, TestList(5, {TestObject("a", 1)}));
  });
  Start({.metadata_only = true});
  auto watch = WatchNumber(0);
  EXPECT_EQ(objects(), (Names{{"a", "1"}}));
  EXPECT_EQ(watch->request.headers.at("accept"), "application/json") << "it does not ask again";
}

TEST_F(ReflectorTest, ReadsMetadataAlone) {
  Json item = TestObject("a", 1);
  item["kind"] = "PartialObjectMetadata";
  Serve(TestList(5, {item}));
  Start({.metadata_only = true});
  auto watch = WatchNumber(0);
  EXPECT_EQ(watch->request.headers.at("accept"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
  item["metadata"]["resourceVersion"] = "6";
  watch->Event("MODIFIED", item);
  EXPECT_TRUE(Holds({{"a", "6"}}));
}

TEST_F(ReflectorTest, StopsWhereverItIs) {
  Serve(TestList(1));
  Start();
  auto watch = WatchNumber(0);
  reflector_->Stop();  // in a watch
  watch->Event("ADDED", TestObject("late", 2));
  EXPECT_EQ(objects(), Names{});

  reflector_->Start();  // again: a list from the last version
  WatchNumber(1)->End(kRefused);
  ASSERT_TRUE(Eventually([&] { return clock_.waiters() > 0; }));
  reflector_->Stop();  // in a pause
  reflector_->Stop();
  EXPECT_EQ(clock_.waiters(), 0);
  EXPECT_THAT(ListVersions(), ElementsAre("", "1"));
}

TEST_F(ReflectorTest, StopsBeforeItBegan) {
  Serve(TestList(1));
  Start();
  reflector_->Stop();
  reflector_->Start();
  reflector_->Start();  // one thread only
  auto watch = WatchNumber(transport_->watches() == 0 ? 0 : transport_->watches() - 1);
  ASSERT_NE(watch, nullptr);
}

TEST_F(ReflectorTest, EndsAWatchWhoseBytesAreNoEvents) {
  for (const std::string bytes : {"no JSON\n", "{\"type\":\"NEWS\",\"object\":{}}\n", "[]\n", "{\"type\":5}\n"}) {
    static size_t index = 0;
    Serve(TestList(1));
    if (!reflector_) Start();
    auto watch = WatchNumber(index++);
    const size_t lists = Lists();
    watch->Feed(bytes);
    WatchNumber(index);
    EXPECT_EQ(Lists(), lists + 1) << bytes;
  }
}

}  // namespace
}  // namespace holdfast::kube
