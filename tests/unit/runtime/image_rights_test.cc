// Hole 9: what a stolen node writes into the images of a checkpoint.
#include "runtime/image_rights.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/unit/runtime/image_maker.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr uint64_t kChown = 1, kSetuid = 1 << 7, kSysAdmin = 1 << 21;

struct Forged {
  uint64_t uid = 1000, gid = 1000, capabilities = 0, no_new_privileges = 1, seccomp = 2, state = 1;
  std::string of_task, of_thread, of_creds;  // more fields of it
  std::map<uint32_t, uint64_t> ids = {{1, 2}, {5, 9}, {6, 10}, {7, 11}, {8, 12}, {9, 14}, {10, 7}};
  uint32_t set = 10;
};

class ImageRightsTest : public testing::Test {
 protected:
  ImageRightsTest() {
    spec = {{"process",
             {{"user", {{"uid", 1000}, {"gid", 1000}, {"additionalGids", {2000}}}},
              {"noNewPrivileges", true},
              {"capabilities", {{"bounding", {"CAP_CHOWN"}}}}}},
            {"linux",
             {{"seccomp", {{"defaultAction", "SCMP_ACT_ERRNO"}}},
              {"namespaces", {{{"type", "pid"}}, {{"type", "mount"}}, {{"type", "ipc"}}, {{"type", "uts"}}, {{"type", "network"}}}}}}};
  }
  void Write(const std::string& name, const std::string& head, const std::string& entry) {
    ASSERT_TRUE(WriteFileAtomically(dir / name, head + Word(static_cast<uint32_t>(entry.size())) + entry).ok());
  }
  Status Check(const Forged& task) {
    const std::string common = Word(0x54564319);
    std::string node, ids, creds;
    for (uint32_t i = 1; i <= 10; ++i) node += Number(i, i <= 4 ? 1 : i - 3);
    for (const auto& [number, value] : task.ids) ids += Number(number, value);
    for (uint32_t i = 1; i <= 8; ++i) creds += Number(i, i % 2 == 1 ? task.uid : task.gid);
    creds += Number(task.set, task.capabilities & 0xffffffff) + Number(task.set, task.capabilities >> 32) + Number(13, 0);
    creds += Number(18, task.no_new_privileges) + task.of_creds;
    Write("inventory.img", Word(0x58313116), Number(1, 2) + Bytes(3, node));
    Write("pstree.img", common + Word(0x50273030), Number(1, 1) + Number(2, 0));
    Write("ids-1.img", common + Word(0x54432030), ids);
    Write("core-1.img", common + Word(0x55053847),
          Number(1, 1) + Bytes(3, Number(1, task.state) + task.of_task) +
              Bytes(5, Bytes(10, creds) + Number(11, task.seccomp) + task.of_thread));
    WriteFilters({{DenyAll()}});
    return CheckImageRights(dir.path(), Spec(spec));
  }
  struct Filter {
    std::string program;
    uint64_t flags = 1;
  };
  static std::string DenyAll() { return std::string("\x06\0\0\0\x01\0\x05\0", 8); }  // ret ERRNO
  void WriteFilters(const std::vector<Filter>& filters) {
    std::string all;
    for (const Filter& filter : filters) all += Bytes(1, Bytes(1, filter.program) + Number(3, filter.flags));
    Write("seccomp.img", Word(0x54564319) + Word(0x64413049), all);
  }
  std::string Why(const Forged& task) {
    Status status = Check(task);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.message();
    return std::string(status.message());
  }
  Json spec;
  TempDir dir;
};

TEST_F(ImageRightsTest, WhatTheContainerMayIsRestored) {
  EXPECT_TRUE(Check({}).ok()) << Check({}).message();
  Forged chown;
  for (uint32_t set : {9, 10, 11, 12, 19}) {
    chown.set = set;
    chown.capabilities = kChown;
    EXPECT_TRUE(Check(chown).ok());
  }
}

TEST_F(ImageRightsTest, NoSetHoldsWhatIsNotBounded) {
  Forged task;
  for (uint32_t set : {9, 10, 11, 12, 19}) {
    task.set = set;
    for (uint64_t held : {kSysAdmin, kSysAdmin << 32}) {
      task.capabilities = held | kChown;
      const std::string why = Why(task);
      EXPECT_NE(why.find(held == kSysAdmin ? "holds CAP_SYS_ADMIN," : "holds capability 53,"), std::string::npos) << why;
      EXPECT_NE(why.find("core-1.img"), std::string::npos);
    }
  }
}

