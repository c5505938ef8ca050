// What a person or a program is told about a node, and that the label is told the same.
#include "agent/doctor.h"

#include <gmock/gmock.h>

#include "agent/installer/installer.h"
#include "agent/node_label.h"
#include "api/platform.h"
#include "fake_host.h"

namespace holdfast::agent {
namespace {

using runtime::NodeCheck;
using testing::HasSubstr;
using testing::Not;
using Verdict = NodeCheck::Verdict;

ProcessResult Ended(int code, const std::string& err) {
  ProcessResult result;
  result.exit_code = code;
  result.err = err;
  return result;
}

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    host.started = clock.Wall();
    clock.Advance(std::chrono::hours(1));
    host.files[kContainerdConfig] = "version = 3\n";
    Installer installer(
        host, [](std::string*) { return false; }, clock);
    EXPECT_TRUE(installer.Install({}).ok());
  }
  NodeReport Look() { return Examine(host, clock, "/var/lib/holdfast"); }
  const NodeCheck& At(const NodeReport& report, const std::string& name) {
    for (const NodeCheck& check : report.checks) {
      if (check.name == name) return check;
    }
    ADD_FAILURE() << "no check " << name;
    return report.checks.front();
  }

  FakeClock clock;
  FakeHost host{clock};
};

TEST_F(DoctorTest, AHealthyNodeIsGreenInEveryLine) {
  const NodeReport report = Look();
  for (const NodeCheck& check : report.checks) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ": " << check.seen;
  EXPECT_TRUE(report.usable());
  EXPECT_EQ(GetString(ReadyIntent(report.versions), {"metadata", "labels", "holdfast.dev/cpu"}), "x86-64-v3");
  const Json named = GetObject(ReadyIntent(report.versions), {"metadata"});
  EXPECT_EQ(GetString(named, {"annotations", "holdfast.dev/cpu-features"}), "avx avx2");
  EXPECT_EQ(GetString(named, {"labels", "holdfast.dev/cpu-set"}), api::FeatureSet("avx avx2"));
  EXPECT_THAT(Render("node1", report, {}), testing::StartsWith("node1: can be used\n  ok    programs "));
}

// Each way in which a node can be wrong, the line that turns red, and whether the node is given up for it.
TEST_F(DoctorTest, EveryRedLineHasItsFixAndIsTheLabelsReason) {
  struct Case {
    std::string name, fix;
    Code code;
    std::function<void()> breaks;
  };
  const std::string runc = kRuntimeBinary;
  const Case cases[] = {
      {"programs", "noexec", Code::kUnsupported,
       [&] { host.broken.emplace(runc + " --holdfast-version", Ended(126, "Permission denied")); }},
      {"runc", "install runc", Code::kUnsupported, [&] { host.broken.emplace(runc + " --version", Ended(1, "no runc in /usr/bin")); }},
      {"criu", "/opt/holdfast", Code::kUnsupported,
       [&] { host.broken.emplace("/opt/holdfast/criu/criu --version", Status(Code::kNotFound, "cannot run criu")); }},
      {"criu", "/opt/holdfast", Code::kUnavailable,
       [&] { host.broken.emplace("/opt/holdfast/criu/criu --version", Status(Code::kDeadlineExceeded, "did not end in time")); }},
      {"kernel-nftables", "nf_tables", Code::kUnsupported,
       [&] { host.checks = R"([{"name":"kernel-nftables","verdict":"fail","seen":"none","fix":"load nf_tables"}])"; }},
      {"kernel", "agent", Code::kUnsupported, [&] { host.checks = "not JSON"; }},
      {"kernel", "agent", Code::kUnsupported, [&] { host.checks = R"([{"name":"../x","verdict":"perhaps"}])"; }},
      {"kernel", "does not answer", Code::kUnavailable,
       [&] { host.broken.emplace(runc + " check", Status(Code::kDeadlineExceeded, "did not end in time")); }},
      {"containerd", "start containerd", Code::kUnavailable, [&] { host.running = false; }},
      {"containerd", "by hand", Code::kUnsupported, [&] { host.config_file = "/etc/k3s.toml"; }},
      {"containerd", "install containerd", Code::kUnsupported,
       [&] { host.broken.emplace("containerd --version", Ended(127, "no such library")); }},
      {"config", "import", Code::kUnsupported, [&] { host.files.erase(kDropIn); }},
      {"containerd-restart", "systemctl restart containerd", Code::kUnavailable,
       [&] { host.changed[kDropIn] = clock.Wall() + std::chrono::hours(1); }},
  };
  const FakeHost healthy = host;
  for (const Case& one : cases) {
    host = healthy;
    one.breaks();
    const NodeReport report = Look();
    const NodeCheck& check = At(report, one.name);
    EXPECT_EQ(check.verdict, Verdict::kFail) << one.name;
    EXPECT_THAT(check.fix, HasSubstr(one.fix)) << one.name;
    EXPECT_EQ(report.status().code(), one.code) << one.name << ": " << report.status().message();
    EXPECT_THAT(report.status().message(), HasSubstr(check.seen)) << "what the label's reason is made of";
    EXPECT_THAT(Render("node1", report, {}),
                testing::AllOf(HasSubstr("cannot be used"), HasSubstr("FAIL  " + one.name), HasSubstr("fix: " + check.fix)));
  }
}

