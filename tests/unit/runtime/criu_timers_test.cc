#include "runtime/criu_timers.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/protobuf.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr uint64_t kNever = 30ULL * 365 * 24 * 3600;

std::string Word(uint32_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof word); }
// Fields 1 to N.
std::string Numbers(std::initializer_list<uint64_t> values) {
  std::string out;
  uint32_t number = 0;
  for (uint64_t value : values) protobuf::WriteNumber(&out, ++number, value);
  return out;
}
std::string Bytes(uint32_t number, const std::string& content) {
  std::string out;
  protobuf::WriteBytes(&out, number, content);
  return out;
}

class CriuTimersTest : public testing::Test {
 protected:
  void Write(const std::string& name, uint32_t magic, const std::vector<std::string>& entries) {
    std::string image = Word(0x54564319) + Word(magic);
    for (const std::string& entry : entries) image += Word(static_cast<uint32_t>(entry.size())) + entry;
    ASSERT_TRUE(WriteFileAtomically(dir / name, image).ok());
  }
  void WriteFiles(const std::vector<std::string>& timers) {
    std::vector<std::string> entries;
    for (const std::string& timer : timers) entries.push_back(Numbers({17, 5}) + Bytes(12, timer) + Bytes(99, "unknown"));
    Write("files.img", 0x56303138, entries);
  }
  void WriteCore(const std::string& name, const std::string& real, const std::string& prof) {
    const std::string timers = Bytes(1, real) + Bytes(2, Numbers({0, 0, 0, 0})) + Bytes(3, prof) + Bytes(4, "a POSIX timer");
    Write(name, 0x55053847, {Numbers({1}) + Bytes(3, Numbers({1, 2}) + Bytes(7, timers)) + Bytes(5, "a thread")});
  }
  std::string Image(const std::string& name) { return *ReadFile(dir / name); }
  TempDir dir;
};

// id, flags, owner, clock, ticks, flags of settime; seconds and nanoseconds left and of the interval
std::string Timerfd(uint64_t ticks, uint64_t flags, uint64_t sec, uint64_t nsec, uint64_t isec, uint64_t insec) {
  return Numbers({5, 0, 7, 1, ticks, flags, sec, nsec, isec, insec}) + Bytes(99, "unknown");
}

TEST_F(CriuTimersTest, APeriodicTimerfdThatExpiredInTheDumpExpiresAtOnce) {
  WriteFiles({Timerfd(3, 0, 0, 0, 0, 50000000)});
  ASSERT_TRUE(MendTimers(dir.path()).ok());
  const std::string mended = Image("files.img");
  WriteFiles({Timerfd(3, 0, 0, 1, 0, 50000000)});
  EXPECT_EQ(mended, Image("files.img"));
}

TEST_F(CriuTimersTest, AnAbsoluteTimerfdThatHasFiredDoesNotFireAgain) {
  WriteFiles({Timerfd(1, 3, 0, 0, 0, 0)});
  ASSERT_TRUE(MendTimers(dir.path()).ok());
  const std::string mended = Image("files.img");
  WriteFiles({Timerfd(1, 2, 0, 0, 0, 0)});
  EXPECT_EQ(mended, Image("files.img"));
}

TEST_F(CriuTimersTest, AnAlarmHasAnIntervalSoThatCriuSetsIt) {
  WriteFiles({});
  WriteCore("core-7.img", Numbers({0, 0, 29, 500000}), Numbers({0, 0, 0, 1}));
  ASSERT_TRUE(MendTimers(dir.path()).ok());
  const std::string mended = Image("core-7.img");
  WriteCore("core-7.img", Numbers({kNever, 0, 29, 500000}), Numbers({kNever, 0, 0, 1}));
  EXPECT_EQ(mended, Image("core-7.img"));
}

TEST_F(CriuTimersTest, WhatCriuSetsAgainStaysAsItIs) {
  WriteFiles({Timerfd(0, 0, 3599, 1, 0, 0), Timerfd(0, 1, 3599, 1, 5, 0), Timerfd(0, 0, 0, 0, 0, 0)});
  WriteCore("core-7.img", Numbers({0, 50000, 0, 0}), Numbers({1, 0, 0, 5}));
  Write("core-8.img", 0x55053847, {Numbers({1}) + Bytes(5, "a thread")});
  const std::string files = Image("files.img"), core = Image("core-7.img"), thread = Image("core-8.img");
  ASSERT_TRUE(MendTimers(dir.path()).ok());
  EXPECT_EQ(Image("files.img"), files);
  EXPECT_EQ(Image("core-7.img"), core);
  EXPECT_EQ(Image("core-8.img"), thread);
}

TEST_F(CriuTimersTest, DamagedImagesAreToldOf) {
  WriteFiles({Timerfd(3, 0, 0, 0, 0, 50000000)});
  WriteCore("core-7.img", Numbers({0, 0, 29, 0}), Numbers({0, 0, 0, 0}));
  for (const char* name : {"files.img", "core-7.img"}) {
    const std::string whole = Image(name);
    ASSERT_TRUE(WriteFileAtomically(dir / name, whole.substr(0, whole.size() - 1)).ok());
    EXPECT_EQ(MendTimers(dir.path()).code(), Code::kDataLoss) << name;
    ASSERT_TRUE(WriteFileAtomically(dir / name, whole).ok());
  }
}

}  // namespace
}  // namespace holdfast::runtime
