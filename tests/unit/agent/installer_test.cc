// containerd's configuration in the shapes that nodes have it, and when containerd is restarted.
#include "agent/installer/installer.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "agent/installer/real_host.h"
#include "agent/node_label.h"
#include "fake_host.h"
#include "tests/pump.h"

namespace holdfast::agent {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Debian's package.
constexpr char kDebian[] = R"(version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
)";

TEST(ContainerdConfig, AConfigWithoutImportsGetsOneLineAndIsOtherwiseUntouched) {
  Result<ContainerdPlan> plan = PlanContainerdConfig(kDebian, kDump, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  std::string expected = kDebian;
  expected.insert(expected.find('\n') + 1, "imports = [\"/etc/containerd/conf.d/holdfast*.toml\"]\n");
  EXPECT_EQ(*plan->config, expected);
  EXPECT_THAT(plan->drop_in, HasSubstr("version = 2\n")) << "2.1.9 does not migrate a drop-in that is older than config.toml";
  EXPECT_THAT(plan->drop_in, HasSubstr("io.containerd.grpc.v1.cri"));
  EXPECT_THAT(plan->drop_in, HasSubstr("SystemdCgroup = true")) << "as the node's default runtime has it";
  Result<ContainerdPlan> again = PlanContainerdConfig(plan->config, kDump, 2);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->config.has_value());
}

TEST(ContainerdConfig, ImportsThatTakeTheDropInAreLeftAlone) {
  for (const char* imports : {"[\"/etc/containerd/conf.d/*.toml\"]", "[ \"/x.toml\", \"conf.d/*.toml\" ]",
                              "['/etc/containerd/conf.d/holdfast.toml']", "[\n  # ours\n  \"/etc/containerd/conf.d/*.toml\",\n]"}) {
    Result<ContainerdPlan> plan = PlanContainerdConfig("version = 3\nimports = " + std::string(imports) + "\n", kDump, 2);
    ASSERT_TRUE(plan.ok()) << imports;
    EXPECT_FALSE(plan->config.has_value()) << imports;
    EXPECT_THAT(plan->drop_in, HasSubstr("version = 3\n"));
    EXPECT_THAT(plan->drop_in, HasSubstr("io.containerd.cri.v1.runtime"));
  }
}

TEST(ContainerdConfig, OtherImportsAreExtended) {
  const std::pair<const char*, const char*> cases[] = {
      {"imports = []", "imports = [\"/etc/containerd/conf.d/holdfast*.toml\"]"},
      {"imports = ['/etc/containerd/runtime_*.toml', './debug.toml']",
       "imports = [\"/etc/containerd/conf.d/holdfast*.toml\", '/etc/containerd/runtime_*.toml', './debug.toml']"},
      {"imports = [ # größer\n  \"/a.toml\",\n]", "imports = [\"/etc/containerd/conf.d/holdfast*.toml\",  # größer\n  \"/a.toml\",\n]"}};
  for (const auto& [before, after] : cases) {
    const std::string head = "# ä config\nversion = 3 # ü\n", tail = "\n[debug]\n  level = \"info\"\n";
    Result<ContainerdPlan> plan = PlanContainerdConfig(head + before + tail, kDump, 2);
    ASSERT_TRUE(plan.ok()) << before << plan.status().message();
    EXPECT_EQ(*plan->config, head + after + tail);
  }
}

TEST(ContainerdConfig, NoConfigMeansOneWithTheDefaults) {
  Result<ContainerdPlan> plan = PlanContainerdConfig(std::nullopt, "", 2);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(*plan->config, HasSubstr("version = 3\nimports"));
  plan = PlanContainerdConfig(std::nullopt, "", 1);
  EXPECT_THAT(*plan->config, HasSubstr("version = 2\nimports"));
}

TEST(ContainerdConfig, WhatIsNotUnderstoodIsLeftAloneWithTheReason) {
  for (const char* text :
       {"", "[plugins.cri]\n", "version = 1\n", "version = 9\n", "version = \n", "version = 3\nimports = 7\n", "\xff\xfe"}) {
    Result<ContainerdPlan> plan = PlanContainerdConfig(text, kDump, 2);
    EXPECT_EQ(plan.status().code(), Code::kFailedPrecondition) << text;
    EXPECT_THAT(plan.status().message(), HasSubstr("by hand"));
  }
  EXPECT_FALSE(PlanContainerdConfig("version = 3\n", kDump, 1).ok());
}

TEST(ContainerdConfig, KnowsItsOwnRuntimeInADump) {
  EXPECT_FALSE(HasRuntime(kDump));
  EXPECT_TRUE(
      HasRuntime(std::string(kDump) + PlanContainerdConfig("version = 3\n", kDump, 2)
                                          ->drop_in.substr(PlanContainerdConfig("version = 3\n", kDump, 2)->drop_in.find("[plugins"))));
  EXPECT_FALSE(HasRuntime("not toml ["));
  EXPECT_EQ(ContainerdMajor("containerd github.com/containerd/containerd/v2 2.1.9+unknown \n"), 2);
  EXPECT_EQ(ContainerdMajor("containerd github.com/containerd/containerd v1.7.20 8fc6bcff51318944179630522a095cc9dbf9f353"), 1);
  EXPECT_EQ(ContainerdMajor("nonsense"), 0);
}

