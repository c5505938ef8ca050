// Hole 9: a stolen node has CRIU write files by the cgroups that its images name.
#include "runtime/image_cgroups.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/unit/runtime/image_maker.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr uint32_t kMagic = 0x59383330;

std::string Owner(uint32_t number, uint64_t mode, uint64_t uid) { return Bytes(number, Number(1, mode) + Number(2, uid) + Number(3, 0)); }

struct Forged {
  std::string controller = "memory", top = "pods/a", member = "/pods/a", child = "sub", property = "memory.limit_in_bytes", name = "memory";
  uint64_t prefix = 0, owner = 0, mode = 0644;
  std::string more;  // fields of the whole
};

std::string Cgroups(const Forged& forged) {
  std::string member = Bytes(1, forged.name) + Bytes(2, forged.member);
  if (forged.prefix != 0) member += Number(3, forged.prefix);
  const std::string property = Bytes(1, forged.property) + Bytes(2, "1") + Owner(3, forged.mode, forged.owner);
  const std::string child = Bytes(1, forged.child) + Bytes(3, property) + Owner(4, 040755, forged.owner);
  const std::string dir = Bytes(1, forged.top) + (forged.child.empty() ? "" : Bytes(2, child));
  return Bytes(1, Number(1, 2) + Bytes(2, member)) + Bytes(2, Bytes(1, forged.controller) + Bytes(2, dir)) + forged.more;
}

std::string Why(const std::string& message) {
  TempDir dir;
  EXPECT_TRUE(WriteFileAtomically(dir / "cgroup.img", Image(kMagic, Entry(message))).ok());
  const Status status = CheckImageCgroups(dir.path(), {"memory", "", "name=systemd"});
  EXPECT_TRUE(status.ok() || status.code() == Code::kFailedPrecondition) << status.message();
  return std::string(status.message());
}

TEST(ImageCgroups, AreTheContainersOwnAndWhatIsBeneath) {
  EXPECT_EQ(Why(Cgroups({})), "");
  Forged forged;
  forged.member = "/pods/a/sub/deeper";
  EXPECT_EQ(Why(Cgroups(forged)), "");
  forged.prefix = 7;  // "/pods/a"
  EXPECT_EQ(Why(Cgroups(forged)), "");
  forged.prefix = 5;
  EXPECT_EQ(Why(Cgroups(forged)), "");
  forged = {};
  forged.controller = forged.name = "";
  EXPECT_EQ(Why(Cgroups(forged)), "");
  forged.top = "", forged.member = "/", forged.child = "";
  EXPECT_EQ(Why(Cgroups(forged)), "");
  forged = {};
  forged.property = "freezer.state";  // CRIU writes what was in its memory as the owner
  forged.mode = 1965161840;
  EXPECT_EQ(Why(Cgroups(forged)), "");
}

TEST(ImageCgroups, NothingElseIsNamed) {
  const auto with = [](auto change) {
    Forged forged;
    change(forged);
    return Why(Cgroups(forged));
  };
  for (const char* path : {"..", "../../../../../proc/sys/kernel", "a/b", ".", "a/../.."}) {
    EXPECT_NE(with([&](Forged& f) { f.child = path; }), "") << path;
    EXPECT_NE(with([&](Forged& f) { f.property = path; }), "") << path;
    EXPECT_NE(with([&](Forged& f) { f.controller = f.name = path; }), "") << path;
  }
  for (const char* path : {"..", "../x", "pods/../..", "pods//a", "pods/a/", "/pods/a"}) {
    EXPECT_NE(with([&](Forged& f) {
                f.top = path;
                f.member = std::string("/") + path;
              }),
              "")
        << path;
  }
  for (const char* member : {"/pods/ab", "/system.slice", "/pods", "/pods/a/../../x", "pods/a"}) {
    EXPECT_NE(with([&](Forged& f) { f.member = member; }), "") << member;
  }
  EXPECT_NE(with([](Forged& f) { f.prefix = 3; }), "");
  EXPECT_NE(with([](Forged& f) { f.prefix = 4000000000; }), "");
  EXPECT_NE(with([](Forged& f) { f.top = f.child = ""; }), "");
  EXPECT_NE(with([](Forged& f) { f.top = "", f.member = "/"; }), "");
  EXPECT_NE(with([](Forged& f) { f.name = "cpu"; }), "");
  EXPECT_NE(with([](Forged& f) { f.owner = 1000; }), "");
  EXPECT_NE(with([](Forged& f) { f.mode = 0666; }), "");
  EXPECT_NE(with([](Forged& f) { f.more = Bytes(2, Bytes(1, "memory") + Bytes(2, Bytes(1, "system.slice"))); }), "");
  EXPECT_NE(with([](Forged& f) { f.more = Bytes(2, Bytes(2, Bytes(1, "pods/a"))); }), "");
}

TEST(ImageCgroups, EveryTruncationIsRefusedAndAnyByteSurvived) {
  TempDir dir;
  const std::string whole = Image(kMagic, Entry(Cgroups({})));
  for (size_t size = 0; size < whole.size(); ++size) {
    if (size == 8) continue;  // names none
    ASSERT_TRUE(WriteFileAtomically(dir / "cgroup.img", whole.substr(0, size)).ok());
    EXPECT_FALSE(CheckImageCgroups(dir.path(), {"memory"}).ok()) << size;
  }
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep = Bytes(1, "a") + Bytes(2, deep);
  ASSERT_TRUE(WriteFileAtomically(dir / "cgroup.img", Image(kMagic, Entry(Bytes(2, Bytes(1, "memory") + Bytes(2, deep))))).ok());
  EXPECT_FALSE(CheckImageCgroups(dir.path(), {"memory"}).ok());
}

}  // namespace
}  // namespace holdfast::runtime
