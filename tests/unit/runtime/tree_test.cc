#include "runtime/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "runtime/mounts.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

void Write(const std::string& path, const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path, text, 0644).ok()) << path; }
struct stat Look(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info;
}
std::string Attribute(const std::string& path, const char* name) {
  char value[256];
  ssize_t n = lgetxattr(path.c_str(), name, value, sizeof value);
  return n < 0 ? "(none)" : std::string(value, static_cast<size_t>(n));
}

TEST(Tree, ComesBackWithOwnersModesTimesLinksAndAttributes) {
  TempDir dir;
  const std::string from = dir / "from", to = dir / "to";
  ASSERT_TRUE(MakeDirs(from + "/sub").ok());
  Write(from + "/sub/file", "content");
  ASSERT_EQ(chown((from + "/sub/file").c_str(), 1234, 5678), 0);
  ASSERT_EQ(chmod((from + "/sub/file").c_str(), 04751), 0);
  ASSERT_EQ(setxattr((from + "/sub/file").c_str(), "user.note", "kept", 4, 0), 0);
  ASSERT_EQ(link((from + "/sub/file").c_str(), (from + "/second").c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", (from + "/absolute").c_str()), 0);
  ASSERT_EQ(mkfifo((from + "/fifo").c_str(), 0600), 0);
  const timespec times[2] = {{1000000000, 123456789}, {1000000001, 987654321}};
  ASSERT_EQ(utimensat(AT_FDCWD, (from + "/sub").c_str(), times, 0), 0);
  ASSERT_EQ(chmod(from.c_str(), 02770), 0);
  ASSERT_TRUE(ArchiveTree(from, dir / "a.tar").ok());
  ASSERT_TRUE(MakeDirs(to).ok());
  Write(to + "/stale", "from a try before");
  Status status = ExtractTree(dir / "a.tar", to);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(*ListDir(to), (std::vector<std::string>{"absolute", "fifo", "second", "sub"}));
  struct stat file = Look(to + "/sub/file");
  EXPECT_EQ(file.st_uid, 1234u);
  EXPECT_EQ(file.st_gid, 5678u);
  EXPECT_EQ(file.st_mode & 07777, 04751u);
  EXPECT_EQ(file.st_ino, Look(to + "/second").st_ino);
  EXPECT_EQ(Attribute(to + "/sub/file", "user.note"), "kept");
  EXPECT_EQ(Look(to + "/sub").st_mtim.tv_nsec, 987654321);
  EXPECT_TRUE(S_ISLNK(Look(to + "/absolute").st_mode));
  EXPECT_TRUE(S_ISFIFO(Look(to + "/fifo").st_mode));
  EXPECT_EQ(Look(to).st_mode & 07777, 02770u);
  EXPECT_EQ(*ReadFile(to + "/second"), "content");
}

TEST(Tree, ASparseFileStaysSparse) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "from").ok());
  ASSERT_TRUE(MakeDirs(dir / "to").ok());
  int fd = open((dir / "from/big").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(pwrite(fd, "begin", 5, 0), 5);
  ASSERT_EQ(pwrite(fd, "middle", 6, 100 << 20), 6);
  ASSERT_EQ(ftruncate(fd, 200 << 20), 0);
  close(fd);
  ASSERT_TRUE(ArchiveTree(dir / "from", dir / "a.tar").ok());
  EXPECT_LT(Look(dir / "a.tar").st_size, 1 << 20);
  ASSERT_TRUE(ExtractTree(dir / "a.tar", dir / "to").ok());
  struct stat big = Look(dir / "to/big");
  EXPECT_EQ(big.st_size, 200 << 20);
  EXPECT_LT(big.st_blocks, 1 << 11);
  fd = open((dir / "to/big").c_str(), O_RDONLY);
  char text[8] = {};
  EXPECT_EQ(pread(fd, text, 6, 100 << 20), 6);
  EXPECT_STREQ(text, "middle");
  EXPECT_EQ(pread(fd, text, 5, 0), 5);
  close(fd);
}

