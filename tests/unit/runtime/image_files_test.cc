// Hole 9: a stolen node has CRIU open and make files, and follow links to them.
#include "runtime/image_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "runtime/image_made.h"
#include "runtime/image_paths.h"
#include "tests/unit/runtime/image_maker.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr uint32_t kFiles = 0x56303138, kRemaps = 0x59133954, kGhost = 0x52583605, kNetwork = 0x55933752;

std::string File(uint32_t field, uint32_t id, const std::string& content) {
  return Entry(Number(1, 1) + Number(2, id) + Bytes(field, content));
}
std::string Regular(uint32_t id, const std::string& path, uint64_t flags = O_RDONLY, uint64_t mode = S_IFREG | 0644, int mount = -1) {
  return File(3, id,
              Number(1, id) + Number(2, flags) + Number(3, 0) + Bytes(6, path) +
                  (mount < 0 ? "" : Number(7, static_cast<uint64_t>(mount) << 1)) + Number(10, mode));
}
std::string Socket(const std::string& name, const std::string& folder = "") {
  return File(16, 9, Number(1, 9) + Bytes(10, Number(1, 1)) + Bytes(11, name) + (folder.empty() ? "" : Bytes(14, folder)));
}

class ImageFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"images", "root/etc", "root/proc", "root/dev", "volume/folder"}) ASSERT_TRUE(MakeDirs(dir / folder).ok());
    mounts.mounts = {{"/", MountKind::kRoot, 1},
                     {"/proc", MountKind::kProc, 2, 1},
                     {"/dev", MountKind::kTmpfs, 3, 1, 77},
                     {"/data", MountKind::kBind, 4, 1, 0, false, dir / "volume"},
                     {"/config", MountKind::kBind, 5, 1, 0, true, dir / "volume"},
                     {"/proc/sys", MountKind::kProc, 6, 2, 0, true}};
    spec = {{"process", {{"user", {{"uid", 1000}}}, {"capabilities", {{"bounding", Json::array()}}}}}};
  }
  Result<ImagePaths> Check(const std::string& entries, const std::string& remaps = "") {
    EXPECT_TRUE(WriteFileAtomically(dir / "images/files.img", Image(kFiles, entries)).ok());
    EXPECT_TRUE(WriteFileAtomically(dir / "images/remap-fpath.img", Image(kRemaps, remaps)).ok());
    return CheckImageFiles(dir / "images", spec, mounts);
  }
  void Refused(const std::string& entries, const std::string& why, const std::string& remaps = "") {
    const Status status = Check(entries, remaps).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << why;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }
  void Allow(const char* capability) { spec["process"]["capabilities"]["bounding"].push_back(capability); }
  Status Walk(const std::string& entries) {
    Result<ImagePaths> paths = Check(entries);
    if (!paths.ok()) return paths.status();
    return CheckImagePaths(dir / "images", mounts, *paths, dir / "root");
  }
  TempDir dir;
  Json spec;
  ImageMounts mounts;
};

TEST_F(ImageFilesTest, WhatAContainerCanOpenIsRestored) {
  std::string entries;
  uint32_t id = 1;
  for (const char* path :
       {"/", "/bin/sh", "/data/x", "/proc", "/proc/1/mountinfo", "/proc/7/fd", "/proc/7/task/8/stat", "/proc/7/fdinfo/3", "/proc/self-made",
        "/proc/meminfo", "/data/self/exe", "/proc/sys/kernel/ns_last_pid", "/etc/..data/x", "/memfd:x (deleted)", "/proc/7/net/tcp"}) {
    entries += Regular(id++, path);
  }
  entries += Regular(90, "/data/w", O_RDWR) + Regular(91, "/config/pipe", O_RDWR, S_IFIFO | 0600) +
             Regular(92, "/dev/null", O_RDWR, S_IFCHR | 0666);
  for (uint32_t kind : {5, 8, 9, 10, 12, 17, 18, 19, 20, 22}) entries += File(kind, id++, "");  // namespaces, eventfd, epoll, …, pidfd
  entries += File(4, 93, Number(4, 1) + Bytes(14, Number(10, 0))) + File(4, 94, Number(3, 2) + Number(4, 2));
  entries += File(7, 95, Number(3, 0) + Number(8, 1)) + File(7, 96, Number(3, 9));
  entries +=
      Socket(std::string("/data/sock\0", 11)) + Socket(std::string("\0abstract", 9)) + Socket("") + Socket(std::string("rel\0", 4), "/tmp");
  Result<ImagePaths> paths = Check(entries);
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  EXPECT_EQ(paths->names, (std::vector<std::string>{"/data/sock", "/tmp/rel"}));
}