TEST_F(ImageRightsTest, WhatTheContainerMustHaveIsThere) {
  Forged task;
  task.no_new_privileges = 0;
  EXPECT_NE(Why(task).find("no_new_privs"), std::string::npos);
  task = {};
  task.seccomp = 0;
  EXPECT_NE(Why(task).find("seccomp"), std::string::npos);
  task.seccomp = uint64_t{1} << 32;  // which CRIU cuts to 0
  EXPECT_NE(Why(task).find("seccomp"), std::string::npos);
  spec["linux"]["seccomp"] = {{"defaultAction", "SCMP_ACT_ALLOW"}};  // for which runc loads nothing
  EXPECT_TRUE(Check(task).ok());
}

TEST_F(ImageRightsTest, AnotherUserOnlyWhereItCouldBecomeOne) {
  Forged root;
  root.uid = 0;
  EXPECT_NE(Why(root).find("is user 0"), std::string::npos);
  spec["process"]["noNewPrivileges"] = false;  // a setuid program
  EXPECT_TRUE(Check(root).ok());
  // An entrypoint of root that goes on as another user, as databases do.
  spec["process"] = {{"user", {{"uid", 0}}}, {"noNewPrivileges", true}, {"capabilities", {{"bounding", {"CAP_CHOWN", "CAP_SETUID"}}}}};
  Forged database;
  database.uid = 999;
  database.capabilities = kSetuid;
  EXPECT_TRUE(Check(database).ok());
}

TEST_F(ImageRightsTest, AnotherGroupOnlyWhereItCouldComeIntoIt) {
  Forged task;
  task.of_creds = Number(14, 2000) + Number(14, 1000);
  EXPECT_TRUE(Check(task).ok()) << Check(task).message();
  task.of_creds = Bytes(14, std::string("\xd0\x0f\x00", 3));  // 2000 and 0, packed
  EXPECT_NE(Why(task).find("of group 0,"), std::string::npos);
  task.of_creds.clear();
  task.gid = 5;
  EXPECT_NE(Why(task).find("of group 5,"), std::string::npos);
  spec["process"]["capabilities"]["bounding"].push_back("CAP_SETGID");
  EXPECT_TRUE(Check(task).ok());
}

