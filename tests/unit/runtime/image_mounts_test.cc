// Hole 9: a stolen node has CRIU mount what its images name.
#include "runtime/image_mounts.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/runtime/image_maker.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr uint32_t kMagic = 0x55563928, kTimes = 1 << 21;  // MS_RELATIME
constexpr uint32_t kKept = MS_NOSUID | MS_NODEV | MS_NOEXEC;

struct Mount {
  std::string path;
  uint32_t type = 0, id = 0, parent = 1, flags = kTimes;
  std::string root = "/", key, options, more;
};

std::string Write(const Mount& mount) {
  return Entry(Number(1, mount.type) + Number(2, mount.id) + Number(3, 40 + mount.id) + Number(4, mount.parent) + Number(5, mount.flags) +
               Bytes(6, mount.root) + Bytes(7, mount.path) + Bytes(8, "source") + Bytes(9, mount.options) + Number(17, 0) +
               (mount.key.empty() ? "" : Bytes(18, mount.key)) + mount.more);
}

// As a dump of runc's has them, the newest first.
class ImageMountsTest : public testing::Test {
 protected:
  ImageMountsTest() {
    spec = {{"root", {{"path", "rootfs"}}},
            {"mounts",
             {{{"destination", "/proc"}, {"type", "proc"}, {"options", {"nosuid", "noexec", "nodev"}}},
              {{"destination", "/dev"}, {"type", "tmpfs"}, {"options", {"nosuid", "strictatime", "mode=755"}}},
              {{"destination", "/sys"}, {"type", "sysfs"}, {"options", {"nosuid", "noexec", "nodev", "ro"}}},
              {{"destination", "/sys/fs/cgroup"}, {"type", "cgroup"}, {"options", {"nosuid", "noexec", "nodev", "relatime", "ro"}}},
              {{"destination", "/data"}, {"type", "bind"}, {"source", "/pods/data"}, {"options", {"rbind", "rprivate", "rw"}}},
              {{"destination", "/var/run/secrets"}, {"type", "bind"}, {"source", "/pods/token"}, {"options", {"rbind", "ro"}}}}},
            {"linux", {{"maskedPaths", {"/proc/version", "/sys/kernel", "/proc/asound"}}, {"readonlyPaths", {"/proc/sys"}}}}};
    mounts = {{"/", 17, 1, 0},
              {"/proc", 1, 2, 1, kTimes | kKept},
              {"/dev", 5, 3, 1, kTimes | MS_NOSUID, "/", "", "mode=755"},
              {"/sys", 2, 4, 1, kTimes | kKept | MS_RDONLY},
              {"/sys/fs/cgroup", 5, 5, 4, kTimes | kKept, "/", "", "mode=755"},
              {"/sys/fs/cgroup/memory", 12, 6, 5, kTimes | kKept | MS_RDONLY, "/pods/a", "/sys/fs/cgroup/memory", "memory"},
              {"/data", 0, 7, 1, kTimes, "/var/lib/pods/data", "/data", "discard"},
              {"/run/secrets", 0, 8, 1, kTimes | MS_RDONLY, "/var/lib/pods/token", "/run/secrets"},
              {"/proc/version", 5, 9, 2, kTimes | MS_NOSUID, "/null", "/dev/null", "mode=755"},
              {"/sys/kernel", 5, 10, 4, kTimes | MS_RDONLY, "/", "", "size=4k"},
              {"/proc/sys", 1, 11, 2, kTimes | kKept | MS_RDONLY, "/sys"}};
    EXPECT_TRUE(MakeDirs(dir / "root/run").ok());
    EXPECT_TRUE(MakeDirs(dir / "root/var").ok());
    EXPECT_EQ(symlink("/run", (dir / "root/var/run").c_str()), 0);
  }
  Result<ImageMounts> Check() {
    std::string entries;
    for (const Mount& mount : mounts) entries = Write(mount) + entries;
    EXPECT_TRUE(WriteFileAtomically(dir / "images/mountpoints-9.img", Image(kMagic, entries)).ok());
    return CheckImageMounts(dir / "images", spec, dir / "root");
  }
  // Why it is refused with one mount changed.
  template <typename Change>
  std::string Why(size_t index, Change change) {
    const Mount was = mounts[index];
    change(mounts[index]);
    Result<ImageMounts> checked = Check();
    mounts[index] = was;
    EXPECT_EQ(checked.status().code(), Code::kFailedPrecondition) << checked.status().message();
    return std::string(checked.status().message());
  }
  std::string WhyWith(const Mount& mount) {
    mounts.push_back(mount);
    Result<ImageMounts> checked = Check();
    mounts.pop_back();
    EXPECT_EQ(checked.status().code(), Code::kFailedPrecondition) << mount.path;
    return std::string(checked.status().message());
  }
  void SetUp() override { ASSERT_TRUE(MakeDirs(dir / "images").ok()); }
  TempDir dir;
  Json spec;
  std::vector<Mount> mounts;
};

