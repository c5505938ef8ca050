#include "runtime/spec.h"

#include <gtest/gtest.h>

#include "runtime/criu_log.h"
#include "runtime/mounts.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

Json ContainerSpec() {
  return {{"ociVersion", "1.1.0"},
          {"future", {{"kept", true}}},
          {"annotations",
           {{"io.kubernetes.cri.container-type", "container"},
            {"io.kubernetes.cri.sandbox-uid", "uid"},
            {"io.kubernetes.cri.container-name", "main"}}},
          {"process", {{"args", {"/app"}}}},
          {"linux", {{"namespaces", {{{"type", "pid"}}, {{"type", "network"}, {"path", "/proc/7/ns/net"}}}}}}};
}

TEST(Spec, TheTimeNamespaceIsAddedOnce) {
  Spec spec(ContainerSpec());
  spec.AddTimeNamespace();
  spec.AddTimeNamespace();
  EXPECT_EQ(spec.json()["linux"]["namespaces"].size(), 3u);
  EXPECT_EQ(spec.json()["linux"]["namespaces"][2]["type"], "time");
}

TEST(Spec, EditsKeepWhatTheyDoNotKnow) {
  TempDir dir;
  Spec spec(ContainerSpec());
  spec.SetAnnotation("org.criu.config", "/c");
  spec.AddReadOnlyBind("/from", "/.holdfast");
  spec.SetArgs({"/x", "--exit"});
  ASSERT_TRUE(spec.Save(dir.path()).ok());
  Result<Spec> again = Spec::Load(dir.path());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->json()["future"]["kept"], true);
  EXPECT_EQ(again->Annotation("org.criu.config"), "/c");
  EXPECT_EQ(again->Mounts().at(0).destination, "/.holdfast");
  EXPECT_EQ(again->json()["process"]["args"], (Json{"/x", "--exit"}));
}

TEST(Spec, OnlyContainersOfTheCriAreOurs) {
  EXPECT_TRUE(Spec(ContainerSpec()).identity().is_container);
  Json sandbox = ContainerSpec();
  sandbox["annotations"]["io.kubernetes.cri.container-type"] = "sandbox";
  EXPECT_FALSE(Spec(sandbox).identity().is_container);
  Json escape = ContainerSpec();
  escape["annotations"]["io.kubernetes.cri.sandbox-uid"] = "../../etc";
  EXPECT_FALSE(Spec(escape).identity().is_container);
  EXPECT_FALSE(Spec(Json::object()).identity().is_container);
  Json wrong = ContainerSpec();
  wrong["annotations"] = 3;
  EXPECT_FALSE(Spec(wrong).identity().is_container);
}

TEST(Spec, OnlyJoinedNamespacesHaveAPath) {
  Spec spec(ContainerSpec());
  EXPECT_EQ(spec.NamespacePath("network"), "/proc/7/ns/net");
  EXPECT_EQ(spec.NamespacePath("pid"), std::nullopt);
  EXPECT_EQ(spec.NamespacePath("uts"), std::nullopt);
}

TEST(Mounts, TheUpperDirectoryIsThatOfTheLastOverlayThere) {
  const char* mountinfo =
      "30 20 0:40 / /tasks/a/rootfs rw,relatime - overlay overlay rw,lowerdir=/old,upperdir=/snapshots/1/fs,workdir=/snapshots/1/work\n"
      "31 30 0:41 / /tasks/a/rootfs rw,relatime shared:5 master:2 - overlay overlay "
      "rw,lowerdir=/l1:/l2,upperdir=/snap\\040shots/2/fs,workdir=/w\n"
      "32 20 0:42 / /tasks/b/rootfs rw - tmpfs tmpfs rw\n";
  EXPECT_EQ(*OverlayUpperIn(mountinfo, "/tasks/a/rootfs"), "/snap shots/2/fs");
  EXPECT_EQ(*OverlayUpperIn(mountinfo, "/tasks/b/rootfs"), "");
  EXPECT_EQ(OverlayUpperIn(mountinfo, "/tasks/c/rootfs").status().code(), Code::kNotFound);
  EXPECT_FALSE(OverlayUpperIn("garbage\n - \n\n", "/x").ok());
}

TEST(CriuLog, OnlyTheLinesThatTellSomething) {
  EXPECT_EQ(TellingLinesOf("(00.1) fine\n(00.2) 7: Error (criu/a.c:1): first\n(00.3) Error (criu/b.c:2): Can't setup RLIMIT_NOFILE for 1\n"
                           "(00.4) Error (criu/c.c:3): second"),
            "Error (criu/a.c:1): first; Error (criu/c.c:3): second");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "(0) Error (x): " + std::to_string(i) + std::string(1000, 'y') + "\n";
  EXPECT_LE(TellingLinesOf(many).size(), 1024u);
  EXPECT_EQ(TellingLinesOf(""), "");
}

TEST(CriuLog, TellsWhenAProcessIsInTheMiddleOfCriusCode) {
  std::string log = "(00.002) SEIZE 7 (comm counter): success\n(00.006) Dumping task (pid: 7 comm: counter)\n";
  EXPECT_FALSE(InsideAProcess(""));
  EXPECT_FALSE(InsideAProcess(log));
  log += "(00.021) Parasite syscall_ip at 0x401000\n(00.022) Wait for parasite being daemonized...\n";
  EXPECT_TRUE(InsideAProcess(log));
  log += "(00.023) Parasite 7 has been switched to daemon mode\npie: 1: Daemon waits for command\n";
  EXPECT_FALSE(InsideAProcess(log));
  log += "(00.960) Daemon 7 exited trapping\n";
  EXPECT_TRUE(InsideAProcess(log));
  log += "(00.975) Dumping task cwd id 0x9 root id 0xa\n(00.975) Dumping task (pid: 8 comm: counter)\n";
  EXPECT_FALSE(InsideAProcess(log));
}

}  // namespace
}  // namespace holdfast::runtime
