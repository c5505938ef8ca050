#include "agent/boot.h"

#include <gtest/gtest.h>

#include "agent/freezer.h"
#include "base/file.h"
#include "fakes.h"

namespace holdfast::agent {
namespace {

// Field 22 of what proc(5) says; the name is as awkward as it can be.
void WriteProc(const TempDir& dir, const std::string& boot, const std::string& start) {
  ASSERT_TRUE(MakeDirs(dir.path() + "/sys/kernel/random").ok() && MakeDirs(dir.path() + "/1").ok());
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/sys/kernel/random/boot_id", boot + "\n").ok());
  ASSERT_TRUE(
      WriteFileAtomically(dir.path() + "/1/stat", "1 (a) b) S 0 1 1 0 -1 4194560 5 6 7 8 9 10 11 12 20 0 1 0 " + start + " 1000 20 30\n")
          .ok());
}

TEST(Boot, IsTheKernelsAndThatOfTheNodesFirstProcess) {
  TempDir dir;
  WriteProc(dir, "6f3c", "5731");
  EXPECT_EQ(BootId(dir.path()), "6f3c/5731");
  EXPECT_NE(BootId(), "");
}

TEST(Boot, IsAnotherOneWhenTheKernelOrTheFirstProcessIs) {
  EXPECT_FALSE(NodeRestarted("6f3c/5731", "6f3c/5731"));
  EXPECT_TRUE(NodeRestarted("6f3c/5731", "77aa/5731"));
  EXPECT_TRUE(NodeRestarted("6f3c/5731", "6f3c/990012")) << "a node in a container, started anew";
  EXPECT_FALSE(NodeRestarted("", "6f3c/5731"));
  EXPECT_FALSE(NodeRestarted("6f3c/5731", ""));
  EXPECT_FALSE(NodeRestarted("6f3c", "6f3c/5731")) << "written by a release that did not look at the first process";
  EXPECT_TRUE(NodeRestarted("6f3c", "77aa/5731"));
}

// A node whose configuration went with its power needs a restart of containerd before a pod that may not start can even be ended.
TEST(Boot, WhatThePodsOfBeforeMayNotDoKeepsNobodyFromAContainerd) {
  TempDir dir;
  Layout layout;
  layout.run = dir.path() + "/run";
  layout.state = dir.path() + "/state";
  ASSERT_TRUE(layout.Make().ok());
  ASSERT_TRUE(WriteFileAtomically(layout.PodFile("pod-1"), "{}").ok());
  std::string why;
  EXPECT_FALSE(NodeIsBusy(layout, &why)) << why;
  ASSERT_TRUE(WriteFileAtomically(layout.Containers() + "/c1.json", "{}").ok());
  EXPECT_TRUE(NodeIsBusy(layout, &why)) << "frozen, or soon";
}

}  // namespace
}  // namespace holdfast::agent