TEST_F(ImageFilesTest, NoPathLeavesTheContainer) {
  for (const std::string& path : {std::string("../etc/shadow"), std::string("/data/../../etc/shadow"), std::string("etc"),
                                  std::string("/data//x"), std::string("/./x"), std::string("extRootNetNS"), std::string()}) {
    Refused(Regular(1, path), "leads out of the container");
  }
  for (const char* path : {"/proc/self/fd/1017/etc/shadow", "/proc/1/root/etc/shadow", "/proc/1/exe", "/proc/1/cwd/x", "/proc/1/fd/1017",
                           "/proc/1/root", "/proc/1/task/1/root", "/proc/thread-self/root", "/proc/1/map_files/1-2", "/proc/1/ns/mnt"}) {
    Refused(Regular(1, path), "leads through a process");
  }
  Refused(Regular(1, "/proc/kmsg"), "CAP_SYSLOG");
  EXPECT_EQ(Check(Regular(1, std::string("/data\0/x", 8))).status().code(), Code::kDataLoss);
  // Of a container whose mounts were not compared.
  mounts.mounts.clear();
  Refused(Regular(1, "/proc/1/root/etc"), "leads through a process");
}

TEST_F(ImageFilesTest, WhatNeedsACapabilityIsRefusedWithoutIt) {
  const std::map<std::string, std::string> kinds = {
      {"CAP_NET_RAW", File(6, 1, "")},
      {"CAP_NET_ADMIN", File(11, 1, "")},
      {"CAP_BPF", File(21, 1, "")},
      {"CAP_SYS_ADMIN", File(14, 1, "")},
      {"CAP_AUDIT_READ", File(7, 1, Number(3, 9) + Number(8, 1))},
  };
  for (const auto& [capability, entries] : kinds) Refused(entries, capability);
  Refused(File(4, 1, Number(4, 3)), "a raw socket");
  Refused(File(4, 1, Number(4, 1) + Bytes(14, Number(10, 7))), "a mark");
  Refused(File(7, 1, Number(3, 12) + Number(8, 1)), "netlink");
  for (const auto& [capability, entries] : kinds) {
    spec["process"]["capabilities"]["bounding"] = Json::array({capability});
    EXPECT_TRUE(Check(entries).ok()) << capability;
  }
  Allow("CAP_SYS_ADMIN");
  for (const auto& [capability, entries] : kinds) EXPECT_TRUE(Check(entries).ok()) << capability;
  Refused(File(15, 1, ""), "plugin");
  Refused(File(23, 1, ""), "do not know");
  Refused(File(3, 1, Number(1, 1) + Bytes(6, "/x") + Number(9, 1)), "plugin");
}

TEST_F(ImageFilesTest, NothingIsWrittenOnAReadOnlyMount) {
  for (uint64_t flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC}) Refused(Regular(1, "/proc/sys/kernel/core_pattern", flags), "read-only");
  Refused(Regular(1, "/config/x", O_RDWR), "read-only");
  EXPECT_TRUE(Check(Regular(1, "/config/x") + Regular(2, "/data/x", O_RDWR)).ok());
}

TEST_F(ImageFilesTest, ADeletedFileIsMadeOnItsOwnMount) {
  const std::string remap = Entry(Number(1, 1) + Number(2, 1) + Number(3, 1));
  EXPECT_TRUE(Check(Regular(1, "/data/x", O_RDWR, S_IFREG, 4), remap).ok());
  EXPECT_TRUE(Check(Regular(1, "/config/x", O_RDONLY, S_IFREG, 5), remap).ok());
  Refused(Regular(1, "/proc/sys/x", O_RDONLY, S_IFREG, 6), "where none can be", remap);
  Refused(Regular(1, "/data/x", O_RDWR, S_IFREG, 6), "where none can be", remap);
  EXPECT_EQ(Check(Regular(2, "/data/x"), remap).status().code(), Code::kDataLoss);
  Refused(Regular(1, "/data/x"), "do not know", Entry(Number(1, 1) + Number(2, 1) + Number(3, 3)));
  ASSERT_TRUE(Check(Regular(1, "/data/x")).ok());
  for (const auto& [mode, good] : std::map<uint64_t, bool>{{S_IFREG | 0644, true},
                                                           {S_IFDIR | 02775, true},
                                                           {S_IFIFO | 0600, true},
                                                           {S_IFSOCK | 0600, true},
                                                           {S_IFBLK | 0666, false},
                                                           {S_IFCHR | 0666, false},
                                                           {S_IFLNK | 0777, false},
                                                           {S_IFREG | 04755, false}}) {
    ASSERT_TRUE(WriteFileAtomically(dir / "images/ghost-file-1.img",
                                    Image(kGhost, Entry(Number(1, 0) + Number(2, 0) + Number(3, mode) + Number(6, 5)) + "content"))
                    .ok());
    EXPECT_EQ(CheckImageMade(dir / "images", spec).ok(), good) << mode;
  }
}

