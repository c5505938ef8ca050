// Who may land in memory: what fits, counting what others under way have yet to write, and leaving the node's programs theirs.
#include "agent/landing_memory.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

class LandingMemoryTest : public testing::Test {
 protected:
  bool Reserve(const std::string& uid, uint64_t bytes) { return memory.Reserve(uid, bytes, &reserved); }

  TempDir dir;
  const Layout layout{.run = dir.path()};
  MemoryRoom room = {.size_bytes = 4 * kGiB, .free_bytes = 4 * kGiB, .node_bytes = 32 * kGiB, .available_bytes = 16 * kGiB};
  uint64_t reserved = 0;
  LandingMemory memory{4 * kGiB, layout, [this]() -> Result<MemoryRoom> { return room; }};
};

TEST_F(LandingMemoryTest, WhatFitsWithSomeHeadRoomIsLetIn) {
  EXPECT_TRUE(Reserve("one", kGiB));
  EXPECT_EQ(reserved, kGiB + kGiB / 8);
  memory.Release("one");
  EXPECT_TRUE(Reserve("small", kMiB));
  EXPECT_EQ(reserved, 33 * kMiB) << "a small pod may well grow by more than an eighth until it is frozen";
  memory.Release("small");
  EXPECT_TRUE(Reserve("just", 3 * kGiB));
  memory.Release("just");
  EXPECT_FALSE(Reserve("too long", 3 * kGiB + 600 * kMiB));
  EXPECT_FALSE(Reserve("hostile", ~uint64_t{0}));
}

TEST_F(LandingMemoryTest, DumpsUnderWayShareTheBudgetUntilTheyAreOver) {
  EXPECT_TRUE(Reserve("one", 2 * kGiB));
  EXPECT_FALSE(Reserve("two", 2 * kGiB));
  EXPECT_TRUE(Reserve("two", kGiB));
  EXPECT_TRUE(Reserve("one", 2 * kGiB)) << "it is chosen again, not twice";
  memory.Release("one");
  memory.Release("one");
  EXPECT_TRUE(Reserve("three", 2 * kGiB));
  LandingMemory next(4 * kGiB, layout, [this]() -> Result<MemoryRoom> { return room; });
  next.Hold("three", reserved);
  EXPECT_FALSE(next.Reserve("four", 2 * kGiB, &reserved)) << "the next agent knows of it";
}

TEST_F(LandingMemoryTest, WhatADumpHasWrittenIsNotCountedTwice) {
  ASSERT_TRUE(Reserve("one", 64 * kMiB));
  ASSERT_TRUE(MakeDirs(layout.Landing("one", Place::kMemory) + "/main/images").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.Landing("one", Place::kMemory) + "/main/images/pages-1.img", std::string(64 * kMiB, 'x')).ok());
  room.free_bytes = 100 * kMiB;  // 32 MiB of its head room are still set aside
  EXPECT_TRUE(Reserve("two", 32 * kMiB));
  memory.Release("two");
  EXPECT_FALSE(Reserve("two", 40 * kMiB));
}

TEST_F(LandingMemoryTest, TheNodesProgramsKeepATenthAndAGibibyteAtLeast) {
  EXPECT_EQ(LeftAlone(4 * kGiB), kGiB);
  EXPECT_EQ(LeftAlone(100 * kGiB), 10 * kGiB);
  room.available_bytes = LeftAlone(room.node_bytes) + kGiB;
  EXPECT_FALSE(Reserve("one", kGiB));
  EXPECT_TRUE(Reserve("one", 800 * kMiB));
  EXPECT_FALSE(Reserve("two", 800 * kMiB)) << "the first has not been written yet";
}

TEST_F(LandingMemoryTest, LittleRoomOfEitherKindAsksForWhatIsStored) {
  EXPECT_TRUE(memory.Roomy());
  room.free_bytes = room.size_bytes / 10;
  EXPECT_FALSE(memory.Roomy());
  room.free_bytes = room.size_bytes;
  room.available_bytes = kGiB;
  EXPECT_FALSE(memory.Roomy());
}

TEST_F(LandingMemoryTest, WithoutABudgetOrAMountAllLandsOnDisk) {
  LandingMemory none(0, layout, [this]() -> Result<MemoryRoom> { return room; });
  EXPECT_FALSE(none.Reserve("one", 1, &reserved));
  LandingMemory unmounted(kGiB, layout);  // looks at a folder that is none of its own
  ASSERT_TRUE(MakeDirs(layout.Memory()).ok());
  EXPECT_FALSE(unmounted.Reserve("one", 1, &reserved));
  EXPECT_FALSE(unmounted.Roomy());
}

TEST_F(LandingMemoryTest, DoctorSaysWhereDumpsLand) {
  using Verdict = runtime::NodeCheck::Verdict;
  EXPECT_EQ(CheckLanding("/run/m", Status(Code::kNotFound, "nothing")).verdict, Verdict::kOk);
  EXPECT_THAT(CheckLanding("/run/m", room).seen, HasSubstr("4.0 of 4.0 GiB for dumps free in /run/m; 16.0 GiB"));
  const runtime::NodeCheck other = CheckLanding("/run/m", Status(Code::kFailedPrecondition, "something else"));
  EXPECT_EQ(other.verdict, Verdict::kWarn);
  EXPECT_THAT(other.fix, HasSubstr("/run/m"));
}

// Mounts for real, in a mount namespace of its own: needs root.
TEST(LandingMemoryMount, IsMadeOnceResizedAndTakenAwayOnlyWhenEmpty) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::jthread([] {
    ASSERT_EQ(unshare(CLONE_FS | CLONE_NEWNS), 0);
    ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    TempDir dir;
    Layout layout;
    layout.run = dir.path();
    const int here = static_cast<int>(gettid());
    auto size = [&] { return LookAtMemory(layout.Memory()).ok() ? LookAtMemory(layout.Memory())->size_bytes : 0; };
    const std::string dump = layout.Landing("one", Place::kMemory);
    {
      LandingMemory first(8 * kMiB, layout);
      ASSERT_TRUE(first.Open(here).ok());
      EXPECT_EQ(size(), 8 * kMiB);
      struct stat info;
      ASSERT_EQ(stat(layout.Memory().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, 0700U);
      ASSERT_TRUE(MakeDirs(dump).ok());
      ASSERT_TRUE(WriteFileAtomically(dump + "/pages-1.img", std::string(4 * kMiB, 'x')).ok());
      first.Close();
    }
    LandingMemory next(16 * kMiB, layout);
    ASSERT_TRUE(next.Open(here).ok());
    EXPECT_TRUE(Exists(dump + "/pages-1.img")) << "nothing is mounted over it";
    EXPECT_EQ(size(), 16 * kMiB);
    LandingMemory smaller(kMiB, layout);
    ASSERT_TRUE(smaller.Open(here).ok());
    EXPECT_EQ(size(), 16 * kMiB) << "it holds more";
    LandingMemory none(0, layout);
    EXPECT_EQ(none.Open(here).code(), Code::kFailedPrecondition);
    EXPECT_TRUE(Exists(dump + "/pages-1.img"));
    ASSERT_TRUE(RemoveAll(dump).ok());
    EXPECT_TRUE(none.Open(here).ok());
    EXPECT_EQ(size(), 0U);
    EXPECT_FALSE(Exists(layout.Memory()));
  }).join();
}

}  // namespace
}  // namespace holdfast::agent