TEST_F(ImageMountsTest, WhatTheSpecMountsIsRestored) {
  Result<ImageMounts> found = Check();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_TRUE(found->narrower.empty());
  EXPECT_EQ(found->Of("/data/x/y")->source, "/pods/data");
  EXPECT_EQ(found->Of("/run/secrets/token")->source, "/pods/token");
  EXPECT_EQ(found->Of("/database")->kind, MountKind::kRoot);
  EXPECT_EQ(found->Of("/proc/sys/kernel")->id, 11U);
}

TEST_F(ImageMountsTest, NothingElseIsMounted) {
  EXPECT_NE(WhyWith({"/tmp", 5, 12}).find("/tmp is mounted, where its spec mounts nothing"), std::string::npos);
  WhyWith({"/mnt", 3, 12});                                              // the node's devices
  WhyWith({"/mnt", 16, 12, 1, kTimes, "/", "", "", Bytes(14, "ext4")});  // a file system by its name
  WhyWith({"/mnt", 17, 12, 1, kTimes, "/../../../etc"});
  WhyWith({"/mnt", 0, 12, 1, kTimes, "/", "/data"});  // a volume at another place
  WhyWith({"/mnt", 0, 12, 1, kTimes, "/", "/dev/null"});
  WhyWith({"/dev/console", 6, 12, 3, kTimes, "/../x"});
  WhyWith({"/data/../etc", 5, 12});
  WhyWith({"data", 5, 12});
  WhyWith({"/data", 0, 12, 1, kTimes, "/", "/data"});  // twice
  WhyWith({"/proc", 1, 12, 1, kTimes | kKept});        // above what is masked
  mounts.push_back({"/dev/console", 6, 12, 3, kTimes, "/0"});
  EXPECT_TRUE(Check().ok()) << Check().status().message();
  ASSERT_TRUE(WriteFileAtomically(dir / "images/mountpoints-90.img", Image(kMagic, Write(mounts[0]))).ok());
  EXPECT_FALSE(Check().ok());
}

TEST_F(ImageMountsTest, OfTheKindAndFromWhereTheSpecSays) {
  for (size_t i : {1, 2, 3, 4}) {
    EXPECT_NE(Why(i, [](Mount& m) { m.root = "/1/root/etc"; }).find("is not the"), std::string::npos);
    EXPECT_NE(Why(i, [](Mount& m) { m.type = 3; }).find("is not the"), std::string::npos);
    EXPECT_NE(Why(i, [](Mount& m) { m.key = "/data"; }).find("is not the"), std::string::npos);
    EXPECT_NE(Why(i, [](Mount& m) { m.options = "release_agent=/data/x"; }).find("release_agent"), std::string::npos);
  }
  for (size_t i : {0, 1, 6, 7, 9}) {
    for (const std::string& more : {Number(12, 1), Number(13, 1)})
      EXPECT_NE(Why(i, [&](Mount& m) { m.more = more; }).find("plugin"), std::string::npos);
  }
  for (const char* key : {"", "/run/secrets", "CRIU:AUTOGENERATED", "/etc"}) {
    EXPECT_NE(Why(6, [&](Mount& m) { m.key = key; }).find("from elsewhere"), std::string::npos) << key;
  }
  EXPECT_NE(Why(0, [](Mount& m) { m.key = "/data"; }).find("from elsewhere"), std::string::npos);
  EXPECT_NE(Why(5, [](Mount& m) { m.key = "/data"; }).find("own cgroup"), std::string::npos);
  EXPECT_NE(Why(2, [](Mount& m) { m.more = Number(16, 1); }).find("deleted"), std::string::npos);
}

