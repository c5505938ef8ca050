// A key's next reconcile finds in the cache what its last one wrote: over a real informer whose watch brings it when the test says so.
#include "kube/own_writes.h"

#include "kube/source.h"
#include "tests/unit/kube/informer_fixture.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OwnWritesTest : public InformerTest {
 protected:
  // Lists at version 5; each write is answered with the next version.
  OwnWritesTest() {
    transport_->SetAnswer([this](const HttpRequest& request) {
      if (request.method == "GET") return JsonAnswer(200, ListOf(5, {Object("a", 3)}));
      return JsonAnswer(200, Object("a", ++version_));
    });
    controller_.AddSource(Watch(informer_, controller_));
    Start();
  }
  ~OwnWritesTest() override {
    controller_.Stop();
    informer_.Stop();  // it has news for the controller, which is gone first
  }

  Result<ReconcileResult> Reconcile(const std::string& key) {
    auto seen = informer_.Get("ns", "a");
    saw_ = key + " at " + (seen ? seen->meta.resource_version : "-");
    const Resource* writes = writes_;
    CallOptions options;
    options.dry_run = dry_run_;
    ++runs_;  // from here on the test may change what is above
    if (!writes) return ReconcileResult{};
    EXPECT_TRUE(client_.Patch(*writes, "ns", "a", PatchType::kMerge, {{"value", "new"}}, options).ok());
    return ReconcileResult{};
  }
  bool Ran(int times) {
    return Eventually([&] { return runs_ == times; });
  }
  // A worker waits for the cache, for at most five seconds.
  bool Waits() {
    return Eventually([&] { return informer_.stats().waits == 1; });
  }

  std::atomic<int> version_{5}, runs_{0};
  std::string saw_;  // by the last reconcile
  const Resource* writes_ = &Item::kResource;
  bool dry_run_ = false;
  Controller controller_{{.name = "items"}, [this](const std::string& key, std::stop_token) { return Reconcile(key); }, clock_};
};

TEST_F(OwnWritesTest, AreSeenByTheNextReconcileOfTheKey) {
  ASSERT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(Ran(1));
  EXPECT_EQ(saw_, "ns/a at 3");
  controller_.Enqueue("ns/a");
  ASSERT_TRUE(Waits());
  EXPECT_EQ(runs_, 1) << "the cache is behind";
  WatchNumber(0)->Event("MODIFIED", Object("a", 6));
  ASSERT_TRUE(Ran(2));
  EXPECT_EQ(saw_, "ns/a at 6");
}

TEST_F(OwnWritesTest, AreWaitedForNoLongerThanTheirPatience) {
  ASSERT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(Ran(1));
  controller_.Enqueue("ns/a");
  ASSERT_TRUE(Waits());
  writes_ = nullptr;
  EXPECT_TRUE(AdvanceUntil(clock_, milliseconds(500), seconds(6), [&] { return runs_ == 2; }));
  EXPECT_EQ(informer_.stats().waits_in_vain, 1u);
}

TEST_F(OwnWritesTest, HoldUpNoOtherKey) {
  ASSERT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(Ran(1));
  controller_.Enqueue("ns/other");
  ASSERT_TRUE(Ran(2));
  EXPECT_EQ(saw_, "ns/other at 3");
  EXPECT_EQ(informer_.stats().waits, 0u);
}

TEST_F(OwnWritesTest, ThatNoCacheShowsOrThatWereNoneAreNotWaitedFor) {
  static const Resource kElsewhere{"test", "v1", "secrets", "Secret", true};
  writes_ = &kElsewhere;
  ASSERT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(Ran(1));
  writes_ = &Item::kResource;
  dry_run_ = true;
  controller_.Enqueue("ns/a");
  ASSERT_TRUE(Ran(2));
  controller_.Enqueue("ns/a");
  ASSERT_TRUE(Ran(3));
  EXPECT_EQ(informer_.stats().waits, 0u);
}

TEST_F(OwnWritesTest, OfAStoppedControllerHoldUpNoStop) {
  ASSERT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(Ran(1));
  controller_.Enqueue("ns/a");
  ASSERT_TRUE(Waits());
  controller_.Stop();
}

// Keys that never come again do not stay for ever.
TEST(OwnWrites, AreForgottenWhenTheirPatienceIsOver) {
  FakeClock clock;
  OwnWrites writes(clock, seconds(5));
  writes.AddCache(Item::kResource.Path(""), [](const std::string&, Duration, std::stop_token) { return true; });
  for (int i = 0; i < 1000; ++i) {
    const std::string key = std::to_string(i);
    OwnWrites::Scope scope(writes, key);
    NoteWrite(Item::kResource, Object("a", 7));
  }
  EXPECT_EQ(writes.size(), 1000u);
  clock.Advance(seconds(6));
  for (int i = 1000; i < 1100; ++i) {
    const std::string key = std::to_string(i);
    OwnWrites::Scope scope(writes, key);
    NoteWrite(Item::kResource, Object("a", 7));
  }
  EXPECT_LT(writes.size(), 101u);
}

TEST(OwnWrites, OfOneReconcileAreTheNewestOfEachCollection) {
  FakeClock clock;
  OwnWrites writes(clock, seconds(5));
  std::string waited;
  writes.AddCache(Item::kResource.Path(""), [&](const std::string& version, Duration limit, std::stop_token) {
    waited += version + " ";
    EXPECT_EQ(limit, seconds(4));
    return false;
  });
  const std::string key = "a";
  {
    OwnWrites::Scope scope(writes, key);
    NoteWrite(Item::kResource, Object("a", 9));
    NoteWrite(Item::kResource, Object("b", 10));
    NoteWrite(Item::kResource, Object("c", 8));
  }
  NoteWrite(Item::kResource, Object("d", 99));  // nobody's
  clock.Advance(seconds(1));
  EXPECT_FALSE(writes.Await(key, {}));
  EXPECT_EQ(waited, "10 ");
  EXPECT_TRUE(writes.Await(key, {})) << "once";
}

}  // namespace
}  // namespace holdfast::kube
