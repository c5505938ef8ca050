// Hole 9: files that a stolen node puts among the images.
#include "runtime/image_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

TEST(ImageNames, AreThoseOfADumpOfOurs) {
  for (const char* name : {"inventory.img",
                           "core-1.img",
                           "core-4294967295.img",
                           "fdinfo-2.img",
                           "files.img",
                           "pages-1.img",
                           "pagemap-1.img",
                           "pagemap-shmem-6615.img",
                           "tmpfs-dev-389.tar.gz.img",
                           "tmpfs-12.tar.gz.img",
                           "ghost-file-1f.img",
                           "tcp-stream-59b529.img",
                           "mountpoints-14.img",
                           "ipcns-shm-11.img",
                           "netns-10.img",
                           "cgroup.img",
                           "descriptors.json",
                           "memfd.img",
                           "tty-info.img",
                           "timens-13.img",
                           "pidns-5.img",
                           "sk-queues.img"}) {
    EXPECT_TRUE(IsImageName(name)) << name;
  }
  // Texts for tools that run as root, policies for the node's kernel, formats that come before what newer ones say, ways to elsewhere.
  for (const char* name : {"iptables-10.img",
                           "ip6tables-10.img",
                           "nftables-10.img",
                           "route-10.img",
                           "route6-10.img",
                           "rule-10.img",
                           "ifaddr-10.img",
                           "netdev-10.img",
                           "netns-ct-10.img",
                           "netns-exp-10.img",
                           "apparmor.img",
                           "binfmt-misc.img",
                           "binfmt-misc-9.img",
                           "autofs-9.img",
                           "userns-7.img",
                           "creds-1.img",
                           "rlimit-1.img",
                           "vmas-1.img",
                           "reg-files.img",
                           "unixsk.img",
                           "parent",
                           "core-.img",
                           "core-1x.img",
                           "core-1.img.tmp",
                           "core-../1.img",
                           "",
                           ".img",
                           "tmpfs-dev-x.tar.gz.img",
                           "pages-.img",
                           "plugin.img",
                           "amdgpu-kfd-1.img"}) {
    EXPECT_FALSE(IsImageName(name)) << name;
  }
}

TEST(ImageNames, AnythingElseAndAnyLinkIsRefused) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "core-1.img", "").ok());
  EXPECT_TRUE(CheckImageNames(dir.path(), Json::object()).ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "iptables-9.img", "").ok());
  Status status = CheckImageNames(dir.path(), Json::object());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("iptables-9.img"), std::string::npos) << status.message();
  ASSERT_TRUE(RemoveAll(dir / "iptables-9.img").ok());
  ASSERT_EQ(symlink("/etc/shadow", (dir / "pages-1.img").c_str()), 0);
  EXPECT_EQ(CheckImageNames(dir.path(), Json::object()).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(RemoveAll(dir / "pages-1.img").ok());
  ASSERT_TRUE(MakeDirs(dir / "pages-1.img").ok());
  EXPECT_EQ(CheckImageNames(dir.path(), Json::object()).code(), Code::kFailedPrecondition);
}

TEST(ImageNames, OnlyStandardDescriptorsAreInherited) {
  TempDir dir;
  for (const auto& [text, code] :
       std::map<std::string, Code>{{R"(["/dev/null","pipe:[1]","pipe:[2]"])", Code::kOk},
                                   {R"(["","","","pipe:[7]"])", Code::kFailedPrecondition},  // CRIU's way to its images
                                   {R"({"3":"pipe:[7]"})", Code::kDataLoss},
                                   {"[", Code::kDataLoss}}) {
    ASSERT_TRUE(WriteFileAtomically(dir / "descriptors.json", text).ok());
    EXPECT_EQ(CheckImageNames(dir.path(), Json::object()).code(), code) << text;
  }
}

TEST(ImageNames, ABpfMapNeedsItsCapability) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "bpfmap-data.img", "").ok());
  EXPECT_EQ(CheckImageNames(dir.path(), Json::object()).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(CheckImageNames(dir.path(), {{"process", {{"capabilities", {{"bounding", {"CAP_BPF"}}}}}}}).ok());
}

}  // namespace
}  // namespace holdfast::runtime
