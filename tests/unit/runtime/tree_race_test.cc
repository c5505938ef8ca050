// Trees that somebody changes while they are archived, emptied and filled. Each test plays a bounded number of rounds, and asks in the end
// whether anything outside was read or touched.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "runtime/beneath.h"
#include "runtime/tree.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr char kCanary[] = "canary: of the host";
constexpr int kRounds = 200;

// Does something again and again, beside the test.
class Beside {
 public:
  explicit Beside(std::function<void()> act)
      : thread_([this, act = std::move(act)] {
          while (!over_) {
            act();
            ++done_;
          }
        }) {
    while (done_ == 0) std::this_thread::yield();
  }
  ~Beside() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<int> done_ = 0;
  std::thread thread_;
};

// Hole 1: a shared volume in which somebody swaps a folder for a link to a folder of the host, as fast as he can.
class RacingTree : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* path : {"volume/folder/deep", "volume/folder/file", "host/deep"}) ASSERT_TRUE(MakeDirs(dir_ / path).ok());
    ASSERT_EQ(rmdir((dir_ / "volume/folder/file").c_str()), 0);
    for (const char* path : {"volume/folder/file", "volume/folder/deep/file"})
      ASSERT_TRUE(WriteFileAtomically(dir_ / path, "of the pod", 0644).ok());
    for (const char* path : {"host/file", "host/deep/file"}) ASSERT_TRUE(WriteFileAtomically(dir_ / path, kCanary, 0600).ok());
    ASSERT_EQ(chmod((dir_ / "host").c_str(), 0701), 0);
    ASSERT_EQ(symlink((dir_ / "host").c_str(), (dir_ / "volume/link").c_str()), 0);
    ASSERT_TRUE(ArchiveTree(dir_ / "volume", dir_ / "good.tar").ok());
    volume_ = Fd(open((dir_ / "volume").c_str(), O_PATH | O_DIRECTORY));
    before_ = Host();
  }

  // Swaps them; and makes them, when they were just taken away.
  void Swap() {
    mkdirat(volume_.get(), "folder", 0755);
    if (symlinkat((dir_ / "host").c_str(), volume_.get(), "link") == 0) ++made_;
    for (int i = 0; i < 20; ++i) {
      if (renameat2(volume_.get(), "folder", volume_.get(), "link", RENAME_EXCHANGE) == 0) ++swaps_;
    }
  }

  // All that a change of the host's files would show in.
  std::string Host() const {
    std::string all;
    for (const char* path : {"host", "host/file", "host/deep", "host/deep/file"}) {
      struct stat info = {};
      all += lstat((dir_ / path).c_str(), &info) == 0 ? path : "(gone)";
      for (auto number : {static_cast<int64_t>(info.st_mode), static_cast<int64_t>(info.st_uid), static_cast<int64_t>(info.st_ctim.tv_sec),
                          static_cast<int64_t>(info.st_ctim.tv_nsec), static_cast<int64_t>(info.st_nlink)})
        all += " " + std::to_string(number);
      if (S_ISREG(info.st_mode)) all += " " + ReadFile(dir_ / path).value_or("");
      for (const std::string& name : S_ISDIR(info.st_mode) ? ListDir(dir_ / path).value_or({}) : std::vector<std::string>())
        all += " " + name;
      all += "\n";
    }
    return all;
  }

  TempDir dir_;
  Fd volume_;
  std::string before_;
  std::atomic<int> swaps_ = 0, made_ = 0;
};

TEST_F(RacingTree, NothingOfTheHostEntersAnArchive) {
  int good = 0;
  {
    Beside racer([this] { Swap(); });
    for (int round = 0; round < kRounds; ++round) {
      good += ArchiveTree(dir_ / "volume", dir_ / "a.tar").ok() ? 1 : 0;
      ASSERT_EQ(ReadFile(dir_ / "a.tar").value_or("").find(kCanary), std::string::npos) << "round " << round;
    }
  }
  EXPECT_EQ(Host(), before_);
  EXPECT_EQ(good, kRounds) << "whoever swaps must not make a dump fail";
  EXPECT_GT(swaps_, kRounds);
}