TEST(Tree, AFileOfNothingButAHoleAndAnEmptyOneComeBack) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "from").ok());
  ASSERT_TRUE(MakeDirs(dir / "to").ok());
  for (const char* name : {"from/a hole", "from/empty", "from/last"}) Write(dir / name, "");
  ASSERT_EQ(truncate((dir / "from/a hole").c_str(), 1 << 30), 0);
  Write(dir / "from/last", "comes after them");
  ASSERT_TRUE(ArchiveTree(dir / "from", dir / "a.tar").ok());
  Status status = ExtractTree(dir / "a.tar", dir / "to");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Look(dir / "to/a hole").st_size, 1 << 30);
  EXPECT_EQ(Look(dir / "to/a hole").st_blocks, 0);
  EXPECT_EQ(Look(dir / "to/empty").st_size, 0);
  EXPECT_EQ(*ReadFile(dir / "to/last"), "comes after them");
}

// A file system of its own, in memory.
class Memory {
 public:
  explicit Memory(const std::string& path) : path_(path) {
    EXPECT_TRUE(MakeDirs(path).ok());
    EXPECT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
    EXPECT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    EXPECT_EQ(mount("tmpfs", path.c_str(), "tmpfs", 0, "size=64m"), 0);
  }
  ~Memory() { umount2(path_.c_str(), MNT_DETACH); }

 private:
  const std::string path_;
};

// Hole 20: it took almost endless calls, one for each MiB of nothing.
TEST(Tree, AFileOfExbibytesCostsWhatIsInIt) {
  TempDir dir;
  Memory from(dir / "from"), to(dir / "to");
  constexpr off_t kSize = off_t{7} << 60;
  const int fd = open((dir / "from/vast").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(fd, kSize), 0);
  ASSERT_EQ(pwrite(fd, "begin", 5, 0), 5);
  ASSERT_EQ(pwrite(fd, "middle", 6, kSize / 2), 6);
  ASSERT_EQ(pwrite(fd, "end", 3, kSize - 3), 3);
  close(fd);
  Status archived = ArchiveTree(dir / "from", dir / "a.tar");
  ASSERT_TRUE(archived.ok()) << archived.message();
  EXPECT_LT(Look(dir / "a.tar").st_size, 1 << 20);
  Status extracted = ExtractTree(dir / "a.tar", dir / "to");
  ASSERT_TRUE(extracted.ok()) << extracted.message();
  EXPECT_EQ(Look(dir / "to/vast").st_size, kSize);
  const int back = open((dir / "to/vast").c_str(), O_RDONLY);
  char text[8] = {};
  EXPECT_EQ(pread(back, text, 6, kSize / 2), 6);
  EXPECT_STREQ(text, "middle");
  EXPECT_EQ(pread(back, text, 6, kSize - 3), 3);
  EXPECT_EQ(std::string(text, 3), "end");
  close(back);
}

// Hole 20: the archive had no deadline.
TEST(Tree, ADeadlineEndsItAndLeavesNothing) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "from").ok());
  Write(dir / "from/file", "content");
  Status late = ArchiveTree(dir / "from", dir / "a.tar", Clock::Real().Mono());
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.message();
  EXPECT_FALSE(Exists(dir / "a.tar"));
  EXPECT_TRUE(ArchiveTree(dir / "from", dir / "a.tar", Clock::Real().Mono() + std::chrono::hours(1)).ok());
}

TEST(Tree, NamesAreBytesAndMayBeLong) {
  TempDir dir;
  std::string deep = dir / "from";
  const std::string folder(200, 'f');
  for (int level = 0; level < 3; ++level) deep += "/" + folder;
  ASSERT_TRUE(MakeDirs(deep).ok());
  ASSERT_TRUE(MakeDirs(dir / "to").ok());
  const std::vector<std::string> names = {"\xff\xfe no UTF-8", "caf\xc3\xa9", "new\nline", std::string(250, 'n')};
  for (const std::string& name : names) Write(deep + "/" + name.substr(0, 240), name);
  ASSERT_EQ(symlink(std::string(3000, 't').c_str(), (deep + "/link").c_str()), 0);
  ASSERT_EQ(link((deep + "/caf\xc3\xa9").c_str(), (deep + "/caf\xc3\xa9 again").c_str()), 0);
  ASSERT_TRUE(ArchiveTree(dir / "from", dir / "a.tar").ok());
  Status status = ExtractTree(dir / "a.tar", dir / "to");
  ASSERT_TRUE(status.ok()) << status.message();
  deep = dir / "to";
  for (int level = 0; level < 3; ++level) deep += "/" + folder;
  for (const std::string& name : names) EXPECT_EQ(ReadFile(deep + "/" + name.substr(0, 240)).value_or("(none)"), name);
  char target[4096];
  EXPECT_EQ(readlink((deep + "/link").c_str(), target, sizeof target), 3000);
  EXPECT_EQ(Look(deep + "/caf\xc3\xa9").st_ino, Look(deep + "/caf\xc3\xa9 again").st_ino);
}

