#include "agent/disk_room.h"

#include <gmock/gmock.h>

#include "fakes.h"

namespace holdfast::agent {
namespace {

constexpr uint64_t kMiB = 1 << 20, kGiB = uint64_t{1} << 30;

// Hole 10.
TEST(DiskRoom, LetsInWhatFitsBesideWhatIsLeftAloneAndWhatIsUnderWay) {
  DiskSpace disk;
  DiskRoom room([&](const std::string&) -> Result<DiskSpace> { return disk; });
  struct Case {
    const char* what;
    uint64_t size, free, others, bytes;
    Code code;
  };
  const Case kCases[] = {
      {"fits", 10 * kGiB, 2 * kGiB, 0, kGiB, Code::kOk},
      {"a twentieth is left", 10 * kGiB, 2 * kGiB, 0, 1537 * kMiB, Code::kResourceExhausted},
      {"of a large disk a gibibyte", 1000 * kGiB, 3 * kGiB, 0, 2 * kGiB, Code::kOk},
      {"and no more than that", 1000 * kGiB, 3 * kGiB, 0, 2 * kGiB + 1, Code::kResourceExhausted},
      {"not beside the others now", 10 * kGiB, 2 * kGiB, kGiB, kGiB, Code::kUnavailable},
      {"not even without them", 10 * kGiB, 2 * kGiB, kGiB, 2 * kGiB, Code::kResourceExhausted},
      {"nothing, on a full disk", 10 * kGiB, 0, 0, 0, Code::kResourceExhausted},
      {"no overflow", 10 * kGiB, 2 * kGiB, 0, ~uint64_t{0}, Code::kResourceExhausted},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    disk = {.size_bytes = c.size, .free_bytes = c.free};
    room.Hold("/nowhere/others", c.others);
    const Status answer = room.Reserve("/nowhere/mine", c.bytes);
    EXPECT_EQ(answer.code(), c.code) << answer.message();
    EXPECT_TRUE(answer.ok() || answer.message().find("/var/lib/holdfast: make room there") != std::string::npos);
    room.Release("/nowhere/mine");
    room.Release("/nowhere/others");
  }
}

// Hole 10: what dumps take of the disk in all has a bound of its own; fetched checkpoints do not count.
TEST(DiskRoom, DumpsHaveABoundOfTheirOwn) {
  TempDir dir;
  const std::string landing = dir.path() + "/landing";
  ASSERT_TRUE(MakeDirs(landing + "/stored").ok());
  ASSERT_TRUE(WriteFileAtomically(landing + "/stored/pages-1.img", std::string(4 * kMiB, 'x')).ok());
  const DiskSpace disk{.size_bytes = 100 * kMiB, .free_bytes = 90 * kMiB};
  struct Case {
    const char* what;
    uint64_t limit, others, bytes;
    Code code;
  };
  const Case kCases[] = {
      {"fits", 20 * kMiB, 0, 15 * kMiB, Code::kOk},
      {"not beside what has landed", 20 * kMiB, 0, 17 * kMiB, Code::kUnavailable},
      {"nor beside what will", 20 * kMiB, 10 * kMiB, 7 * kMiB, Code::kUnavailable},
      {"never", 20 * kMiB, 0, 21 * kMiB, Code::kResourceExhausted},
      {"three quarters of the disk", 0, 0, 70 * kMiB, Code::kOk},
      {"and no more", 0, 0, 76 * kMiB, Code::kResourceExhausted},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    DiskRoom room([&](const std::string&) -> Result<DiskSpace> { return disk; }, DiskRoom::Landing{landing, c.limit});
    room.Hold(landing + "/others", c.others);
    const Status answer = room.Reserve(landing + "/mine", c.bytes);
    EXPECT_EQ(answer.code(), c.code) << answer.message();
    room.Release(landing + "/others");
    room.Release(landing + "/mine");
    EXPECT_TRUE(room.Reserve(dir.path() + "/restore", 80 * kMiB).ok()) << "a restore is not bounded by it";
  }
}

TEST(DiskRoom, WhatAFolderHasTakenAlreadyIsNotAskedForAgain) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir.path() + "/mine").ok());
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/mine/pages-1.img", std::string(4 * kMiB, 'x')).ok());
  DiskRoom room([](const std::string&) -> Result<DiskSpace> { return DiskSpace{.size_bytes = 20 * kMiB, .free_bytes = 5 * kMiB}; });
  EXPECT_TRUE(room.Reserve(dir.path() + "/mine", 8 * kMiB).ok());
  EXPECT_FALSE(room.Reserve(dir.path() + "/mine", 9 * kMiB).ok());
  EXPECT_FALSE(room.Reserve(dir.path() + "/another", 8 * kMiB).ok());
}

TEST(DiskRoom, ADiskThatCannotBeLookedAtIsNoReason) {
  DiskRoom room([](const std::string&) -> Result<DiskSpace> { return Status(Code::kInternal, "no such disk"); });
  EXPECT_TRUE(room.Reserve("/nowhere/mine", kGiB).ok());
  EXPECT_TRUE(LookAtDisk("/").ok());
  EXPECT_FALSE(LookAtDisk("/nowhere").ok());
}

}  // namespace
}  // namespace holdfast::agent
