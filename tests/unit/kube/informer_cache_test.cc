// What callers get beside the plain cache: transforms, waiting for a version, several handlers, metadata only.
#include "kube/objects.h"
#include "tests/unit/kube/informer_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(InformerTest, TransformsEachObjectOnceBeforeAnybodySeesIt) {
  Serve(5, {Object("a", 3, "x"), Object("b", 4, "y")});
  informer_.AddIndex("value", [](const Item& item) { return std::vector{item.value}; });
  informer_.SetTransform([](Item& item) {
    if (item.value == "bad") throw std::runtime_error("transform");
    item.value += "!";
  });
  std::vector<std::string> seen;
  informer_.AddHandler([&](const Informer<Item>::Ptr&, const Informer<Item>::Ptr& now) {
    std::lock_guard lock(mutex_);
    if (now) seen.push_back(now->value);
  });
  Start();
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre("x!", "y!"));
  auto watch = WatchNumber(0);
  watch->Event("MODIFIED", Object("a", 6, "z"));
  watch->Event("ADDED", Object("c", 7, "bad"));
  Heard(3);
  EXPECT_EQ(informer_.Get("ns", "a")->value, "z!");
  Serve(9, {Object("a", 6, "z"), Object("b", 8, "w")});
  watch->Event("ERROR", GoneStatus());
  WatchNumber(1);
  EXPECT_EQ(informer_.Get("ns", "a")->value, "z!") << "an unchanged object is not transformed again";
  EXPECT_EQ(informer_.Get("ns", "b")->value, "w!");
  informer_.Observe(Object("b", 20, "own"));
  EXPECT_EQ(informer_.ByIndex("value", "own!").size(), 1u);
  EXPECT_EQ(informer_.stats().unreadable, 1u);
  EXPECT_EQ(informer_.Get("ns", "c"), nullptr);
}

