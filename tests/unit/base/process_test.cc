#include "base/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

TEST(Process, GivesOutputAndExitCode) {
  auto result = RunProcess({"sh", "-c", "echo out; echo err >&2; exit 3"}, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
}

TEST(Process, SaysWhenTheProgramIsMissing) {
  auto result = RunProcess({"/no/such/program"}, {});
  EXPECT_EQ(result.status().code(), Code::kNotFound);
}

TEST(Process, KillsTheWholeGroupAtTheDeadline) {
  auto result = RunProcess({"sh", "-c", "sleep 100 & sleep 100"}, {.timeout = 100ms});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->timed_out);
  EXPECT_EQ(result->exit_code, 128 + SIGKILL);
}

TEST(Process, BoundsWhatAProgramCanSay) {
  auto result = RunProcess({"sh", "-c", "head -c 300000 /dev/zero"}, {.max_output_bytes = 1000});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out.size(), 1000U);
}

TEST(Process, DoesNotWaitForAGrandchildThatKeepsThePipeOpen) {
  auto result = RunProcess({"sh", "-c", "sleep 5 & echo done"}, {.timeout = 4s});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->timed_out);
  EXPECT_EQ(result->out, "done\n");
}

TEST(Process, AddsAndReplacesEnvironment) {
  auto result = RunProcess({"sh", "-c", "echo $HOLDFAST_X $HOME"}, {.env = {"HOLDFAST_X=1", "HOME=/elsewhere"}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "1 /elsewhere\n");
}

}  // namespace
}  // namespace holdfast
