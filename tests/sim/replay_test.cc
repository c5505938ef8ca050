// What a real cluster was seen to do, the simulated one does too (docs/simulation.md, "A real cluster beside it").
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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

TEST(Recording, OrdersAreMissedWhereTheyDoNotHold) {
  const Lines recorded = ReadRecording(kRecording);
  auto without = [&](auto which) {
    Lines lines = recorded;
    std::erase_if(lines, which);
    return Joined(BrokenOrders(lines));
  };
  auto kind = [](const Json& line, const char* name) { return GetString(line, {"kind"}) == name; };
  auto claim = [](const Json& line) { return GetString(line, {"claim"}); };
  EXPECT_NE(without([&](const Json& line) { return GetBool(line, {"deleting"}); }).find("once its predecessor ends"), std::string::npos);
  EXPECT_NE(without([&](const Json& line) { return !GetArray(line, {"gates"}).empty(); }).find("its gate before it has a node"),
            std::string::npos);
  const std::string late = without([&](const Json& line) { return kind(line, "Checkpoint") && claim(line).empty(); });
  EXPECT_NE(late.find("Ready before its pod is deleted"), std::string::npos);
  EXPECT_NE(without([&](const Json& line) {
              return !claim(line).empty() && GetArray(line, {"restores"}).empty();
            }).find("the claim comes before the gate is removed"),
            std::string::npos);
  EXPECT_NE(without([&](const Json& line) {
              const Json& restores = GetArray(line, {"restores"});
              return !restores.empty() && GetString(restores[0], {"outcome"}) == "Started";
            }).find("Started before it is Restored"),
            std::string::npos);
}

TEST(Recording, WhatIsNotComparedStandsInTheDocs) {
  std::ifstream in(places::kSources + std::string("/docs/simulation.md"));
  std::stringstream docs;
  docs << in.rdbuf();
  for (const Simpler& one : kSimpler)
    EXPECT_NE(docs.str().find(std::string("| ") + one.what + " | " + one.why + " |"), std::string::npos) << one.what;
}

}  // namespace
}  // namespace holdfast::sim