class InstallerTest : public testing::Test {
 protected:
  InstallerTest() {
    host.started = clock.Wall();
    clock.Advance(std::chrono::hours(1));
    host.files[kContainerdConfig] = "version = 3\n";
  }
  FakeClock clock;
  FakeHost host{clock};
  std::string busy;
  Installer installer{host, [this](std::string* why) { return *why = busy, !busy.empty(); }, clock};
};

TEST_F(InstallerTest, AFreshNodeIsConfiguredAndContainerdRestartedOnce) {
  ASSERT_TRUE(installer.Install({}).ok());
  EXPECT_EQ(host.terminations, 1);
  EXPECT_EQ(host.links["/usr/local/bin/criu"], "/opt/holdfast/criu/criu");
  EXPECT_EQ(host.files[std::string(kContainerdConfig) + ".before-holdfast"], "version = 3\n");
  const NodeReport report = installer.Examine();
  EXPECT_TRUE(report.usable()) << report.status().message();
  const auto files = host.files;
  ASSERT_TRUE(installer.Install({}).ok());
  EXPECT_EQ(host.terminations, 1);
  EXPECT_EQ(host.files, files);
}

TEST_F(InstallerTest, SystemdRestartsContainerdWhereItRuns) {
  host.systemd = true;
  ASSERT_TRUE(installer.Install({}).ok());
  EXPECT_EQ(host.systemctls, 1);
  EXPECT_EQ(host.terminations, 0);
}

TEST_F(InstallerTest, ContainerdIsNotRestartedWhileAContainerIsFrozen) {
  busy = "a pod is kept frozen";
  Status status = installer.Install({});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("kept frozen"));
  EXPECT_EQ(host.terminations, 0);
  EXPECT_EQ(installer.Examine().status().code(), Code::kUnavailable) << "the running containerd does not know it yet";
  busy.clear();
  EXPECT_TRUE(installer.Install({}).ok());
}

TEST_F(InstallerTest, ACriuOfTheNodesOwnIsKept) {
  host.files["/usr/bin/criu"] = "theirs";
  ASSERT_TRUE(installer.Install({}).ok());
  EXPECT_TRUE(host.links.empty());
}

TEST_F(InstallerTest, ContainerdThatDoesNotTakeTheEntryGetsItsConfigBack) {
  host.ignores_drop_in = true;
  Status status = installer.Install({});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(host.files[kContainerdConfig], "version = 3\n");
  EXPECT_EQ(host.terminations, 0);
}

TEST_F(InstallerTest, AForeignConfigFileIsNotTouched) {
  host.config_file = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
  EXPECT_THAT(installer.Install({}).message(), HasSubstr("rancher"));
  EXPECT_FALSE(host.files.contains(kDropIn));
}

TEST_F(InstallerTest, NoContainerdIsAReasonToWait) {
  host.running = false;
  EXPECT_EQ(installer.Install({}).code(), Code::kUnavailable);
}

TEST_F(InstallerTest, AContainerdThatDoesNotComeBackIsReported) {
  host.comes_back = false;
  const Pump time(clock, std::chrono::seconds(1));
  EXPECT_THAT(installer.Install({}).message(), HasSubstr("did not come back"));
}

TEST_F(InstallerTest, AProgramThatDoesNotRunMakesTheNodeUnsupported) {
  ASSERT_TRUE(installer.Install({}).ok());
  host.programs = false;
  EXPECT_EQ(installer.Examine().status().code(), Code::kUnsupported);
}

TEST(NodeLabel, PatchesSayReadyUnsupportedOrNothing) {
  EXPECT_EQ(GetString(ReadyIntent({{"holdfast.dev/criu-version", "4.2"}}), {"metadata", "labels", "holdfast.dev/runtime"}), "ready");
  EXPECT_EQ(GetString(UnsupportedIntent("why"), {"metadata", "annotations", "holdfast.dev/reason"}), "why");
  EXPECT_TRUE(Find(UninstalledPatch(), {"metadata", "labels", "holdfast.dev/runtime"})->is_null());
}

TEST(CopyTree, ReplacesWhatDiffersAndKeepsWhatIsRunning) {
  TempDir dir;
  const std::string from = dir.path() + "/from", to = dir.path() + "/to";
  ASSERT_TRUE(MakeDirs(from + "/bin").ok());
  ASSERT_TRUE(WriteFileDurably(from + "/bin/holdfast-runc", "new", 0755).ok());
  ASSERT_EQ(symlink("bin/holdfast-runc", (from + "/link").c_str()), 0);
  EXPECT_TRUE(*CopyTree(from, to));
  EXPECT_FALSE(*CopyTree(from, to));
  ASSERT_TRUE(WriteFileDurably(to + "/bin/holdfast-runc", "old", 0755).ok());
  int running = open((to + "/bin/holdfast-runc").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(*CopyTree(from, to));
  EXPECT_EQ(*ReadFile(to + "/bin/holdfast-runc"), "new");
  char text[4] = {};
  EXPECT_EQ(read(running, text, 3), 3);
  EXPECT_STREQ(text, "old");
  close(running);
}

}  // namespace
}  // namespace holdfast::agent