TEST(Tree, AccessListsComeBackAndAreNotInherited) {
  TempDir dir;
  Memory from(dir / "from"), to(dir / "to");
  // Version 2; user::rwx user:1234:rw- group::r-x mask::rwx other::---
  const std::string acl(
      "\x02\0\0\0"
      "\x01\0\x07\0\xff\xff\xff\xff"
      "\x02\0\x06\0\xd2\x04\0\0"
      "\x04\0\x05\0\xff\xff\xff\xff"
      "\x10\0\x07\0\xff\xff\xff\xff"
      "\x20\0\0\0\xff\xff\xff\xff",
      44);
  ASSERT_TRUE(MakeDirs(dir / "from/folder").ok());
  Write(dir / "from/folder/plain", "none");
  Write(dir / "from/listed", "one");
  ASSERT_EQ(setxattr((dir / "from/listed").c_str(), "system.posix_acl_access", acl.data(), acl.size(), 0), 0);
  ASSERT_EQ(setxattr((dir / "from/folder").c_str(), "system.posix_acl_default", acl.data(), acl.size(), 0), 0);
  ASSERT_TRUE(ArchiveTree(dir / "from", dir / "a.tar").ok());
  ASSERT_TRUE(ExtractTree(dir / "a.tar", dir / "to").ok());
  EXPECT_EQ(Attribute(dir / "to/listed", "system.posix_acl_access"), acl);
  EXPECT_EQ(Look(dir / "to/listed").st_mode, Look(dir / "from/listed").st_mode);
  EXPECT_EQ(Attribute(dir / "to/folder", "system.posix_acl_default"), acl);
  EXPECT_EQ(Attribute(dir / "to/folder/plain", "system.posix_acl_access"), "(none)");
  EXPECT_EQ(Look(dir / "to/folder/plain").st_mode, Look(dir / "from/folder/plain").st_mode);
}