TEST_F(InformerTest, TransformsTheObjectsOfAStreamedListToo) {
  transport_->AllowWatchLists();
  informer_.SetTransform([](Item& item) { item.value += "!"; });
  informer_.Start();
  auto watch = WatchNumber(0);
  watch->Event("ADDED", Object("a", 1, "x"));
  watch->Event("BOOKMARK", {{"metadata", {{"resourceVersion", "1"}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}});
  ASSERT_TRUE(Eventually([&] { return informer_.synced(); }));
  EXPECT_EQ(informer_.Get("ns", "a")->value, "x!");
}

TEST_F(InformerTest, TellsAllHandlersInTheOrderOfTheirComing) {
  Serve(5, {Object("a", 3)});
  std::vector<std::string> order;
  for (const char* name : {"first", "second", "third"}) {
    informer_.AddHandler([&order, this, name](const auto&, const auto&) {
      std::lock_guard lock(mutex_);
      order.emplace_back(name);
      if (name == std::string("second")) throw 5;  // no std::exception
    });
  }
  Start();
  EXPECT_THAT(order, ElementsAre("first", "second", "third"));
  WatchNumber(0)->Event("MODIFIED", Object("a", 6));
  Heard(2);
  EXPECT_EQ(order.size(), 6u) << "a handler that throws hears of the next event";
}

TEST_F(InformerTest, TellsAfterTheCacheAndTheIndexesHaveChanged) {
  Serve(5, {Object("a", 3, "x")});
  informer_.AddIndex("value", [](const Item& item) { return std::vector{item.value}; });
  std::atomic<int> wrong{0};
  informer_.AddHandler([&](const Informer<Item>::Ptr& old, const Informer<Item>::Ptr& now) {
    if (now && informer_.Get("ns", now->meta.name) != now) ++wrong;
    if (!now && informer_.Get("ns", old->meta.name)) ++wrong;
    if (now && informer_.ByIndex("value", now->value).size() != 1) ++wrong;
  });
  Start();
  auto watch = WatchNumber(0);
  watch->Event("MODIFIED", Object("a", 6, "y"));
  watch->Event("DELETED", Object("a", 7, "y"));
  Heard(3);
  EXPECT_EQ(wrong, 0);
}

TEST_F(InformerTest, SurvivesAnIndexFunctionThatThrows) {
  Serve(5, {Object("a", 3, "x"), Object("b", 4, "bad")});
  informer_.AddIndex("value", [](const Item& item) {
    if (item.value == "bad") throw std::runtime_error("index");
    return std::vector{item.value};
  });
  Start();
  EXPECT_EQ(informer_.size(), 2u);
  EXPECT_EQ(informer_.ByIndex("value", "x").size(), 1u);
}

TEST_F(InformerTest, ShowsTheLastKnownStateOfWhatIsDeleted) {
  Serve(5, {Object("a", 3, "old")});
  std::string value;
  informer_.AddHandler([&](const Informer<Item>::Ptr& old, const Informer<Item>::Ptr& now) {
    if (!now) value = old->value;
  });
  Start();
  WatchNumber(0)->Event("DELETED", Object("a", 9, "as it died"));
  EXPECT_THAT(Heard(2), ElementsAre("->a@3", "a@9>-"));
  EXPECT_EQ(value, "as it died");
}

class WaitForTest : public InformerTest {
 protected:
  // Runs WaitFor on its own thread; virtual time moves only when the test moves it.
  struct Waiter {
    std::atomic<int> result{-1};
    std::jthread thread;
  };
  std::unique_ptr<Waiter> Wait(const std::string& version, Duration timeout = seconds(10)) {
    auto waiter = std::make_unique<Waiter>();
    waiter->thread = std::jthread([this, version, timeout, w = waiter.get()](const std::stop_token& stop) {
      w->result = informer_.WaitFor(version, timeout, stop) ? 1 : 0;
    });
    return waiter;
  }
  bool Waits(uint64_t count) {
    return Eventually([&] { return informer_.stats().waits == count && clock_.waiters() > 0; });
  }
};

TEST_F(WaitForTest, DoesNotWaitForWhatIsThere) {
  Serve(5, {});
  Start();
  EXPECT_TRUE(informer_.WaitFor("5", seconds(0), {}));
  EXPECT_TRUE(informer_.WaitFor("4", seconds(0), {}));
  EXPECT_TRUE(informer_.WaitFor("opaque", seconds(0), {})) << "what cannot be compared is not waited for";
  EXPECT_EQ(informer_.stats().waits, 0u);
  EXPECT_FALSE(informer_.WaitFor("6", seconds(0), {}));
  EXPECT_EQ(informer_.stats().waits_in_vain, 1u);
}

TEST_F(WaitForTest, EndsWithTheEventTheDeletionTheBookmarkOrTheList) {
  Serve(5, {});
  Start();
  auto watch = WatchNumber(0);
  auto event = Wait("10");
  ASSERT_TRUE(Waits(1));
  watch->Event("ADDED", Object("other", 9));
  Heard(1);
  EXPECT_EQ(event->result, -1);
  watch->Event("ADDED", Object("mine", 10));
  EXPECT_TRUE(Eventually([&] { return event->result == 1; }));
  EXPECT_NE(informer_.Get("ns", "mine"), nullptr);

  auto deletion = Wait("12");
  ASSERT_TRUE(Waits(2));
  watch->Event("DELETED", Object("mine", 12));
  EXPECT_TRUE(Eventually([&] { return deletion->result == 1; }));

  auto bookmark = Wait("20");
  ASSERT_TRUE(Waits(3));
  watch->Event("BOOKMARK", {{"metadata", {{"resourceVersion", "25"}}}});
  EXPECT_TRUE(Eventually([&] { return bookmark->result == 1; })) << "nothing of ours, but everything up to it has come";

  auto list = Wait("30");
  ASSERT_TRUE(Waits(4));
  Serve(30, {});
  watch->End(Status(Code::kDeadlineExceeded, "silent"));
  EXPECT_TRUE(Eventually([&] { return list->result == 1; }));
  EXPECT_EQ(informer_.stats().waits_in_vain, 0u);
}

TEST_F(WaitForTest, IsBoundedByTimeAndByStop) {
  Serve(5, {});
  Start();
  WatchNumber(0);
  auto late = Wait("100", seconds(3));
  ASSERT_TRUE(Waits(1));
  clock_.Advance(milliseconds(2999));
  Clock::Real().Sleep(milliseconds(5), {});
  EXPECT_EQ(late->result, -1);
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return late->result == 0; }));
  auto stopped = Wait("100");
  ASSERT_TRUE(Waits(2));
  stopped->thread.request_stop();
  EXPECT_TRUE(Eventually([&] { return stopped->result == 0; }));
  EXPECT_EQ(informer_.stats().waits_in_vain, 2u);
}