TEST_F(ImageRightsTest, ATaskIsConfinedAsItsSpecSays) {
  Forged task;
  task.of_creds = Bytes(15, "cri-containerd.apparmor.d");
  EXPECT_TRUE(Check(task).ok());
  spec["process"]["apparmorProfile"] = "cri-containerd.apparmor.d";
  EXPECT_TRUE(Check(task).ok());
  for (const std::string& other : {std::string(), std::string("unconfined"), std::string("cri-containerd.apparmor.d//x")}) {
    task.of_creds = Bytes(15, other);
    EXPECT_NE(Why(task).find("is confined by"), std::string::npos) << other;
  }
  spec["process"].erase("apparmorProfile");
  spec["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0:c1,c2";
  task.of_creds = Bytes(15, "system_u:system_r:container_t:s0:c3,c4");  // of the pod that it was
  EXPECT_TRUE(Check(task).ok());
  task.of_creds = Bytes(15, "system_u:system_r:spc_t:s0:c1,c2");
  EXPECT_NE(Why(task).find("is confined by"), std::string::npos);
}

TEST_F(ImageRightsTest, LimitsAndScoresAreNotWider) {
  Forged task;
  std::string limits;
  for (int i = 0; i < 16; ++i) limits += Bytes(1, Number(1, 1024) + Number(2, i == 7 ? 4096 : ~uint64_t{0}));
  task.of_task = Bytes(8, limits) + Number(14, static_cast<uint64_t>(-997));
  EXPECT_TRUE(Check(task).ok());  // a spec that names none leaves it to the node
  spec["process"]["rlimits"] = {{{"type", "RLIMIT_NOFILE"}, {"hard", 4096}, {"soft", 1024}}};
  EXPECT_TRUE(Check(task).ok());
  spec["process"]["rlimits"][0]["hard"] = 4095;
  EXPECT_NE(Why(task).find("RLIMIT_NOFILE"), std::string::npos);
  spec["process"].erase("rlimits");
  for (const auto& [by_spec, allowed] : std::map<int, bool>{{-997, true}, {-998, true}, {2, false}, {500, false}, {1000, false}}) {
    spec["process"]["oomScoreAdj"] = by_spec;
    EXPECT_EQ(Check(task).ok(), allowed) << by_spec;
  }
  task.of_task = Number(14, 300);
  spec["process"]["oomScoreAdj"] = 900;  // of the same pod on a larger node
  EXPECT_TRUE(Check(task).ok());
  spec["process"]["oomScoreAdj"] = 1000;
  EXPECT_NE(Why(task).find("OOM score 300"), std::string::npos);
  spec["process"].erase("oomScoreAdj");
  task.of_thread = Number(4, 1) + Number(5, 99);
  EXPECT_NE(Why(task).find("real time"), std::string::npos);
  spec["process"]["capabilities"]["bounding"].push_back("CAP_SYS_NICE");
  EXPECT_TRUE(Check(task).ok());
}

TEST_F(ImageRightsTest, NoTaskStandsInTheNodesNamespaces) {
  for (const auto& [number, type] : std::map<uint32_t, std::string>{{5, "pid"}, {6, "network"}, {7, "ipc"}, {8, "uts"}, {9, "mount"}}) {
    for (uint64_t id : {uint64_t{number - 3}, uint64_t{number - 3} | uint64_t{1} << 32, uint64_t{0}}) {
      Forged task;
      task.ids[number] = id;
      EXPECT_NE(Why(task).find("the node's " + type), std::string::npos);
    }
  }
  Forged host_network;
  host_network.ids[6] = 3;
  spec["linux"]["namespaces"].erase(4);
  EXPECT_TRUE(Check(host_network).ok());
  // As containerd has it: the pod's sandbox shares it with the node, and the container joins that.
  Forged host_name;
  host_name.ids[8] = 5;
  spec["linux"]["namespaces"][3]["path"] = "/proc/self/ns/uts";
  EXPECT_TRUE(Check(host_name).ok()) << Why(host_name);
  spec["linux"]["namespaces"][3]["path"] = "/proc/self/ns/ipc";
  EXPECT_NE(Why(host_name).find("the node's uts"), std::string::npos);
  Forged user;
  user.ids[10] = 20;
  EXPECT_NE(Why(user).find("user namespace"), std::string::npos);
}

TEST_F(ImageRightsTest, AZombieHasNoRights) {
  Forged zombie;
  zombie.state = 6;
  zombie.capabilities = kSysAdmin;
  EXPECT_TRUE(Check(zombie).ok());
}

TEST_F(ImageRightsTest, AThreadIsATaskWhateverItsCoreSaysOfItself) {
  ASSERT_TRUE(Check({}).ok());
  const std::string common = Word(0x54564319);
  Write("pstree.img", common + Word(0x50273030), Number(1, 1) + Number(2, 0) + Number(5, 1) + Number(5, 6));
  EXPECT_FALSE(CheckImageRights(dir.path(), Spec(spec)).ok());  // its core is missing
  const std::string leader = *ReadFile(dir / "core-1.img");
  ASSERT_TRUE(WriteFileAtomically(dir / "core-6.img", leader).ok());
  EXPECT_TRUE(CheckImageRights(dir.path(), Spec(spec)).ok());
  std::string creds;
  for (uint32_t i = 1; i <= 8; ++i) creds += Number(i, 1000);
  const auto thread = [&](const std::string& more, const std::string& state) {
    Write("core-6.img", common + Word(0x55053847), Number(1, 1) + state + Bytes(5, Bytes(10, creds + Number(18, 1) + more)));
    return CheckImageRights(dir.path(), Spec(spec));
  };
  // A thread that shares its process's filters has none of its own.
  Status shared = thread("", "");
  EXPECT_TRUE(shared.ok()) << shared.message();
  const std::string why(thread(Number(10, kSysAdmin), Bytes(3, Number(1, 6))).message());  // a zombie's state, which CRIU does not look at
  EXPECT_NE(why.find("core-6.img a task holds CAP_SYS_ADMIN"), std::string::npos) << why;
  WriteFilters({{DenyAll(), 0}});
  EXPECT_NE(std::string(thread("", "").message()).find("a thread runs without a seccomp filter"), std::string::npos);
}

TEST_F(ImageRightsTest, EveryTruncationIsRefusedAndAnyByteSurvived) {
  for (const char* name : {"core-1.img", "ids-1.img", "inventory.img", "pstree.img", "seccomp.img"}) {
    ASSERT_TRUE(Check({}).ok());
    const std::string whole = *ReadFile(dir / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      if (size == 8 && std::string(name) == "pstree.img") continue;  // no task: CRIU restores nothing
      ASSERT_TRUE(WriteFileAtomically(dir / name, whole.substr(0, size)).ok());
      EXPECT_FALSE(CheckImageRights(dir.path(), Spec(spec)).ok()) << name << " " << size;
    }
    for (size_t at = 0; at < whole.size(); ++at) {
      for (int byte : {0, 0x7f, 0x80, 0xff}) {
        std::string broken = whole;
        broken[at] = static_cast<char>(byte);
        ASSERT_TRUE(WriteFileAtomically(dir / name, broken).ok());
        Status status = CheckImageRights(dir.path(), Spec(spec));
        (void)status;
      }
    }
  }
}

}  // namespace
}  // namespace holdfast::runtime
