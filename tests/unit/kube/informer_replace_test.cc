// A whole list over what is there: client-go's RealFIFO (tools/cache/the_real_fifo_test.go) and controller_test.go, as far as a cache that
// takes events one by one behaves like a queue of them.
#include "tests/unit/kube/informer_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ReplaceTest : public InformerTest {
 protected:
  // A new list over the running watch number `index`, and what handlers heard of it.
  std::vector<std::string> Replace(size_t index, int version, const std::vector<Json>& items, size_t events) {
    const size_t before = Heard(0).size();
    Serve(version, items);
    transport_->WaitForWatch(index)->Event("ERROR", GoneStatus());
    WatchNumber(index + 1);
    std::vector<std::string> heard = Heard(before + events);
    return {heard.begin() + static_cast<long>(before), heard.end()};
  }
};

TEST_F(ReplaceTest, CreatesUpdatesAndDeletes) {
  struct Case {
    std::vector<Json> before, after;
    std::vector<std::string> deleted, told;
  };
  Serve(1, {});
  Start();
  WatchNumber(0);
  EXPECT_THAT(Replace(0, 2, {Object("a", 2)}, 1), ElementsAre("->a@2"));
  std::vector<std::string> heard = Replace(1, 9, {Object("a", 4), Object("b", 5), Object("c", 6)}, 3);
  EXPECT_THAT(heard, UnorderedElementsAre("a@2>a@4", "->b@5", "->c@6"));
  heard = Replace(2, 20, {Object("a", 14), Object("b", 15), Object("d", 16)}, 4);
  EXPECT_EQ(heard[0], "c@6>-") << "deletions come first, with the last known state";
  EXPECT_THAT(heard, UnorderedElementsAre("c@6>-", "a@4>a@14", "b@5>b@15", "->d@16"));
  EXPECT_THAT(Replace(3, 21, {}, 3), UnorderedElementsAre("a@14>-", "b@15>-", "d@16>-"));
  EXPECT_EQ(informer_.size(), 0u);
}

TEST_F(ReplaceTest, DeletesOnlyOnceWhatEveryListLacks) {
  Serve(1, {});
  Start();
  WatchNumber(0)->Event("ADDED", Object("foo", 2));
  Heard(1);
  EXPECT_THAT(Replace(0, 3, {}, 1), ElementsAre("foo@2>-"));
  EXPECT_THAT(Replace(1, 4, {}, 0), IsEmpty());
}

TEST_F(ReplaceTest, SaysNothingOfWhatIsUnchangedAndKeepsTheSameObject) {
  Serve(5, {Object("foo", 3), Object("bar", 4)});
  Start();
  WatchNumber(0);
  auto foo = informer_.Get("ns", "foo"), bar = informer_.Get("ns", "bar");
  EXPECT_THAT(Replace(0, 6, {Object("foo", 3), Object("bar", 4)}, 0), IsEmpty());
  EXPECT_THAT(Replace(1, 7, {Object("foo", 3), Object("bar", 4)}, 0), IsEmpty());
  EXPECT_EQ(informer_.Get("ns", "foo"), foo);
  EXPECT_EQ(informer_.Get("ns", "bar"), bar);
  EXPECT_THAT(Replace(2, 8, {}, 2), UnorderedElementsAre("foo@3>-", "bar@4>-"));
}

TEST_F(ReplaceTest, DoesNotTakeTheSameVersionOfAnotherObjectForUnchanged) {
  Serve(5, {Object("foo", 3)});
  Start();
  WatchNumber(0);
  EXPECT_THAT(Replace(0, 6, {Object("foo", 3, "", "other uid")}, 1), ElementsAre("foo@3>foo@3"));
  EXPECT_EQ(informer_.Get("ns", "foo")->meta.uid, "other uid");
}

TEST_F(ReplaceTest, DeletesWhatOnlyAnEventHadBrought) {
  Serve(1, {Object("foo", 1)});
  Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", Object("baz", 10));
  watch->Event("DELETED", Object("bar", 6));  // never seen
  watch->Event("ADDED", Object("bar", 11));
  Heard(3);
  EXPECT_THAT(Replace(0, 12, {Object("foo", 1)}, 2), UnorderedElementsAre("baz@10>-", "bar@11>-"));
}

TEST_F(ReplaceTest, CreatesAgainWhatAnEventHadDeleted) {
  Serve(1, {Object("foo", 1)});
  Start();
  WatchNumber(0)->Event("DELETED", Object("foo", 2));
  Heard(2);
  EXPECT_THAT(Replace(0, 3, {Object("foo", 3)}, 1), ElementsAre("->foo@3"));
}

