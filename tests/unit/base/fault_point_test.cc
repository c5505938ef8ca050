#include "base/fault_point.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/file.h"

namespace holdfast {
namespace {

TEST(FaultPoint, KillsOnceWhereItIsToldTo) {
  char dir[] = "/tmp/holdfast-fault-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  ASSERT_TRUE(WriteFileAtomically(std::string(dir) + "/room.point", "kill").ok());
  setenv("HOLDFAST_FAULT_DIR", dir, 1);
  ReachFaultPoint("room.other");
  EXPECT_EXIT(ReachFaultPoint("room.point"), ::testing::KilledBySignal(SIGKILL), "");
  ReachFaultPoint("room.point");  // consumed
  unsetenv("HOLDFAST_FAULT_DIR");
  EXPECT_TRUE(RemoveAll(dir).ok());
}

TEST(FaultPoint, WaitsUntilItIsToldToGoOn) {
  char dir[] = "/tmp/holdfast-fault-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string order = std::string(dir) + "/room.point";
  ASSERT_TRUE(WriteFileAtomically(order, "wait").ok());
  setenv("HOLDFAST_FAULT_DIR", dir, 1);
  std::atomic<bool> passed = false;
  std::jthread reaching([&] {
    ReachFaultPoint("room.point");
    passed = true;
  });
  while (!Exists(order + ".hit")) std::this_thread::yield();
  EXPECT_FALSE(Exists(order));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // long enough for one that does not wait
  EXPECT_FALSE(passed);
  ASSERT_EQ(unlink((order + ".hit").c_str()), 0);
  reaching.join();
  EXPECT_TRUE(passed);
  unsetenv("HOLDFAST_FAULT_DIR");
  EXPECT_TRUE(RemoveAll(dir).ok());
}

}  // namespace
}  // namespace holdfast
