#include "runtime/process_tree.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

char StateOf(pid_t pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat").value_or("");
  const size_t end = stat.rfind(") ");
  return end == std::string::npos ? '?' : stat[end + 2];
}

// A shell with two children, one of them a shell with a child of its own that counts in a file as fast as it can.
class ProcessTree : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/holdfast-tree-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    const std::string script = "sleep 100 & sh -c '(while :; do echo x >> " + dir_ + "/count; done) & wait' & wait";
    root_ = fork();
    if (root_ == 0) {
      setpgid(0, 0);
      execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      _exit(127);
    }
    setpgid(root_, root_);
    const MonoTime until = Clock::Real().Mono() + seconds(20);
    while ((Descendants(root_).size() < 3 || Size() == 0) && Clock::Real().Mono() < until) std::this_thread::sleep_for(milliseconds(5));
  }
  void TearDown() override {
    kill(-root_, SIGKILL);
    waitpid(root_, nullptr, 0);
    EXPECT_TRUE(RemoveAll(dir_).ok());
  }
  size_t Size() const { return ReadFile(dir_ + "/count").value_or("").size(); }
  std::string dir_;
  pid_t root_ = 0;
};

TEST_F(ProcessTree, KnowsGrandchildren) { EXPECT_EQ(Descendants(root_).size(), 3U); }

TEST_F(ProcessTree, NothingRunsAfterAStop) {
  ASSERT_TRUE(StopDescendants(root_, seconds(10)).ok());
  for (pid_t pid : Descendants(root_)) EXPECT_EQ(StateOf(pid), 'T');
  const size_t before = Size();
  // While one that nobody stopped, and that began later, writes a hundred lines.
  const std::string control = dir_ + "/control";
  const std::string script = "i=0; while [ $i -lt 100 ]; do echo x >> " + control + "; i=$((i+1)); done";
  ASSERT_EQ(system(script.c_str()), 0);
  ASSERT_EQ(ReadFile(control).value_or("").size(), 200u);
  EXPECT_EQ(Size(), before);
  EXPECT_NE(StateOf(root_), 'T') << "the process itself is not stopped";
}

TEST_F(ProcessTree, GoesOnWhenLetGo) {
  ASSERT_TRUE(StopDescendants(root_, seconds(10)).ok());
  const size_t before = Size();
  ContinueDescendants(root_);
  const MonoTime until = Clock::Real().Mono() + seconds(10);
  while (Size() == before && Clock::Real().Mono() < until) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GT(Size(), before);
}

TEST_F(ProcessTree, ADeadProcessHasNoDescendantsAndNeedsNoStop) {
  EXPECT_TRUE(Descendants(1 << 22).empty());
  EXPECT_TRUE(StopDescendants(1 << 22, seconds(1)).ok());
}

}  // namespace
}  // namespace holdfast::runtime
