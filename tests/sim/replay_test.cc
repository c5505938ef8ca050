// What a real cluster was seen to do, the simulated one does too (docs/simulation.md, "A real cluster beside it").
#include <gtest/gtest.h>

#include "tests/places.h"
#include "tests/sim/replay.h"

namespace holdfast::sim {
namespace {

const std::string kRecording = places::kSources + std::string("/tests/sim/recorded/drains.jsonl");

std::string Joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

TEST(Recording, IsReplayedWithoutADifferenceThatMatters) {
  const Lines recorded = ReadRecording(kRecording);
  ASSERT_GT(recorded.size(), 200U);
  EXPECT_EQ(Joined(BrokenOrders(recorded)), "");
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Place place;
    const Replayed replayed = Replay(recorded, seed, place.folder());
    EXPECT_EQ(Joined(replayed.missing), "") << "seed " << seed;
    EXPECT_EQ(Joined(Differences(recorded, replayed.lines)), "") << "seed " << seed;
    EXPECT_EQ(Joined(BrokenOrders(replayed.lines)), "") << "seed " << seed;
    EXPECT_EQ(Joined(replayed.verdict.broken), "") << "seed " << seed;
  }
}

// The comparison sees what it is for.
TEST(Recording, DiffersWhereAnObjectDoes) {
  const Lines recorded = ReadRecording(kRecording);
  for (const auto& [kind, key, value] : std::vector<std::tuple<const char*, const char*, Json>>{{"Pod", "node", "node-3"},
                                                                                                {"Pod", "gates", Json::array()},
                                                                                                {"Checkpoint", "claim", "another pod"},
                                                                                                {"Checkpoint", "restores", Json::array()},
                                                                                                {"Checkpoint", "phase", "Failed"},
                                                                                                {"Event", "reason", "Restored"},
                                                                                                {"Node", "cordoned", false}}) {
    Lines changed = recorded;
    for (Json& line : changed) {
      if (GetString(line, {"kind"}) == kind) line[key] = value;
    }
    EXPECT_NE(Differences(recorded, changed).size(), 0U) << kind << " " << key;
  }
  EXPECT_EQ(Joined(Differences(recorded, recorded)), "");
}

}  // namespace
}  // namespace holdfast::sim
