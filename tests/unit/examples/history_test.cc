#include "witness/history.h"

#include <gtest/gtest.h>

#include "counter/memory.h"

namespace witness {
namespace {

constexpr uint64_t kNonce = 0xabcdef, kMib = 3;

// Counters at connections 1, 2 …, whose clocks agree with the witness's but where a test says otherwise.
class HistoryTest : public testing::Test {
 protected:
  uint64_t Hello(int connection, uint64_t reached) { return history_.OnHello(connection, {kNonce, kMib, reached}); }
  counter::Line Line(uint64_t count) {
    counter::Line line;
    line.nonce = kNonce;
    line.count = count;
    line.hash = counter::ExpectedHash(kNonce, kMib, count);
    line.monotonic_ms = now_ms_ - stopped_ms_;
    return line;
  }
  uint64_t Count(int connection, uint64_t count) {
    now_ms_ += 50;
    return history_.OnCount(connection, Line(count), {now_ms_, 1'000'000 + now_ms_});
  }
  nlohmann::json Seen() { return history_.Report()["nonces"]["0000000000abcdef"]; }

  History history_;
  int64_t now_ms_ = 1000;
  int64_t stopped_ms_ = 0;  // for how long the counter's monotonic clock has stood still
};

TEST_F(HistoryTest, AnUninterruptedCounterHasNothingAgainstIt) {
  EXPECT_EQ(Hello(1, 0), 0u);
  for (uint64_t i = 1; i <= 20; ++i) EXPECT_EQ(Count(1, i), i);
  const auto seen = Seen();
  EXPECT_EQ(seen["first"], 1);
  EXPECT_EQ(seen["last"], 20);
  for (const char* key : {"lost", "repeated", "hash_mismatches", "monotonic_jumps", "peer_changes", "token_changes"})
    EXPECT_EQ(seen[key], 0) << key;
  for (const char* key : {"loopback_broken", "share_broken", "two_copies"}) EXPECT_EQ(seen[key], false) << key;
  EXPECT_EQ(seen["longest_gap_ms"], 50);
}

TEST_F(HistoryTest, AMoveIsAGapAndNothingElse) {
  Hello(1, 0);
  Count(1, 1);
  now_ms_ += 4000;
  stopped_ms_ += 4000;
  EXPECT_EQ(Hello(2, 2), 1u);
  Count(2, 2);
  const auto seen = Seen();
  EXPECT_EQ(seen["lost"], 0);
  EXPECT_EQ(seen["repeated"], 0);
  EXPECT_EQ(seen["two_copies"], false);
  EXPECT_EQ(seen["monotonic_jumps"], 0);
  ASSERT_EQ(seen["gaps"].size(), 1u);
  EXPECT_EQ(seen["gaps"][0]["ms"], 4050);
  EXPECT_EQ(seen["gaps"][0]["monotonic_ms"], 50);
  EXPECT_EQ(seen["gaps"][0]["from"], 1);
  EXPECT_EQ(seen["gaps"][0]["to"], 2);
}

TEST_F(HistoryTest, CountsThatNeverComeAreLost) {
  Hello(1, 0);
  Count(1, 1);
  Count(1, 5);
  EXPECT_EQ(Seen()["lost"], 3);
}

TEST_F(HistoryTest, AProcessRestoredFromAnOlderStateRepeatsCounts) {
  Hello(1, 0);
  for (uint64_t i = 1; i <= 10; ++i) Count(1, i);
  Hello(2, 7);
  EXPECT_EQ(Seen()["repeated"], 3);
}

TEST_F(HistoryTest, ALineOnAnOldConnectionMeansTwoCopies) {
  Hello(1, 0);
  Count(1, 1);
  Hello(2, 1);
  Count(2, 2);
  EXPECT_EQ(Seen()["two_copies"], false);
  Count(1, 2);
  EXPECT_EQ(Seen()["two_copies"], true);
  EXPECT_EQ(Seen()["repeated"], 1);
}

TEST_F(HistoryTest, MemoryThatIsNotWhatItWasShowsInTheHash) {
  Hello(1, 0);
  counter::Line line = Line(1);
  line.hash ^= 1;
  history_.OnCount(1, line, {});
  EXPECT_EQ(Seen()["hash_mismatches"], 1);
}

TEST_F(HistoryTest, ALineThatWasHeldUpOnItsWayIsNoJumpOfTheClockBehindIt) {
  Hello(1, 0);
  Count(1, 1);
  counter::Line next = Line(2);
  next.monotonic_ms += 6000;  // frozen and thawed between the two, which then arrive together
  next.realtime_ms = Line(1).realtime_ms + 6000;
  history_.OnCount(1, next, {now_ms_, now_ms_});
  EXPECT_EQ(Seen()["monotonic_jumps"], 0);
}

TEST_F(HistoryTest, AMonotonicClockThatRunsBackOrAheadIsAJump) {
  Hello(1, 0);
  Count(1, 1);
  stopped_ms_ = 10000;
  Count(1, 2);
  EXPECT_EQ(Seen()["monotonic_jumps"], 1);
  stopped_ms_ = 0;
  Count(1, 3);
  EXPECT_EQ(Seen()["monotonic_jumps"], 2);
}

TEST_F(HistoryTest, ABrokenLoopbackConnectionStaysOnRecord) {
  Hello(1, 0);
  counter::Line line = Line(1);
  line.loopback_broken = 1;
  history_.OnCount(1, line, {});
  Count(1, 2);
  EXPECT_EQ(Seen()["loopback_broken"], true);
}

TEST_F(HistoryTest, AfterAResetCountersGoOnWithoutIntroduction) {
  Hello(1, 0);
  Count(1, 1);
  history_.Reset();
  EXPECT_TRUE(history_.Report()["nonces"].empty());
  Count(1, 2);
  EXPECT_EQ(Seen()["first"], 2);
  EXPECT_EQ(Seen()["lost"], 0);
  EXPECT_EQ(Seen()["mib"], kMib);
}

TEST(Memory, IsWhatTheWitnessExpectsRoundAfterRound) {
  counter::Memory memory(kNonce, kMib);
  for (uint64_t count = 1; count <= 4 * kMib; ++count) EXPECT_EQ(memory.Visit(count), counter::ExpectedHash(kNonce, kMib, count)) << count;
}

TEST(Memory, AMissedVisitShowsOneRoundLater) {
  counter::Memory memory(kNonce, kMib);
  for (uint64_t count : {1, 2, 4}) memory.Visit(count);  // 3 was lost
  EXPECT_EQ(memory.Visit(5), counter::ExpectedHash(kNonce, kMib, 5));
  EXPECT_NE(memory.Visit(6), counter::ExpectedHash(kNonce, kMib, 6));
}

TEST(Line, SurvivesItsOwnText) {
  counter::Line line{1, 2, 3, 4, 5, 6, 7, 8, 1, 0};
  const auto back = counter::Line::Parse(line.Text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->Text(), line.Text());
}

TEST(Line, RefusesWhatIsNotOne) {
  for (const char* text : {"", "COUNT", "COUNT 1 2 3", "COUNT 1 0 3 4 5 6 7 8 1 0", "COUNT 1 2 3 4 5 6 7 8 1 0 9", "HELLO 1 2 3"}) {
    EXPECT_FALSE(counter::Line::Parse(text)) << text;
  }
}

}  // namespace
}  // namespace witness