TEST_F(ReplaceTest, TellsEveryEventOfAnObjectInOrder) {
  Serve(1, {});
  Start();
  auto watch = WatchNumber(0);
  for (const char* name : {"foo", "bar"}) watch->Event("ADDED", Object(name, 2));
  for (int version : {11, 13, 14}) watch->Event("MODIFIED", Object("foo", version));
  watch->Event("DELETED", Object("foo", 15));
  watch->Event("ADDED", Object("foo", 16));
  EXPECT_THAT(Heard(7), ElementsAre("->foo@2", "->bar@2", "foo@2>foo@11", "foo@11>foo@13", "foo@13>foo@14", "foo@15>-", "->foo@16"));
}

TEST_F(ReplaceTest, OneItemListedTwiceCountsAsTheLast) {
  Serve(5, {Object("a", 1, "first"), Object("a", 2, "second")});
  Start();
  EXPECT_EQ(informer_.Get("ns", "a")->value, "second");
  EXPECT_THAT(Heard(1), ElementsAre("->a@2"));
}

TEST_F(ReplaceTest, IsSyncedByAnEmptyListToo) {
  Serve(5, {});
  Start();
  EXPECT_TRUE(informer_.WaitForSync(seconds(0), {}));
  EXPECT_EQ(informer_.size(), 0u);
}

// The whole old view stands until the new list is whole, whoever looks.
TEST_F(ReplaceTest, ShowsTheOldViewUntilTheNewListIsWhole) {
  transport_->AllowWatchLists();
  informer_.AddIndex("value", [](const Item& item) { return std::vector{item.value}; });
  informer_.AddHandler([this](const auto&, const auto&) {
    std::lock_guard lock(mutex_);
    heard_.push_back("event");
  });
  informer_.Start();
  auto watch = WatchNumber(0);
  auto bookmark = [](int version) {
    return Json{{"metadata", {{"resourceVersion", std::to_string(version)}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}};
  };
  watch->Event("ADDED", Object("a", 1, "x"));
  watch->Event("ADDED", Object("b", 2, "x"));
  watch->Event("BOOKMARK", bookmark(2));
  ASSERT_TRUE(Eventually([&] { return informer_.synced(); }));
  watch->Event("ERROR", GoneStatus());
  watch = WatchNumber(1);
  watch->Event("ADDED", Object("a", 5, "y"));
  watch->Event("ADDED", Object("c", 6, "y"));
  watch->Event("ADDED", Object("c", 7, "y"));
  watch->Event("DELETED", Object("c", 8, "y"));
  watch->Event("ADDED", Object("b", 2, "x"));
  watch->Event("DELETED", Object("b", 9, "x"));
  ASSERT_TRUE(Eventually([&] { return informer_.stats().reflector.events == 8; }));
  EXPECT_EQ(informer_.ByIndex("value", "x").size(), 2u);
  EXPECT_EQ(informer_.Get("ns", "a")->value, "x");
  EXPECT_EQ(Heard(2).size(), 2u);
  watch->Event("BOOKMARK", bookmark(9));
  EXPECT_EQ(Heard(4).size(), 4u) << "b is gone, a has changed";
  EXPECT_EQ(informer_.size(), 1u);
  EXPECT_EQ(informer_.ByIndex("value", "y").size(), 1u);
  EXPECT_EQ(informer_.ByIndex("value", "x").size(), 0u);
}

TEST_F(ReplaceTest, ForgetsAListThatBrokeOff) {
  Serve(5, {Object("a", 3)});
  Start();
  auto watch = WatchNumber(0);
  auto a = informer_.Get("ns", "a");
  std::atomic<int> calls{0};
  transport_->SetAnswer([&](const HttpRequest&) {
    HttpResponse whole = JsonAnswer(200, ListOf(9, calls == 0 ? std::vector{Object("a", 3), Object("ghost", 8)} : std::vector<Json>{}));
    if (++calls == 1) whole.body.resize(whole.body.size() - 3);  // cut mid-list
    return whole;
  });
  watch->Event("ERROR", GoneStatus());
  WatchNumber(1);
  EXPECT_THAT(Heard(2), ElementsAre("->a@3", "a@3>-")) << "the second list has nothing of the first, not even its marks";
}

TEST_F(ReplaceTest, UndoesOwnWritesOfAFutureThatTheServerLost) {
  Serve(50, {Object("a", 40)});
  Start();
  informer_.Observe(Object("a", 55, "lost"));
  Serve(45, {Object("a", 40)});
  WatchNumber(0)->End(Status(Code::kDeadlineExceeded, "silent"));
  WatchNumber(1);
  EXPECT_EQ(informer_.Get("ns", "a")->meta.resource_version, "40");
}

}  // namespace
}  // namespace holdfast::kube
