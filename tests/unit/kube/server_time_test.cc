// Hole 5: one deadline was counted by two clocks.
#include "kube/server_time.h"

#include <gtest/gtest.h>

#include "base/time_format.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const WallTime kNow = *ParseTime("2026-11-24T13:00:00Z");

TEST(ServerClock, ReadsADate) {
  EXPECT_EQ(HttpDate(*ParseTime("1994-11-06T08:49:37Z")), "Sun, 06 Nov 1994 08:49:37 GMT");
  FakeClock own(kNow);
  ServerClock clock(own);
  EXPECT_EQ(clock.Wall(), kNow);
  clock.Note("Sun, 06 Nov 1994 08:49:37 GMT", own.Mono(), own.Mono());
  EXPECT_LT(clock.Wall(), *ParseTime("1994-11-06T08:49:40Z"));
  EXPECT_EQ(clock.Mono(), own.Mono());
}

TEST(ServerClock, IsOurOwnUnlessAnAnswerShowsThatItIsNot) {
  struct Case {
    const char* what;
    Duration server_is_ahead, took, least, most;
  };
  for (const Case& c : {Case{"alike", seconds(0), milliseconds(3), seconds(0), seconds(0)},
                        {"as alike as can be told", milliseconds(900), milliseconds(3), seconds(0), seconds(0)},
                        {"ahead", seconds(300), milliseconds(3), seconds(297), seconds(300)},
                        {"behind", -seconds(300), milliseconds(3), -seconds(300), -seconds(297)},
                        {"ahead, after a slow answer", seconds(60), seconds(4), seconds(54), seconds(60)},
                        {"an answer that took too long says nothing", seconds(60), seconds(6), seconds(0), seconds(0)}}) {
    FakeClock own(kNow + milliseconds(700));
    ServerClock clock(own);
    clock.Note(HttpDate(own.Wall() + c.server_is_ahead), own.Mono(), own.Mono() + c.took);
    EXPECT_GE(clock.ahead(), c.least) << c.what;
    EXPECT_LE(clock.ahead(), c.most) << c.what;
    EXPECT_EQ(clock.Wall(), own.Wall() + clock.ahead());
  }
}

TEST(ServerClock, WhatIsNoDateSaysNothing) {
  FakeClock own(kNow);
  ServerClock clock(own);
  const MonoTime now = own.Mono();
  clock.Note(HttpDate(kNow + seconds(100)), now, now);
  const Duration before = clock.ahead();
  EXPECT_GT(before, seconds(0));
  for (const char* none : {"", "now", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 GMT and more"}) {
    clock.Note(none, now, now);
    EXPECT_EQ(clock.ahead(), before) << none;
  }
}

// A node's clock as somebody sets it.
class SetClock final : public Clock {
 public:
  MonoTime Mono() const override { return fake.Mono(); }
  WallTime Wall() const override { return fake.Wall() + set; }
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override {
    return fake.WaitUntil(lock, cv, deadline, std::move(stop), ready);
  }
  FakeClock fake{kNow};
  Duration set{0};
};

TEST(ServerClock, NobodySetsIt) {
  SetClock own;
  ServerClock clock(own);
  own.set = seconds(600);
  own.fake.Advance(seconds(5));
  EXPECT_EQ(clock.Wall(), kNow + seconds(5));
  EXPECT_EQ(clock.ahead(), -seconds(600));
}

TEST(ServerClock, IsToldByEveryAnswer) {
  FakeClock own(kNow);
  ServerClock clock(own);
  FakeTransport server([](const HttpRequest&) {
    HttpResponse answer = JsonAnswer(200, Json::object());
    answer.headers["date"] = HttpDate(kNow - seconds(600));
    return Result<HttpResponse>(answer);
  });
  const auto telling = TellTime(std::shared_ptr<Transport>(&server, [](Transport*) {}), clock);
  ASSERT_TRUE(telling->Send({}, {}).ok());
  EXPECT_LE(clock.Wall(), kNow - seconds(597));
}

}  // namespace
}  // namespace holdfast::kube