TEST_F(ImageFilesTest, TheNetworkIsThePodsOwn) {
  for (const auto& [message, good] :
       std::map<std::string, bool>{{Bytes(8, "extRootNetNS"), true}, {Bytes(8, "extRootPidNS"), false}, {Number(1, 1), false}}) {
    ASSERT_TRUE(WriteFileAtomically(dir / "images/netns-10.img", Image(kNetwork, Entry(message))).ok());
    EXPECT_EQ(CheckImageMade(dir / "images", spec).ok(), good);
  }
}

TEST_F(ImageFilesTest, AFileIsOpenByNoLink) {
  EXPECT_TRUE(Walk(Regular(1, "/data/folder/x") + Regular(2, "/gone/x") + Regular(3, "/config") + Regular(4, "/etc/x")).ok());
  ASSERT_EQ(symlink("/proc/self/fd/1017", (dir / "volume/way").c_str()), 0);
  ASSERT_EQ(symlink("/", (dir / "root/etc/up").c_str()), 0);
  for (const char* path : {"/data/way", "/data/way/etc/shadow", "/etc/up/x", "/config/way"}) {
    EXPECT_EQ(Walk(Regular(1, path)).code(), Code::kFailedPrecondition) << path;
  }
}

TEST_F(ImageFilesTest, LinksThatATmpfsGetsAreSeen) {
  ASSERT_TRUE(MakeDirs(dir / "dev/real").ok());
  ASSERT_EQ(symlink("/proc/self/fd", (dir / "dev/fd").c_str()), 0);
  ASSERT_EQ(link((dir / "dev/fd").c_str(), (dir / "dev/same").c_str()), 0);
  Result<ProcessResult> tar = RunProcess({"tar", "czf", dir / "images/tmpfs-dev-77.tar.gz.img", "-C", dir / "dev", "."}, {});
  ASSERT_TRUE(tar.ok() && tar->exit_code == 0);
  EXPECT_TRUE(Walk(Regular(1, "/dev/null") + Regular(2, "/dev/real/x")).ok());
  for (const char* path : {"/dev/fd", "/dev/fd/17", "/dev/same/17"})
    EXPECT_EQ(Walk(Regular(1, path)).code(), Code::kFailedPrecondition) << path;
  EXPECT_EQ(Walk(Socket("/dev/same/17/etc/x")).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(WriteFileAtomically(dir / "images/tmpfs-dev-77.tar.gz.img", "\x1f\x8b\x08 damaged").ok());
  EXPECT_FALSE(Walk(Regular(1, "/dev/null")).ok());
}

TEST_F(ImageFilesTest, ASocketsNameMayBeALinkWithinTheContainer) {
  ASSERT_TRUE(MakeDirs(dir / "root/run/app").ok());
  ASSERT_TRUE(MakeDirs(dir / "root/var").ok());
  ASSERT_EQ(symlink("/run", (dir / "root/var/run").c_str()), 0);
  ASSERT_EQ(symlink("../../data/folder", (dir / "root/run/app/link").c_str()), 0);
  for (const char* name : {"/var/run/app/x.sock", "/var/run/app/link/x.sock", "//run//x", "/run/../run/x"})
    EXPECT_TRUE(Walk(Socket(name)).ok()) << name;
  EXPECT_TRUE(Walk(Socket("../x", "/run/app")).ok());
  ASSERT_EQ(symlink("../../../proc/self/fd/1017", (dir / "volume/folder/out").c_str()), 0);
  ASSERT_EQ(symlink("loop", (dir / "volume/loop").c_str()), 0);
  for (const char* name : {"/data/folder/out/etc/x", "/run/app/link/out", "/proc/self/fd/1017/x", "/data/loop/x", "/run/../proc/1/root/x"})
    EXPECT_EQ(Walk(Socket(name)).code(), Code::kFailedPrecondition) << name;
  EXPECT_EQ(Walk(Socket("x", "../etc")).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace holdfast::runtime
