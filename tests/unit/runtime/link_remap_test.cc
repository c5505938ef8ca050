#include "runtime/link_remap.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string Word(uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); }
std::string Number(uint32_t field, char value) { return {static_cast<char>(field << 3), value}; }
std::string Bytes(uint32_t field, const std::string& content) {
  return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(content.size())} + content;
}
std::string Image(uint32_t magic, const std::vector<std::string>& entries) {
  std::string image = Word(0x54564319) + Word(magic);
  for (const std::string& entry : entries) image += Word(static_cast<uint32_t>(entry.size())) + entry;
  return image;
}
std::string File(char id, const std::string& name) {
  return Number(1, 1) + Number(2, id) + Bytes(3, Number(1, id) + Number(2, 0) + Bytes(6, name));
}

class LinkRemapTest : public testing::Test {
 protected:
  // File 1 is open by a name that is gone, and CRIU calls it by file 2's; file 3 is a ghost.
  void Write(const std::string& opened, const std::string& link) {
    WriteImage("remap-fpath.img",
               Image(0x59133954, {Number(1, 1) + Number(2, 2) + Number(3, 0), Number(1, 3) + Number(2, 9) + Number(3, 1)}));
    WriteImage("files.img", Image(0x56303138, {File(1, opened), File(2, link), File(3, "/ghost")}));
  }
  void WriteImage(const std::string& name, const std::string& content) { ASSERT_TRUE(WriteFileAtomically(dir / name, content).ok()); }
  TempDir dir;
};

TEST_F(LinkRemapTest, ADumpWithoutAnyHasNone) {
  Result<std::vector<LinkRemap>> found = LinkRemapsOf(dir.path());
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, IsEmpty());
}

TEST_F(LinkRemapTest, PathsComeFromBothImages) {
  Write("/srv/opened", "/srv/link_remap.2");
  Result<std::vector<LinkRemap>> found = LinkRemapsOf(dir.path());
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ((*found)[0].opened, "/srv/opened");
  EXPECT_EQ((*found)[0].link, "/srv/link_remap.2");
}

TEST_F(LinkRemapTest, DamagedImagesAndPathsThatLeaveTheContainerAreRefused) {
  for (const char* link : {"relative", "/srv/../../etc/x", ""}) {
    Write("/srv/opened", link);
    EXPECT_EQ(LinkRemapsOf(dir.path()).status().code(), Code::kDataLoss) << link;
  }
  Write("/srv/opened", "/srv/link_remap.2");
  for (const char* name : {"remap-fpath.img", "files.img"}) {
    const std::string whole = *ReadFile(dir / name);
    WriteImage(name, whole.substr(0, whole.size() - 1));
    EXPECT_EQ(LinkRemapsOf(dir.path()).status().code(), Code::kDataLoss) << name;
    WriteImage(name, whole);
  }
}

TEST_F(LinkRemapTest, TheOpenFileGetsTheNameUntilItIsRemoved) {
  const std::string opened = dir / "opened", other = dir / "other";
  int fd = open(opened.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(link(opened.c_str(), other.c_str()), 0);
  ASSERT_EQ(unlink(opened.c_str()), 0);
  Write(opened, dir / "link_remap.2");
  LinkRemaps names;
  Status made = names.Make(dir.path(), "/proc/self/root", {getpid()});
  ASSERT_TRUE(made.ok()) << made.message();
  struct stat by_fd, by_name;
  ASSERT_EQ(fstat(fd, &by_fd), 0);
  ASSERT_EQ(stat((dir / "link_remap.2").c_str(), &by_name), 0);
  EXPECT_EQ(by_fd.st_ino, by_name.st_ino);
  names.Remove();
  EXPECT_FALSE(Exists(dir / "link_remap.2"));
  close(fd);
  EXPECT_THAT(names.Make(dir.path(), "/proc/self/root", {getpid()}).message(), HasSubstr(opened));
}

// Hole 1: who swaps a folder for a link gets no name on the node.
TEST_F(LinkRemapTest, NoNameIsMadeOutsideOfTheContainer) {
  const std::string opened = dir / "opened";
  ASSERT_TRUE(MakeDirs(dir / "rootfs").ok());
  ASSERT_TRUE(MakeDirs(dir / "host").ok());
  const int fd = open(opened.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(link(opened.c_str(), (dir / "other").c_str()), 0);
  ASSERT_EQ(unlink(opened.c_str()), 0);
  Write(opened, "/data/link_remap.2");
  for (const std::string& target : {dir / "host", std::string("../host")}) {
    ASSERT_EQ(symlink(target.c_str(), (dir / "rootfs/data").c_str()), 0);
    LinkRemaps names;
    EXPECT_FALSE(names.Make(dir.path(), dir / "rootfs", {getpid()}).ok()) << target;
    EXPECT_THAT(*ListDir(dir / "host"), IsEmpty()) << target;
    ASSERT_EQ(unlink((dir / "rootfs/data").c_str()), 0);
  }
  close(fd);
}

TEST_F(LinkRemapTest, WhatAKilledCriuLeftIsRemovedAndNothingElse) {
  const std::string folder = dir / "a", opened = folder + "/opened", elsewhere = dir / "other", gone = folder + "/b/gone";
  ASSERT_TRUE(MakeDirs(folder + "/b").ok());
  const int fd = open(opened.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), below = open(gone.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(link(opened.c_str(), elsewhere.c_str()), 0);
  for (const char* name : {"/link_remap.2", "/link_remap.2x", "/mine"}) ASSERT_EQ(link(opened.c_str(), (folder + name).c_str()), 0);
  ASSERT_EQ(link(gone.c_str(), (folder + "/link_remap.3").c_str()), 0);  // its own folder will be gone
  ASSERT_TRUE(WriteFileAtomically(folder + "/link_remap.4", "of somebody else").ok());
  ASSERT_EQ(unlink(opened.c_str()) + unlink(gone.c_str()) + rmdir((folder + "/b").c_str()), 0);
  EXPECT_EQ(RemoveLeftLinks("/proc/self/root", {getpid()}), 2);
  EXPECT_THAT(*ListDir(folder), testing::ElementsAre("link_remap.2x", "link_remap.4", "mine"));
  EXPECT_TRUE(Exists(elsewhere));
  EXPECT_EQ(RemoveLeftLinks("/proc/self/root", {getpid()}), 0);
  close(fd);
  close(below);
}

}  // namespace
}  // namespace holdfast::runtime
