// Archives as kubelets make them, and as attackers would.
#include "agent/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes.h"

namespace holdfast::agent {
namespace {

struct Entry {
  std::string name{}, content{};
  int type = AE_IFREG;
  std::string link{};
  bool hard = false;
};

class ArchiveTest : public testing::Test {
 protected:
  void Write(const std::vector<Entry>& entries) {
    archive* out = archive_write_new();
    archive_write_set_format_pax_restricted(out);
    ASSERT_EQ(archive_write_open_filename(out, tar.c_str()), ARCHIVE_OK);
    for (const Entry& e : entries) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, e.name.c_str());
      archive_entry_set_mode(entry, static_cast<mode_t>(e.type | 04777));
      if (e.hard)
        archive_entry_set_hardlink(entry, e.link.c_str());
      else if (!e.link.empty())
        archive_entry_set_symlink(entry, e.link.c_str());
      if (e.type == AE_IFREG && !e.hard) archive_entry_set_size(entry, static_cast<la_int64_t>(e.content.size()));
      if (e.type == AE_IFCHR) archive_entry_set_rdev(entry, 0x103);
      ASSERT_EQ(archive_write_header(out, entry), ARCHIVE_OK);
      archive_write_data(out, e.content.data(), e.content.size());
      archive_entry_free(entry);
    }
    archive_write_free(out);
  }

  TempDir dir;
  std::string tar = dir.path() + "/a.tar", to = dir.path() + "/landing";
};

const Entry kInventory{"checkpoint/inventory.img", "i"};

TEST_F(ArchiveTest, TakesImagesConfigAndTheRootfsDiff) {
  Write({kInventory,
         {"checkpoint/", "", AE_IFDIR},
         {"./checkpoint/pages-1.img", std::string(9000, 'p')},
         {"spec.dump", "{}"},
         {"config.dump", "x"},
         {"rootfs-diff.tar", "r"},
         {"dump.log", "l"},
         {"io.kubernetes.cri-o.LogPath", "z"}});
  Result<ArchiveSizes> sizes = ExtractKubeletArchive(tar, to);
  ASSERT_TRUE(sizes.ok()) << sizes.status().message();
  EXPECT_EQ(sizes->memory_bytes, 9000);
  EXPECT_EQ(ReadFile(to + "/images/pages-1.img")->size(), 9000u);
  EXPECT_EQ(*ReadFile(to + "/config.json"), "{}");
  EXPECT_THAT(*ListDir(to), testing::ElementsAre("config.json", "dump.log", "images", "rootfs-diff.tar"));
  struct stat info;
  ASSERT_EQ(stat((to + "/images/pages-1.img").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u) << "no mode of the archive's is taken over";
}

TEST_F(ArchiveTest, NothingLeavesTheFolder) {
  const std::vector<Entry> hostile = {{"checkpoint/../../evil", "x"},
                                      {"../evil", "x"},
                                      {"checkpoint/..", "x"},
                                      {"/etc/evil", "x"},
                                      {"checkpoint/pages-1.img", "", AE_IFLNK, "/etc/passwd"},
                                      {"rootfs-diff.tar", "", AE_IFCHR},
                                      {"checkpoint/x.img", "", AE_IFREG, "/etc/passwd", true},
                                      {"dump.log", "", AE_IFIFO}};
  for (const Entry& entry : hostile) {
    SCOPED_TRACE(entry.name);
    Write({kInventory, entry});
    EXPECT_FALSE(ExtractKubeletArchive(tar, to).ok());
    EXPECT_FALSE(Exists(dir.path() + "/evil"));
  }
}

TEST_F(ArchiveTest, AnAbsoluteNameOfAnImageIsRefused) {
  Write({kInventory, {"//checkpoint/pages-1.img", "x"}});
  EXPECT_FALSE(ExtractKubeletArchive(tar, to).ok());
}

TEST_F(ArchiveTest, ALinkThatLiesThereAlreadyIsNotFollowed) {
  ASSERT_TRUE(MakeDirs(to).ok());
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/victim", "safe").ok());
  ASSERT_EQ(symlink((dir.path() + "/victim").c_str(), (to + "/dump.log").c_str()), 0);
  Write({kInventory, {"dump.log", "overwritten"}});
  EXPECT_TRUE(ExtractKubeletArchive(tar, to).ok());
  EXPECT_EQ(*ReadFile(dir.path() + "/victim"), "safe");
}

TEST_F(ArchiveTest, LimitsOfSizeAndNumberHold) {
  Write({kInventory, {"rootfs-diff.tar", std::string(5000, 'x')}});
  ArchiveLimits limits;
  limits.max_bytes = 4000;
  EXPECT_EQ(ExtractKubeletArchive(tar, to, limits).status().code(), Code::kResourceExhausted);
  limits = {};
  limits.max_files = 1;
  EXPECT_EQ(ExtractKubeletArchive(tar, to, limits).status().code(), Code::kResourceExhausted);
}

TEST_F(ArchiveTest, ANameTwiceIsRefused) {
  Write({kInventory, kInventory});
  EXPECT_FALSE(ExtractKubeletArchive(tar, to).ok());
}

TEST_F(ArchiveTest, WhatIsNoArchiveOrCutOffOrWithoutImagesIsDamage) {
  ASSERT_TRUE(WriteFileAtomically(tar, std::string(4096, 'z')).ok());
  EXPECT_EQ(ExtractKubeletArchive(tar, to).status().code(), Code::kDataLoss);
  Write({{"dump.log", "x"}});
  EXPECT_EQ(ExtractKubeletArchive(tar, to).status().code(), Code::kDataLoss);
  Write({kInventory, {"rootfs-diff.tar", std::string(50000, 'x')}});
  ASSERT_EQ(truncate(tar.c_str(), 20000), 0);
  EXPECT_EQ(ExtractKubeletArchive(tar, to).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace holdfast::agent