// libarchive's writer, which made what is stored from before.
TEST(Tree, AnArchiveOfLibarchivesComesBack) {
  TempDir dir;
  Memory to(dir / "to");
  archive* out = archive_write_new();
  archive_write_set_format_pax(out);
  ASSERT_EQ(archive_write_open_filename(out, (dir / "a.tar").c_str()), ARCHIVE_OK);
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, "caf\xc3\xa9");
  archive_entry_set_mode(entry, S_IFREG | 0640);
  archive_entry_set_uid(entry, 3'000'000);
  archive_entry_set_size(entry, 8 << 20);
  archive_entry_set_mtime(entry, 1000000000, 5);
  archive_entry_sparse_add_entry(entry, 4 << 20, 4096);
  archive_entry_xattr_add_entry(entry, "trusted.note", "kept", 4);
  archive_entry_acl_add_entry(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, ARCHIVE_ENTRY_ACL_READ, ARCHIVE_ENTRY_ACL_USER, 1234, nullptr);
  archive_entry_acl_add_entry(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, ARCHIVE_ENTRY_ACL_READ, ARCHIVE_ENTRY_ACL_MASK, -1, nullptr);
  ASSERT_EQ(archive_write_header(out, entry), ARCHIVE_OK) << archive_error_string(out);
  const std::string content = std::string(4 << 20, '\0') + std::string(4096, 'x') + std::string((4 << 20) - 4096, '\0');
  ASSERT_EQ(archive_write_data(out, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  archive_entry_free(entry);
  archive_write_free(out);
  Status status = ExtractTree(dir / "a.tar", dir / "to");
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string file = dir / "to/caf\xc3\xa9";
  EXPECT_EQ(*ReadFile(file), content);
  EXPECT_EQ(Look(file).st_uid, 3'000'000U);
  EXPECT_EQ(Look(file).st_mtim.tv_nsec, 5);
  EXPECT_EQ(Look(file).st_mode & 07777, 0640U);
  EXPECT_EQ(Attribute(file, "trusted.note"), "kept");
  EXPECT_EQ(Attribute(file, "system.posix_acl_access").size(), 4U + 5 * 8);
}

// A container's overlay on two nodes, over the same image.
class Upper : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
    ASSERT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    for (const char* path : {"image/etc/folder/deep", "image/kept", "image/other"}) ASSERT_TRUE(MakeDirs(dir_ / path).ok());
    for (const char* path : {"image/etc/gone", "image/etc/changed", "image/etc/folder/old", "image/kept/file"}) Write(dir_ / path, "image");
    Mount("old");
    Mount("new");
  }
  void TearDown() override {
    for (const char* name : {"old", "new"}) umount2((dir_ / name + "/root").c_str(), MNT_DETACH);
  }
  void Mount(const std::string& name) {
    const std::string base = dir_ / name;
    for (const char* part : {"/fs", "/work", "/root"}) ASSERT_TRUE(MakeDirs(base + part).ok());
    const std::string options = "lowerdir=" + (dir_ / "image") + ",upperdir=" + base + "/fs,workdir=" + base + "/work";
    ASSERT_EQ(mount("overlay", (base + "/root").c_str(), "overlay", 0, options.c_str()), 0) << strerror(errno);
  }
  // From the old root's upper directory, found as a dump does it, into the new root.
  Status Move() {
    HF_ASSIGN_OR_RETURN(std::string upper, OverlayUpper(old_));
    HF_RETURN_IF_ERROR(ArchiveTree(upper, dir_ / "upper.tar"));
    return ExtractUpper(dir_ / "upper.tar", new_);
  }
  TempDir dir_;
  const std::string old_ = dir_ / "old/root", new_ = dir_ / "new/root";
};

TEST_F(Upper, DeletedFilesAreDeletedAndChangedOnesChanged) {
  ASSERT_EQ(unlink((old_ + "/etc/gone").c_str()), 0);
  Write(old_ + "/etc/changed", "by the container");
  Write(old_ + "/etc/fresh", "new");
  ASSERT_EQ(setxattr((old_ + "/etc/fresh").c_str(), "user.note", "kept", 4, 0), 0);
  Status moved = Move();
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_EQ(*ListDir(new_ + "/etc"), (std::vector<std::string>{"changed", "folder", "fresh"}));
  EXPECT_EQ(*ReadFile(new_ + "/etc/changed"), "by the container");
  EXPECT_EQ(Attribute(new_ + "/etc/fresh", "user.note"), "kept");
  EXPECT_EQ(*ReadFile(new_ + "/kept/file"), "image");
}

TEST_F(Upper, AFolderMadeAnewDoesNotShowWhatTheImageHadInIt) {
  ASSERT_TRUE(RemoveAll(old_ + "/etc/folder").ok());
  ASSERT_EQ(mkdir((old_ + "/etc/folder").c_str(), 0700), 0);
  Write(old_ + "/etc/folder/mine", "new");
  ASSERT_EQ(Attribute(dir_ / "old/fs/etc/folder", "trusted.overlay.opaque"), "y");
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(*ListDir(new_ + "/etc/folder"), std::vector<std::string>{"mine"});
}

TEST_F(Upper, AFolderInPlaceOfAFileAndTheOtherWayRound) {
  ASSERT_EQ(unlink((old_ + "/etc/gone").c_str()), 0);
  ASSERT_TRUE(MakeDirs(old_ + "/etc/gone/inside").ok());
  ASSERT_TRUE(RemoveAll(old_ + "/etc/folder").ok());
  Write(old_ + "/etc/folder", "a file now");
  Status moved = Move();
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_TRUE(S_ISDIR(Look(new_ + "/etc/gone/inside").st_mode));
  EXPECT_EQ(*ReadFile(new_ + "/etc/folder"), "a file now");
}