// On the real clock: a waiter in virtual time looks again by itself.
TEST_F(WaitForTest, LosesNoWakeUpBetweenThreads) {
  Serve(5, {});
  Client client(transport_);
  Informer<Item> informer(client);
  const MonoTime start = Clock::Real().Mono();
  informer.Start();
  EXPECT_TRUE(informer.WaitForSync(seconds(30), {}));
  EXPECT_LT(Clock::Real().Mono() - start, seconds(20)) << "the first list woke nobody";
  auto watch = transport_->WaitForWatch(0);
  ASSERT_NE(watch, nullptr);
  std::atomic<int> seen{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&](const std::stop_token& stop) {
      for (int version = 10; version < 210; ++version) {
        if (informer.WaitFor(std::to_string(version), std::chrono::minutes(1), stop)) ++seen;
      }
    });
  }
  for (int version = 10; version < 210; ++version) {
    // Now and then nothing more comes before everybody has seen the last one, of either kind.
    if (version % 25 == 10) {
      ASSERT_TRUE(Eventually([&] { return seen >= 4 * (version - 10); })) << version;
    }
    watch->Event(version % 2 == 0 ? "MODIFIED" : "BOOKMARK", Object("a", version));
  }
  EXPECT_TRUE(Eventually([&] { return seen == 800; }));
}

TEST(MetadataInformer, KeepsTheMetadataOfAnyResource) {
  FakeClock clock;
  auto transport = std::make_shared<FakeTransport>();
  Json item = Object("a", 3);
  item["kind"] = "PartialObjectMetadata";
  item["apiVersion"] = "meta.k8s.io/v1";
  item["metadata"]["labels"] = {{"app", "web"}};
  transport->SetAnswer([=](const HttpRequest&) {
    Json list = ListOf(5, {item});
    list["kind"] = "PartialObjectMetadataList";
    return JsonAnswer(200, list);
  });
  Client client(transport, clock);
  Informer<Metadata> pods(client, Pod::kResource, {});
  pods.Start();
  ASSERT_TRUE(Eventually([&] { return pods.synced(); }));
  EXPECT_EQ(pods.Get("ns", "a")->meta.labels.at("app"), "web");
  EXPECT_THAT(transport->sent()[0].headers.at("accept"), HasSubstr("as=PartialObjectMetadataList;"));
  auto watch = transport->WaitForWatch(0);
  item["kind"] = "Pod";  // a server that cannot reduce objects
  item["metadata"]["resourceVersion"] = "8";
  item["spec"] = {{"nodeName", "n"}};
  watch->Event("MODIFIED", item);
  EXPECT_TRUE(Eventually([&] { return pods.Get("ns", "a")->meta.resource_version == "8"; }));
}

TEST(MetadataInformer, SharesTheTextsThatObjectsHaveInCommon) {
  FakeClock clock;
  auto transport = std::make_shared<FakeTransport>();
  std::vector<Json> items;
  for (int i = 0; i < 2; ++i) {
    Json item = Object("pod-" + std::to_string(i), 3);
    item["metadata"]["labels"] = {{"app.kubernetes.io/name", "a text that is long enough"}};
    item["metadata"]["ownerReferences"] = {{{"kind", "ReplicaSet"}, {"name", "web-5d8f7c9b6d"}, {"uid", "u"}}};
    items.push_back(item);
  }
  transport->SetAnswer([=](const HttpRequest&) { return JsonAnswer(200, ListOf(5, items)); });
  Client client(transport, clock);
  Informer<Metadata> pods(client, Pod::kResource, {});
  pods.Start();
  ASSERT_TRUE(Eventually([&] { return pods.synced(); }));
  const ObjectMeta &a = pods.Get("ns", "pod-0")->meta, &b = pods.Get("ns", "pod-1")->meta;
  EXPECT_TRUE(a.labels.begin()->first.same(b.labels.begin()->first));
  EXPECT_TRUE(a.labels.begin()->second.same(b.labels.begin()->second));
  EXPECT_TRUE(a.owners[0].name.same(b.owners[0].name));
}

}  // namespace
}  // namespace holdfast::kube
