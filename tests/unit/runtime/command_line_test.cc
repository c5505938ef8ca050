#include "runtime/command_line.h"

#include <gtest/gtest.h>

namespace holdfast::runtime {
namespace {

TEST(CommandLine, FindsTheVerbBehindGlobalFlagsInBothForms) {
  auto line = CommandLine::Parse({"--root", "/run/containerd/runc/k8s.io", "--log=/log.json", "--log-format", "json", "--systemd-cgroup",
                                  "--debug", "--rootless", "auto", "create", "--bundle", "/b", "--pid-file=/b/pid", "abc"});
  EXPECT_EQ(line.verb, "create");
  EXPECT_EQ(line.Id(), "abc");
  EXPECT_EQ(line.Global("root"), "/run/containerd/runc/k8s.io");
  EXPECT_EQ(line.Global("log"), "/log.json");
  EXPECT_EQ(line.Global("systemd-cgroup"), "");
  EXPECT_EQ(line.Global("rootless"), "auto");
  EXPECT_EQ(line.Value({"bundle", "b"}), "/b");
  EXPECT_EQ(line.Value({"pid-file"}), "/b/pid");
}

TEST(CommandLine, AContainerNamedLikeAVerbIsNotTheVerb) {
  auto line = CommandLine::Parse({"--root", "create", "kill", "--all", "start", "15"});
  EXPECT_EQ(line.verb, "kill");
  EXPECT_EQ(line.Id(), "start");
  EXPECT_EQ(line.arguments.back(), "15");
  EXPECT_TRUE(line.Value({"all", "a"}).has_value());
}

TEST(CommandLine, OneDashIsAsGoodAsTwo) {
  auto line = CommandLine::Parse({"-root", "/r", "create", "-b", "/b", "abc"});
  EXPECT_EQ(line.Global("root"), "/r");
  EXPECT_EQ(line.Value({"bundle", "b"}), "/b");
}

TEST(CommandLine, TheCommandOfExecKeepsItsOwnFlags) {
  auto line = CommandLine::Parse({"exec", "--process", "/p.json", "--detach", "-e", "A=1", "abc", "ls", "--all", "-l"});
  EXPECT_EQ(line.Id(), "abc");
  EXPECT_EQ(line.arguments, (std::vector<std::string>{"abc", "ls", "--all", "-l"}));
  EXPECT_EQ(line.Value({"process", "p"}), "/p.json");
}

TEST(CommandLine, FlagsMayFollowTheContainer) {
  auto line = CommandLine::Parse({"delete", "abc", "--force"});
  EXPECT_EQ(line.Id(), "abc");
  EXPECT_TRUE(line.Value({"force", "f"}).has_value());
}

TEST(CommandLine, NothingAndHalfOfAFlagAreNoVerb) {
  EXPECT_EQ(CommandLine::Parse({}).verb, "");
  EXPECT_EQ(CommandLine::Parse({"--version"}).verb, "");
  EXPECT_EQ(CommandLine::Parse({"--root"}).verb, "");
  EXPECT_EQ(CommandLine::Parse({"--root", "/r"}).Id(), "");
}

}  // namespace
}  // namespace holdfast::runtime
