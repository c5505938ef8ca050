#include "runtime/watched_paths.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A process with a file system of its own at /mnt, in which it has a folder and a file; it watches what it is told to, and waits.
class Watcher : public testing::Test {
 protected:
  void Start(bool watch, bool remove, bool as_root = false) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const bool made = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("tmpfs", "/mnt", "tmpfs", 0, nullptr) == 0 && mkdir("/mnt/a folder", 0700) == 0 &&
                        mkdir("/mnt/a folder/below", 0700) == 0 && open("/mnt/file", O_RDWR | O_CREAT, 0600) >= 0;
      if (as_root && chroot("/mnt") != 0) _exit(1);
      const std::string at = as_root ? "" : "/mnt";
      const int watches = inotify_init1(0);
      bool done = made && watches >= 0;
      if (watch) {
        done = done && inotify_add_watch(watches, (at + "/a folder/below").c_str(), IN_CREATE) >= 0 &&
               inotify_add_watch(watches, (at + "/file").c_str(), IN_MODIFY) >= 0;
      }
      if (remove) done = done && unlink("/mnt/file") == 0;
      if (write(ready[1], done ? "y" : "n", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char answer = 'n';
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    close(ready[0]);
    ASSERT_EQ(answer, 'y') << "these tests need root";
  }
  void TearDown() override {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid_ = -1;
};

TEST_F(Watcher, WhatItWatchesIsFoundByTheInodesThatTheKernelTells) {
  Start(true, false);
  Result<std::vector<std::string>> found = WatchedPaths({pid_});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_THAT(*found, UnorderedElementsAre("/mnt/a folder/below", "/mnt/file"));
}

TEST_F(Watcher, WhatLiesOnTheRootItselfIsFoundToo) {
  Start(true, false, true);
  Result<std::vector<std::string>> found = WatchedPaths({pid_});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_THAT(*found, UnorderedElementsAre("/a folder/below", "/file"));
}

TEST_F(Watcher, NothingIsLookedForWhenItWatchesNothing) {
  Start(false, false);
  EXPECT_THAT(*WatchedPaths({pid_}), IsEmpty());
}

TEST_F(Watcher, AFileWithoutANameIsRefused) {
  Start(true, true);
  Result<std::vector<std::string>> found = WatchedPaths({pid_});
  EXPECT_EQ(found.status().code(), Code::kUnsupported);
  EXPECT_THAT(found.status().message(), HasSubstr("no name any more"));
}

}  // namespace
}  // namespace holdfast::runtime
