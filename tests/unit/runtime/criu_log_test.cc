// What a restore.log of CRIU 4.2.1 tells about how far it came.
#include "runtime/criu_log.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr char kRestored[] =
    "(00.036415) Running post-setup-namespaces scripts\n"
    "(00.229393) Running post-restore scripts\n"
    "(00.230901) Running network-unlock scripts\n";

TEST(CriuLog, ARestoreThatWasCutOffBeforeItLetItsProcessesGoHasRunNothing) {
  TempDir dir;
  const std::string log = dir.path() + "/restore.log";
  EXPECT_FALSE(MayHaveRun(log));  // there is none
  ASSERT_TRUE(WriteFileAtomically(log, kRestored).ok());
  EXPECT_FALSE(MayHaveRun(log));
}

TEST(CriuLog, ARestoreThatCameToTheResumeMayHaveRunItsProcesses) {
  TempDir dir;
  const std::string log = dir.path() + "/restore.log";
  ASSERT_TRUE(WriteFileAtomically(log, std::string(1 << 20, '\n') + kRestored + "(00.255312) Running pre-resume scripts\n").ok());
  EXPECT_TRUE(MayHaveRun(log));
}

}  // namespace
}  // namespace holdfast::runtime
