#include "agent/journal.h"

#include <gmock/gmock.h>

#include "fakes.h"

namespace holdfast::agent {
namespace {

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    EXPECT_TRUE(MakeDirs(folder).ok());
    entry.uid = "ck-uid";
    entry.ns = "default";
    entry.name = "ck";
    entry.pod = "web-0";
    entry.pod_uid = "pod-uid";
  }
  TempDir dir;
  const std::string folder = dir.path() + "/journal";
  bool full = false;
  int writes = 0;
  Journal journal{folder, [this](const std::string& path, const std::string& text) {
                    ++writes;
                    return full ? Status(Code::kResourceExhausted, "no space left on device") : WriteFileDurably(path, text);
                  }};
  JournalEntry entry;
};

// Hole 10: a step can be written down where the disk takes nothing more.
TEST_F(JournalTest, TheRoomSetAsideTakesStepsUntilItIsUsedUpAndIsMadeAnew) {
  ASSERT_TRUE(journal.SetRoomAside().ok());
  const size_t room = ListDir(folder + "-room")->size();
  EXPECT_GE(room, 8u);
  ASSERT_TRUE(journal.Write(entry).ok());
  full = true;
  for (size_t i = 0; i < room; ++i) {
    entry.attempts = static_cast<int>(i);
    ASSERT_TRUE(journal.Write(entry).ok()) << i;
    ASSERT_EQ(journal.Read("ck-uid")->attempts, entry.attempts);
    EXPECT_TRUE(journal.writable());
  }
  entry.attempts = 99;
  const Status refused = journal.Write(entry);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_FALSE(journal.writable());
  EXPECT_EQ(journal.Read("ck-uid")->attempts, static_cast<int>(room) - 1) << "the last that was written, whole";
  full = false;
  ASSERT_TRUE(journal.Write(entry).ok());
  EXPECT_TRUE(journal.writable());
  EXPECT_EQ(ListDir(folder + "-room")->size(), room);
}

TEST_F(JournalTest, WhatIsNoFullDiskIsNotHelpedByRoom) {
  ASSERT_TRUE(journal.SetRoomAside().ok());
  entry.uid = "../ck";
  EXPECT_EQ(journal.Write(entry).code(), Code::kInvalidArgument);
  EXPECT_EQ(writes, 0);
  entry.uid = "ck-uid";
  full = true;
  entry.failure_message = std::string(100'000, 'x');
  EXPECT_EQ(journal.Write(entry).code(), Code::kResourceExhausted) << "longer than what is set aside";
}

// Hole 19.
TEST_F(JournalTest, KeepsADamagedEntryForPeople) {
  ASSERT_TRUE(WriteFileAtomically(folder + "/ck-uid.json", "{").ok());
  ASSERT_TRUE(journal.KeepDamaged("ck-uid").ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  EXPECT_EQ(*ReadFile(folder + "/ck-uid.damaged"), "{");
  EXPECT_TRUE(journal.Read("ck-uid").ok());
  EXPECT_FALSE(journal.KeepDamaged("none").ok());
  EXPECT_FALSE(journal.KeepDamaged("../x").ok());
}

}  // namespace
}  // namespace holdfast::agent