TEST_F(Upper, AResetRootIsTheImageAgain) {
  ASSERT_EQ(unlink((old_ + "/etc/gone").c_str()), 0);
  Write(old_ + "/etc/changed", "by the container");
  Status reset = ResetOverlay(old_);
  ASSERT_TRUE(reset.ok()) << reset.message();
  EXPECT_EQ(*ReadFile(old_ + "/etc/gone"), "image");
  EXPECT_EQ(*ReadFile(old_ + "/etc/changed"), "image");
  Write(old_ + "/etc/gone", "can be written");
}

// An archive made by hand, as somebody could who writes to the store.
class Hostile {
 public:
  explicit Hostile(const std::string& path) : archive_(archive_write_new()) {
    archive_write_set_format_pax(archive_);
    archive_write_open_filename(archive_, path.c_str());
  }
  void Add(const std::string& path, mode_t type, const std::string& target = "", bool hardlink = false, dev_t device = 0) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, path.c_str());
    archive_entry_set_mode(entry, type | 0755);
    if (hardlink) archive_entry_set_hardlink(entry, target.c_str());
    if (S_ISLNK(type)) archive_entry_set_symlink(entry, target.c_str());
    if (S_ISREG(type) && !hardlink) archive_entry_set_size(entry, 4);
    if (S_ISCHR(type)) archive_entry_set_rdev(entry, device);
    archive_write_header(archive_, entry);
    if (S_ISREG(type) && !hardlink) archive_write_data(archive_, "evil", 4);
    archive_entry_free(entry);
  }
  ~Hostile() { archive_write_free(archive_); }

 private:
  archive* archive_;
};

class HostileArchive : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirs(dir_ / "to").ok());
    ASSERT_TRUE(MakeDirs(dir_ / "outside").ok());
    Write(dir_ / "outside/file", "safe");
  }
  void ExpectSafe() {
    for (bool upper : {false, true}) {
      Status status = upper ? ExtractUpper(dir_ / "a.tar", dir_ / "to") : ExtractTree(dir_ / "a.tar", dir_ / "to");
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(*ListDir(dir_ / "outside"), std::vector<std::string>{"file"});
      EXPECT_EQ(*ReadFile(dir_ / "outside/file"), "safe");
    }
  }
  TempDir dir_;
};

TEST_F(HostileArchive, CannotClimbOut) {
  for (const std::string& path : {std::string("../outside/file"), std::string("a/../../outside/x"), dir_ / "outside/file"}) {
    Hostile(dir_ / "a.tar").Add(path, S_IFREG);
    ExpectSafe();
  }
}

TEST_F(HostileArchive, CannotWriteOrDeleteThroughALinkOfItsOwn) {
  for (bool whiteout : {false, true}) {
    {
      Hostile hostile(dir_ / "a.tar");
      hostile.Add("link", S_IFLNK, dir_ / "outside");
      hostile.Add("link/file", whiteout ? S_IFCHR : S_IFREG);
      if (whiteout) hostile.Add("../x", S_IFREG);  // ends in an error, as the test expects
    }
    ExpectSafe();
  }
}

TEST_F(HostileArchive, CannotLinkToWhatIsOutside) {
  Hostile(dir_ / "a.tar").Add("mine", S_IFREG, "../outside/file", true);
  ExpectSafe();
}

TEST_F(HostileArchive, MakesNoDevices) {
  Hostile(dir_ / "a.tar").Add("disk", S_IFCHR, "", false, makedev(1, 1));
  EXPECT_TRUE(ExtractTree(dir_ / "a.tar", dir_ / "to").ok());
  EXPECT_TRUE(ListDir(dir_ / "to")->empty());
}

TEST_F(HostileArchive, ATruncatedArchiveIsAnError) {
  Write(dir_ / "outside/file", std::string(100000, 'x'));
  ASSERT_TRUE(ArchiveTree(dir_ / "outside", dir_ / "a.tar").ok());
  ASSERT_EQ(truncate((dir_ / "a.tar").c_str(), 50000), 0);
  EXPECT_FALSE(ExtractTree(dir_ / "a.tar", dir_ / "to").ok());
  EXPECT_EQ(ExtractTree(dir_ / "none.tar", dir_ / "to").code(), Code::kNotFound);
}

}  // namespace
}  // namespace holdfast::runtime
