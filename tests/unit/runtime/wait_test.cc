#include "runtime/wait.h"

#include <gtest/gtest.h>

#include "runtime/protocol.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

using std::chrono::milliseconds;

// Time passes only while somebody waits, and `step` sees it pass: all in one thread.
class SteppingClock final : public Clock {
 public:
  explicit SteppingClock(std::function<void(int64_t ms)> step) : step_(std::move(step)) {}
  MonoTime Mono() const override { return now_; }
  WallTime Wall() const override { return WallTime(now_.time_since_epoch()); }
  bool WaitUntil(std::unique_lock<std::mutex>&, std::condition_variable_any&, MonoTime deadline, std::stop_token,
                 const std::function<bool()>& ready) override {
    now_ = deadline;
    step_(std::chrono::duration_cast<milliseconds>(now_.time_since_epoch()).count());
    return ready();
  }

 private:
  const std::function<void(int64_t ms)> step_;
  MonoTime now_;
};

void Say(const TempDir& dir, const WaitState& state) { ASSERT_TRUE(WriteFileAtomically(dir / "state", DumpJson(state.ToJson())).ok()); }

struct Outcome {
  int code;
  std::vector<std::string> lines;
};
Outcome Wait(const TempDir& dir, std::function<void(int64_t ms)> step, std::stop_token stop = {}) {
  SteppingClock clock(std::move(step));
  Outcome outcome;
  outcome.code = WaitForState(
      dir / "state", clock, [&](const std::string& line) { outcome.lines.push_back(line); }, stop);
  return outcome;
}

TEST(Wait, TellsProgressOnceASecondAndEndsWhenReady) {
  TempDir dir;
  Outcome outcome = Wait(dir, [&](int64_t ms) {
    if (ms < 4000) {
      Say(dir, {"fetching", "", (ms / 40) << 20, int64_t{310} << 20});
    } else {
      Say(dir, {"ready", "", 0, 0});
    }
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.lines, (std::vector<std::string>{"holdfast: waiting for the checkpoint", "holdfast: fetching checkpoint, 25 of 310 MiB",
                                                     "holdfast: fetching checkpoint, 50 of 310 MiB",
                                                     "holdfast: fetching checkpoint, 75 of 310 MiB", "holdfast: checkpoint is here"}));
}

TEST(Wait, ColdIsSuccessAndFailedIsNot) {
  TempDir dir;
  Say(dir, {"cold", "no checkpoint", 0, 0});
  EXPECT_EQ(Wait(dir, [](int64_t) {}).code, 0);
  Say(dir, {"failed", "the store is gone", 0, 0});
  Outcome failed = Wait(dir, [](int64_t) {});
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(failed.lines.back(), "holdfast: failed: the store is gone");
}

TEST(Wait, AnUnreadableStateIsWaitedOut) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "state", "{\"state\": 3").ok());
  Outcome outcome = Wait(dir, [&](int64_t ms) {
    if (ms == 3000) Say(dir, {"ready", "", 0, 0});
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.lines.size(), 2u);
}

TEST(Wait, AStopIsNoSuccess) {
  TempDir dir;
  std::stop_source source;
  EXPECT_EQ(Wait(
                dir, [&](int64_t) { source.request_stop(); }, source.get_token())
                .code,
            1);
}

}  // namespace
}  // namespace holdfast::runtime
