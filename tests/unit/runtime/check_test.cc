#include "runtime/check.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/file.h"
#include "base/process.h"
#include "temp_dir.h"
#include "tests/places.h"

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Verdict = NodeCheck::Verdict;

class Check : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    const std::string path = dir.path() + "/" + name;
    EXPECT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }
  TempDir dir;
};

TEST_F(Check, TheFreezerOfEitherCgroupVersionIsFound) {
  EXPECT_EQ(CheckFreezer(dir.path()).verdict, Verdict::kFail) << "nothing is mounted";
  File("cgroup.controllers", "memory\n");
  EXPECT_EQ(CheckFreezer(dir.path()).verdict, Verdict::kFail) << "cgroup v2 of a kernel before 5.2";
  File("system.slice/cgroup.freeze", "0\n");
  EXPECT_EQ(CheckFreezer(dir.path()).seen, "cgroup v2");
  EXPECT_TRUE(MakeDirs(dir.path() + "/freezer").ok());
  EXPECT_EQ(CheckFreezer(dir.path()).seen, "cgroup v1");
}

TEST_F(Check, TheProcessorIsNamedByTheLevelThatItReaches) {
  const std::string v2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 ", v3 = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave ";
  auto level = [&](const std::string& flags) {
    return CheckProcessor(File("cpuinfo", "processor\t: 0\nmodel name\t: A\nflags\t\t: " + flags + "\n")).value;
  };
  EXPECT_EQ(level("fpu sse sse2"), "x86-64-v1");
  EXPECT_EQ(level(v2), "x86-64-v2");
  EXPECT_EQ(level(v2 + v3), "x86-64-v3");
  EXPECT_EQ(level(v3), "x86-64-v1") << "a level has all of those below";
  EXPECT_EQ(level(v2 + v3 + "avx512f avx512bw avx512cd avx512dq avx512vl"), "x86-64-v4");
  EXPECT_THAT(CheckProcessor(File("arm", "Features\t: fp asimd\n")).seen, StartsWith("arm64, 2 features"));
  EXPECT_EQ(CheckProcessor(File("none", "\n:\n: \nflags\n")).verdict, Verdict::kWarn);
  EXPECT_EQ(CheckProcessor("/nowhere").verdict, Verdict::kWarn);
}

TEST_F(Check, WhatProgramsMayUseOfAProcessorIsNamedInOrder) {
  auto features = [&](const std::string& text) { return CheckProcessor(File("cpuinfo", text)).features; };
  EXPECT_EQ(features("flags\t\t: fpu vmx sse2 avx512f md_clear avx amx_tile constant_tsc\n"), "amx_tile avx avx512f sse2")
      << "what is the kernel's own matter differs between nodes that are alike to programs";
  EXPECT_EQ(features("Features\t: fp sve asimd\n"), "asimd fp sve");
  EXPECT_EQ(features("processor\t: 0\n"), "");
}

TEST_F(Check, AFullDiskIsAWarningAndAReadOnlyOneAFailure) {
  ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  const std::string meminfo = File("meminfo", "MemTotal:        1048576 kB\n");
  ASSERT_TRUE(MakeDirs(dir.path() + "/disk").ok());
  ASSERT_EQ(mount("tmpfs", (dir.path() + "/disk").c_str(), "tmpfs", 0, "size=300m"), 0);
  EXPECT_EQ(CheckSpace(dir.path() + "/disk/to/come", meminfo).verdict, Verdict::kOk);
  ASSERT_EQ(mount("tmpfs", (dir.path() + "/disk").c_str(), "tmpfs", MS_REMOUNT, "size=200m"), 0);
  NodeCheck check = CheckSpace(dir.path() + "/disk/to/come", meminfo);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.seen, "0.2 GiB of 0.2 GiB free in " + dir.path() + "/disk/to/come; the node has 1.0 GiB of memory");
  ASSERT_EQ(mount("tmpfs", (dir.path() + "/disk").c_str(), "tmpfs", MS_REMOUNT, "size=300m,nr_inodes=100"), 0);
  EXPECT_THAT(CheckSpace(dir.path() + "/disk", meminfo).seen, HasSubstr("more files"));
  ASSERT_EQ(mount("tmpfs", (dir.path() + "/disk").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=300m"), 0);
  EXPECT_EQ(CheckSpace(dir.path() + "/disk", meminfo).verdict, Verdict::kFail);
  EXPECT_EQ(umount(((dir.path() + "/disk").c_str())), 0);
}

// The kernel that runs the tests has both: it is the one that the other tests dump and restore on.
TEST_F(Check, ResettingAndHoldingBackAreTriedForReal) {
  const std::vector<NodeCheck> checks = CheckNetwork();
  ASSERT_EQ(checks.size(), 2u);
  for (const NodeCheck& check : checks) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ": " << check.seen;
}

TEST_F(Check, TheProgramPrintsAllOfThemAsOneArray) {
  const std::string runc = File("runc", "#!/bin/sh\necho '{\"linux\":{\"namespaces\":[\"time\"]}}'\n");
  ASSERT_EQ(chmod(runc.c_str(), 0755), 0);
  ProcessOptions options;
  options.env = {"HOLDFAST_RUNC_REAL=" + runc, "HOLDFAST_RUN_DIR=" + dir.path() + "/run", "HOLDFAST_INSTALL_DIR=" + dir.path()};
  Result<ProcessResult> result = RunProcess({places::Program("holdfast-runc"), "check", "--state", dir.path()}, options);
  ASSERT_TRUE(result.ok() && result->exit_code == 0) << result->err;
  Result<Json> json = ParseJson(result->out);
  ASSERT_TRUE(json.ok() && json->is_array()) << result->out;
  std::vector<std::string> names;
  for (const Json& one : *json) {
    Result<NodeCheck> check = NodeCheck::FromJson(one);
    ASSERT_TRUE(check.ok()) << check.status().message();
    names.push_back(check->name);
    EXPECT_TRUE(check->name != "clocks" || check->verdict == Verdict::kOk) << check->seen;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"freezer", "clocks", "processor", "space", "kernel-sockets", "kernel-nftables"}));
}

}  // namespace
}  // namespace holdfast::runtime
