// containerd's configuration in the shapes that nodes have it, and when containerd is restarted.
#include "agent/installer/installer.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "agent/installer/real_host.h"
#include "agent/node_label.h"
#include "agent/restore_node.h"
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

TEST(ContainerdConfig, TheImportIsTakenOutAsItCameInWhateverStandsBeside) {
  const char* cases[] = {
      kDebian,
      "version = 3\n",
      "version = 3\nimports = []\n",
      "# ä config\nversion = 3 # ü\nimports = ['/etc/containerd/runtime_*.toml', './debug.toml']\n\n[debug]\n  level = \"info\"\n",
      "version = 2\nimports = [ # größer\n  \"/a.toml\",\n]\n",
      "version = 3"};
  for (const char* before : cases) {
    const Result<ContainerdPlan> plan = PlanContainerdConfig(before, kDump, 2);
    ASSERT_TRUE(plan.ok() && plan->config.has_value()) << before;
    Result<std::optional<std::string>> back = WithoutImport(*plan->config, before);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->value(), before) << "byte for byte";
    // Its owner has changed it since: that stays.
    back = WithoutImport(*plan->config + "\n[grpc]\n  gid = 7\n", before);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_THAT(back->value(), Not(HasSubstr("holdfast")));
    EXPECT_THAT(back->value(), HasSubstr("gid = 7"));
    EXPECT_TRUE(PlanContainerdConfig(back->value(), kDump, 2).ok()) << "it is one that containerd reads: " << back->value();
    EXPECT_EQ(WithoutImport(back->value(), before).status().code(), Code::kNotFound);
  }
  const Result<ContainerdPlan> made = PlanContainerdConfig(std::nullopt, "", 2);
  const Result<std::optional<std::string>> none = WithoutImport(*made->config, std::nullopt);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value()) << "there was no file before";
  EXPECT_TRUE(IsOurDropIn(made->drop_in));
  EXPECT_FALSE(IsOurDropIn("# mine\n"));
}

class UninstallTest : public InstallerTest {
 protected:
  UninstallTest() {
    host.files["/etc/other"] = "theirs";
    host.files["/opt/other/file"] = "theirs";
    before = host.files;
    EXPECT_TRUE(installer.Install({}).ok());
    for (const char* file : {"/opt/holdfast/bin/holdfast-runc", "/run/holdfast/term", "/var/lib/holdfast/term"}) host.files[file] = "ours";
    host.mounted = {"/run/holdfast/memory"};
    clock.Advance(std::chrono::hours(1));
  }
  Status Uninstall() {
    return installer.Uninstall([this]() -> Result<std::string> { return needed_by; }, {});
  }
  std::map<std::string, std::string> before;
  std::string needed_by;
};

TEST_F(UninstallTest, TheNodeIsAsItWasBefore) {
  ASSERT_TRUE(Uninstall().ok());
  EXPECT_EQ(host.files, before);
  EXPECT_TRUE(host.links.empty());
  EXPECT_TRUE(host.mounted.empty());
  EXPECT_EQ(host.terminations, 2) << "containerd has forgotten the runtime";
  ASSERT_TRUE(Uninstall().ok()) << "once more";
  EXPECT_EQ(host.terminations, 2);
  EXPECT_EQ(host.files, before);
}

TEST_F(UninstallTest, NothingIsTouchedWhileSomebodyNeedsIt) {
  const auto files = host.files;
  needed_by = "pod default/web-0, which runs under it";
  EXPECT_EQ(Uninstall().code(), Code::kUnavailable);
  EXPECT_THAT(Uninstall().message(), HasSubstr("default/web-0"));
  needed_by.clear();
  busy = "a pod is kept frozen";
  EXPECT_THAT(Uninstall().message(), HasSubstr("kept frozen"));
  EXPECT_EQ(host.files, files);
  EXPECT_EQ(host.terminations, 1);
}

TEST_F(UninstallTest, WhatWasCutOffAnywhereGoesOn) {
  const auto files = host.files, links = host.links;
  for (const char* at : {kDropIn, "/usr/local/bin/criu", "/run/holdfast", "/var/lib/holdfast", "/opt/holdfast"}) {
    host.files = files;
    host.links = links;
    host.terminations = 0;
    host.fails_to_remove = at;
    EXPECT_FALSE(Uninstall().ok()) << at;
    host.fails_to_remove.clear();
    ASSERT_TRUE(Uninstall().ok()) << at;
    EXPECT_GE(host.terminations, 1) << at << ": containerd would go on to know the runtime";
    EXPECT_EQ(host.files, before) << at;
    EXPECT_TRUE(host.links.empty()) << at;
  }
}

TEST_F(UninstallTest, ContainerdForgetsTheRuntimeBeforeItsProgramGoes) {
  host.comes_back = false;
  {
    const Pump time(clock, std::chrono::seconds(1));
    EXPECT_THAT(Uninstall().message(), HasSubstr("did not come back"));
  }
  EXPECT_TRUE(host.files.contains("/opt/holdfast/bin/holdfast-runc"));
  host.comes_back = true;
  EXPECT_TRUE(Uninstall().ok());
  EXPECT_EQ(host.files, before);
}

TEST_F(UninstallTest, WhatOthersMadeOrChangedStays) {
  host.links["/usr/local/bin/criu"] = "/opt/their/criu";
  host.files[kContainerdConfig] += "\n[grpc]\n  gid = 7\n";
  ASSERT_TRUE(Uninstall().ok());
  EXPECT_EQ(host.links["/usr/local/bin/criu"], "/opt/their/criu");
  EXPECT_EQ(host.files[kContainerdConfig], "version = 3\n\n[grpc]\n  gid = 7\n");
  EXPECT_TRUE(host.files.contains(std::string(kContainerdConfig) + ".before-holdfast")) << "to compare with";
}

TEST_F(UninstallTest, ARuntimeThatSomebodyElseConfiguredKeepsItsProgram) {
  host.config_file = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
  host.files[host.config_file] = std::string("BinaryName = \"") + kRuntimeBinary + "\"";
  const Status status = Uninstall();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("take it out by hand"));
  EXPECT_TRUE(host.files.contains("/opt/holdfast/bin/holdfast-runc"));
}

TEST(RestoreNode, WhoStillNeedsTheRuntimeIsNamed) {
  TempDir dir;
  Layout layout;
  layout.run = dir.path() + "/run";
  layout.state = dir.path() + "/state";
  FakeNode node;
  EXPECT_EQ(WhoNeedsTheRuntime(node, layout).value_or("?"), "") << "nothing of it is there";
  ASSERT_TRUE(layout.Make().ok());
  node.on_node = {{"c1", "uid", "default", "plain", "main"}};
  EXPECT_EQ(WhoNeedsTheRuntime(node, layout).value_or("?"), "");
  node.on_node.push_back({"c2", "uid-2", "default", "web-0", "main", true});
  EXPECT_THAT(WhoNeedsTheRuntime(node, layout).value_or("?"), HasSubstr("pod default/web-0"));
  node.on_node.clear();
  ASSERT_TRUE(WriteFileDurably(layout.JournalFolder() + "/ck-uid.json", "{}").ok());
  EXPECT_THAT(WhoNeedsTheRuntime(node, layout).value_or("?"), HasSubstr("ck-uid.json")) << "it may be all that there is of a pod";
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