TEST_F(RacingTree, NothingOfTheHostIsRemoved) {
  {
    Beside racer([this] { Swap(); });
    for (int round = 0; round < kRounds; ++round) {
      [[maybe_unused]] Status emptied = EmptyDirectory(dir_ / "volume");
      ASSERT_EQ(Host(), before_) << "round " << round;
    }
  }
  EXPECT_EQ(Host(), before_);
  EXPECT_GT(swaps_, kRounds);
  EXPECT_GT(made_, 0);
}

TEST_F(RacingTree, NothingOfTheHostIsWrittenOver) {
  for (bool upper : {false, true}) {
    Beside racer([this] { Swap(); });
    for (int round = 0; round < kRounds; ++round) {
      [[maybe_unused]] Status filled =
          upper ? ExtractUpper(dir_ / "good.tar", dir_ / "volume") : ExtractTree(dir_ / "good.tar", dir_ / "volume");
      ASSERT_EQ(Host(), before_) << "round " << round;
    }
  }
  EXPECT_EQ(Host(), before_);
  EXPECT_GT(swaps_, kRounds);
}

// Hole 1: a sidecar that rotates its log, and one that makes it shorter, are no reason for a dump to fail.
TEST(ChangingTree, ALogThatIsRotatedDoesNotFailTheArchive) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "volume").ok());
  const std::string log = dir / "volume/log";
  const std::string line(3 << 20, 'x');
  Beside sidecar([&] {
    const Fd file(open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    EXPECT_EQ(write(file.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    EXPECT_EQ(ftruncate(file.get(), 1 << 20), 0);
    EXPECT_EQ(rename(log.c_str(), (log + ".1").c_str()), 0);
  });
  for (int round = 0; round < 100; ++round) {
    Status archived = ArchiveTree(dir / "volume", dir / "a.tar");
    ASSERT_TRUE(archived.ok()) << "round " << round << ": " << archived.message();
  }
  ASSERT_TRUE(MakeDirs(dir / "to").ok());
  Status filled = ExtractTree(dir / "a.tar", dir / "to");
  EXPECT_TRUE(filled.ok()) << filled.message();
}

// Hole 1: what is mounted in a volume, even from the same file system, is neither read nor removed.
TEST(ChangingTree, WhatIsMountedInItIsNotTouched) {
  TempDir dir;
  ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
  ASSERT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  for (const char* path : {"volume/here", "host"}) ASSERT_TRUE(MakeDirs(dir / path).ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "host/file", kCanary).ok());
  ASSERT_EQ(mount((dir / "host").c_str(), (dir / "volume/here").c_str(), nullptr, MS_BIND, nullptr), 0);
  EXPECT_TRUE(ArchiveTree(dir / "volume", dir / "a.tar").ok());
  EXPECT_EQ(ReadFile(dir / "a.tar").value_or("").find(kCanary), std::string::npos);
  EXPECT_FALSE(EmptyDirectory(dir / "volume").ok());
  EXPECT_EQ(ReadFile(dir / "host/file").value_or(""), kCanary);
  ASSERT_EQ(umount2((dir / "volume/here").c_str(), MNT_DETACH), 0);
}

// Hole 1: nor is it deeper than a descriptor a level allows.
TEST(ChangingTree, ATreeThatIsTooDeepIsRefusedAndNotHalfWalked) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "volume").ok());
  Result<Fd> at = OpenTop(dir / "volume");
  ASSERT_TRUE(at.ok());
  constexpr int kDepth = kMaxTreeDepth + 10;
  for (int level = 0; level < kDepth; ++level) {
    ASSERT_EQ(mkdirat(at->get(), "d", 0755), 0);
    *at = OpenIn(at->get(), "d", O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(at->ok());
  }
  EXPECT_EQ(ArchiveTree(dir / "volume", dir / "a.tar").code(), Code::kUnsupported);
  EXPECT_EQ(EmptyDirectory(dir / "volume").code(), Code::kUnsupported);
}

}  // namespace
}  // namespace holdfast::runtime