TEST_F(ImageMountsTest, WhatIsReadOnlyOrMaskedIsSo) {
  for (size_t i : {3, 5, 7, 10}) Why(i, [](Mount& m) { m.flags &= ~uint32_t{MS_RDONLY}; });
  for (size_t i : {1, 2, 3, 4, 5}) Why(i, [](Mount& m) { m.flags &= ~uint32_t{MS_NOSUID}; });
  EXPECT_NE(Why(9, [](Mount& m) { m.flags = kTimes; }).find("masked"), std::string::npos);
  EXPECT_NE(Why(8, [](Mount& m) { m.key = "/data"; }).find("masked"), std::string::npos);
  for (const char* from : {"/", "/../sys", "/1/root/proc/sys", "/fs"}) Why(10, [&](Mount& m) { m.root = from; });
  // Left out, but one that tells little and is not in every node.
  for (size_t i : {8, 9, 10}) {
    const Mount was = mounts[i];
    mounts.erase(mounts.begin() + static_cast<long>(i));
    EXPECT_NE(std::string(Check().status().message()).find(was.path + " is not "), std::string::npos);
    mounts.insert(mounts.begin() + static_cast<long>(i), was);
  }
  // Hidden beneath another.
  EXPECT_NE(Why(10, [](Mount& m) { m.parent = 1; }).find("not seen"), std::string::npos);
  EXPECT_NE(Why(8, [](Mount& m) { m.id = 9, m.parent = 7; }).find("not seen"), std::string::npos);
  spec["root"]["readonly"] = true;
  EXPECT_NE(std::string(Check().status().message()).find("/ is not read-only"), std::string::npos);
}

TEST_F(ImageMountsTest, ABindOfAnOlderRuntimeGetsTheFlagsThatItLacks) {
  spec["mounts"][4]["options"] = {"rbind", "nosuid", "nodev", "noexec"};
  Result<ImageMounts> found = Check();
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->narrower, (std::map<std::string, uint32_t>{{"/data", kKept}}));
  ASSERT_TRUE(
      WriteFileAtomically(dir / "images/mountpoints-9.img", *NarrowMounts(*ReadFile(dir / "images/mountpoints-9.img"), found->narrower))
          .ok());
  found = CheckImageMounts(dir / "images", spec, dir / "root");
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->narrower.empty());
}

TEST_F(ImageMountsTest, TheUnifiedCgroupsAreOneMount) {
  mounts.erase(mounts.begin() + 5);
  Mount& cgroups = mounts[4];
  cgroups.type = 23, cgroups.flags |= MS_RDONLY, cgroups.options = "nsdelegate,memory_recursiveprot";
  for (const char* from : {"/", "/kubepods.slice/pod.slice/a.scope"}) {
    cgroups.root = from;
    EXPECT_TRUE(Check().ok()) << Check().status().message();
  }
  Why(4, [](Mount& m) { m.root = "/../.."; });
  Why(4, [](Mount& m) { m.flags &= ~uint32_t{MS_RDONLY}; });
}

TEST_F(ImageMountsTest, WhoMayMountByItselfIsNotCompared) {
  mounts.push_back({"/mnt", 17, 12});
  EXPECT_FALSE(Check().ok());
  spec["process"] = {{"capabilities", {{"bounding", {"CAP_SYS_ADMIN"}}}}};
  EXPECT_TRUE(Check().ok());
}

TEST_F(ImageMountsTest, EveryTruncationIsRefused) {
  ASSERT_TRUE(Check().ok());
  const std::string whole = *ReadFile(dir / "images/mountpoints-9.img");
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(WriteFileAtomically(dir / "images/mountpoints-9.img", whole.substr(0, size)).ok());
    // Where whole entries are left the root of all is missing, which stands last.
    EXPECT_TRUE(size == 8 || !CheckImageMounts(dir / "images", spec, dir / "root").ok()) << size;
  }
}

}  // namespace
}  // namespace holdfast::runtime
