// Hole 9: what a stolen node writes into the images of a checkpoint.
#include "runtime/image_rights.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/protobuf.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

std::string Word(uint32_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof word); }
std::string Number(uint32_t number, uint64_t value) {
  std::string out;
  protobuf::WriteNumber(&out, number, value);
  return out;
}
std::string Bytes(uint32_t number, const std::string& content) {
  std::string out;
  protobuf::WriteBytes(&out, number, content);
  return out;
}

constexpr uint64_t kChown = 1, kSetuid = 1 << 7, kSysAdmin = 1 << 21;

struct Forged {
  uint64_t uid = 1000, capabilities = 0, no_new_privileges = 1, seccomp = 2, state = 1;
  std::map<uint32_t, uint64_t> ids = {{1, 2}, {5, 9}, {6, 10}, {7, 11}, {8, 12}, {9, 14}, {10, 7}};
  uint32_t set = 10;
};

class ImageRightsTest : public testing::Test {
 protected:
  ImageRightsTest() {
    spec = {{"process", {{"user", {{"uid", 1000}}}, {"noNewPrivileges", true}, {"capabilities", {{"bounding", {"CAP_CHOWN"}}}}}},
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
    for (uint32_t i = 1; i <= 8; ++i) creds += Number(i, task.uid);
    creds += Number(task.set, task.capabilities & 0xffffffff) + Number(task.set, task.capabilities >> 32) + Number(13, 0);
    creds += Number(18, task.no_new_privileges);
    Write("inventory.img", Word(0x58313116), Number(1, 2) + Bytes(3, node));
    Write("pstree.img", common + Word(0x50273030), Number(1, 1) + Number(2, 0));
    Write("ids-1.img", common + Word(0x54432030), ids);
    Write("core-1.img", common + Word(0x55053847),
          Number(1, 1) + Bytes(3, Number(1, task.state)) + Bytes(5, Bytes(10, creds) + Number(11, task.seccomp)));
    return CheckImageRights(dir.path(), Spec(spec));
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

TEST_F(ImageRightsTest, FilesThatNoDumpOfOursWritesAreRefused) {
  ASSERT_TRUE(Check({}).ok());
  for (const char* name : {"creds-1.img", "apparmor.img", "binfmt-misc.img"}) {
    ASSERT_TRUE(WriteFileAtomically(dir / name, "").ok());
    EXPECT_EQ(CheckImageRights(dir.path(), Spec(spec)).code(), Code::kFailedPrecondition) << name;
    ASSERT_TRUE(RemoveAll(dir / name).ok());
  }
}

TEST_F(ImageRightsTest, EveryTruncationIsRefusedAndAnyByteSurvived) {
  for (const char* name : {"core-1.img", "ids-1.img", "inventory.img", "pstree.img"}) {
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
