#include "base/fault_point.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace holdfast