TEST_F(DoctorTest, WhatIsOnlyWeakerIsAWarningAndTheNodeIsUsed) {
  host.broken.emplace("/opt/holdfast/criu/criu check", Ended(1, "Warn: no ptrace\nmore"));
  host.links.clear();
  host.checks = R"([{"name":"space","verdict":"warn","seen":"1 MiB free","fix":"free some"}])";
  const NodeReport report = Look();
  EXPECT_TRUE(report.usable());
  EXPECT_EQ(At(report, "criu-check").seen, "Warn: no ptrace");
  EXPECT_THAT(At(report, "criu-path").fix, HasSubstr("ln -s /opt/holdfast/criu/criu"));
  EXPECT_THAT(Render("node1", report, {}), testing::StartsWith("node1: can be used, 3 warnings\n"));
}

TEST_F(DoctorTest, ProgramsThatHangShareOneLimit) {
  host.takes = std::chrono::seconds(50);
  const MonoTime from = clock.Mono();
  const NodeReport report = Look();
  EXPECT_FALSE(report.usable());
  EXPECT_EQ(report.status().code(), Code::kUnavailable) << "a slow node is not given up";
  EXPECT_LE(clock.Mono() - from, std::chrono::seconds(61));
}

TEST_F(DoctorTest, TheLabelIsReadFromTheNode) {
  auto labelled = [](const Json& labels) {
    return CheckLabel(Json{{"metadata", {{"labels", labels}, {"annotations", {{"holdfast.dev/reason", "no runc"}}}}}});
  };
  EXPECT_EQ(labelled({{"holdfast.dev/runtime", "ready"}}).verdict, Verdict::kOk);
  EXPECT_THAT(labelled({{"holdfast.dev/runtime", "unsupported"}}).seen, HasSubstr("no runc"));
  EXPECT_TRUE(labelled(Json::object()).passes);
  EXPECT_EQ(CheckLabel(Status(Code::kUnavailable, "no answer")).verdict, Verdict::kWarn);
  EXPECT_EQ(CheckLabel(Json("hostile")).verdict, Verdict::kFail);
}

TEST_F(DoctorTest, JsonHasTheSameAndTextHasNoControlCharacters) {
  host.broken.emplace("/opt/holdfast/criu/criu --version", Ended(1, "\033[2Jgone\x07\xff"));
  const NodeReport report = Look();
  const std::string text = Render("node1", report, {});
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, HasSubstr("gone"));
  EXPECT_THAT(Render("node1", report, {.color = true}), HasSubstr("\033[31mFAIL  criu"));
  Result<Json> json = ParseJson(Render("node1", report, {.json = true}));
  ASSERT_TRUE(json.ok());
  EXPECT_FALSE(GetBool(*json, {"usable"}, true));
  ASSERT_EQ(GetArray(*json, {"checks"}).size(), report.checks.size());
  for (const Json& check : GetArray(*json, {"checks"})) {
    EXPECT_EQ(GetString(check, {"verdict"}) == "ok", !check.contains("fix"));
  }
}

}  // namespace
}  // namespace holdfast::agent
