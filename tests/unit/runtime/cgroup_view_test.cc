#include "runtime/cgroup_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "base/json.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

std::string Mounted(const std::string& root, const std::string& path, const std::string& type, const std::string& options) {
  return "300 299 0:30 " + root + " " + path + " ro,nosuid,nodev,noexec,relatime - " + type + " cgroup rw," + options + "\n";
}

// Hole 22: which of the mounts that CRIU made are of the cgroup in which it ran.
TEST(CgroupView, WhatIsNotTheContainersOwnIsFound) {
  struct Case {
    std::string mountinfo;
    std::vector<std::string> stray;
  };
  const std::string path = "/kubepods/pod1/c1", other = "/system.slice/containerd.service";
  const std::map<std::string, std::string> own = {{"memory", "/sys/fs/cgroup/memory" + path},
                                                  {"cpu", "/sys/fs/cgroup/cpu,cpuacct" + path},
                                                  {"cpuacct", "/sys/fs/cgroup/cpu,cpuacct" + path},
                                                  {"name=systemd", "/sys/fs/cgroup/systemd" + path},
                                                  {"", "/sys/fs/cgroup/unified" + path}};
  const Case cases[] = {
      {"", {}},
      {Mounted(path, "/sys/fs/cgroup/memory", "cgroup", "memory"), {}},
      {Mounted(other, "/sys/fs/cgroup/memory", "cgroup", "memory"), {"/sys/fs/cgroup/memory"}},
      {Mounted("/", "/sys/fs/cgroup/memory", "cgroup", "memory"), {"/sys/fs/cgroup/memory"}},
      {Mounted("/kubepods", "/sys/fs/cgroup/memory", "cgroup", "memory"), {"/sys/fs/cgroup/memory"}},
      {Mounted("/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"), {"/sys/fs/cgroup/cpu,cpuacct"}},
      {Mounted(path, "/sys/fs/cgroup/systemd", "cgroup", "xattr,name=systemd"), {}},
      {Mounted("/", "/sys/fs/cgroup/pids", "cgroup", "pids"), {}},  // runc knows nothing of it
      {Mounted(path, "/sys/fs/cgroup", "cgroup2", "nsdelegate"), {}},
      {Mounted("/", "/sys/fs/cgroup", "cgroup2", "nsdelegate"), {"/sys/fs/cgroup"}},
      {Mounted("/", "/sys/fs/cgroup", "tmpfs", "mode=755"), {}},
      {Mounted("/", "/host/sys/fs/cgroup/memory", "cgroup", "memory"), {}},  // a folder of the node that its pod asked for
  };
  for (const Case& c : cases) {
    std::vector<std::string> stray;
    for (const CgroupMount& mount : StrayCgroupMounts(c.mountinfo, {"/sys/fs/cgroup"}, own)) {
      stray.push_back(mount.path);
      EXPECT_TRUE(mount.own.ends_with(path)) << mount.own;
      EXPECT_EQ(mount.attributes, static_cast<unsigned long>(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
    }
    EXPECT_EQ(stray, c.stray) << c.mountinfo;
  }
}

// A kernel's cgroup v2 in a mount namespace of its own. Where the machine's controllers are those of v1 it has none of them, but the core's
// files, which say as well whose cgroup is seen. What runs in it ends with its own exit code; 77: this kernel or user has none.
constexpr int kSkipped = 77;

class CgroupV2 {
 public:
  explicit CgroupV2(const std::string& dir) : root_(dir + "/v2") {}
  ~CgroupV2() {
    for (const std::string& cgroup : made_) rmdir(cgroup.c_str());
  }
  bool Mount() {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    return mkdir(root_.c_str(), 0700) == 0 && mount("none", root_.c_str(), "cgroup2", 0, nullptr) == 0;
  }
  // As deep below it as `depth` says, so that reading tells them apart.
  std::string Make(const std::string& name, const std::string& depth) {
    const std::string cgroup = root_ + "/holdfast-view-test-" + std::to_string(getpid()) + "-" + name;
    if (mkdir(cgroup.c_str(), 0755) != 0) return "";
    made_.push_back(cgroup);
    return Write(cgroup + "/cgroup.max.depth", depth) ? cgroup : "";
  }
  static bool Write(const std::string& file, const std::string& text) {
    const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return written;
  }

 private:
  const std::string root_;
  std::vector<std::string> made_;
};

// A "container" in cgroup `own`, at whose `at` the cgroup `shown` is mounted, read-only as runc does it. Its pid once all of that is so.
pid_t RunContainer(const std::string& own, const std::string& shown, const std::string& at, bool private_namespace) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool done = CgroupV2::Write(own + "/cgroup.procs", "0") && unshare(CLONE_NEWNS) == 0;
    done = done && mount(shown.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) == 0;
    done = done && mount("", at.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
    done = done && (!private_namespace || unshare(CLONE_NEWCGROUP) == 0);
    const char answer = done ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 'n';
  const bool there = read(ready[0], &answer, 1) == 1 && answer == 'y';
  close(ready[0]);
  close(ready[1]);
  return there ? pid : -1;
}

// 0, or where it went wrong.
int MendOnV2(const std::string& dir, bool shows_its_own, bool private_namespace) {
  CgroupV2 v2(dir);
  if (!v2.Mount()) return kSkipped;
  const std::string own = v2.Make("own", "7"), other = v2.Make("other", "3"), at = dir + "/seen";
  if (own.empty() || other.empty()) return kSkipped;
  if (mkdir(at.c_str(), 0755) != 0 || mkdir((dir + "/c1").c_str(), 0755) != 0) return 1;
  const pid_t pid = RunContainer(own, shows_its_own ? own : other, at, private_namespace);
  if (pid < 0) return 2;
  const std::string proc = "/proc/" + std::to_string(pid), limit = proc + "/root" + at + "/cgroup.max.depth";
  auto over = [&](int where) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return where;
  };
  if (ReadFile(limit, 64).value_or("") != (shows_its_own ? "7\n" : "3\n")) return over(3);
  const Json state = {{"init_process_pid", pid}, {"cgroup_paths", {{"", own}}}};
  if (!WriteFileAtomically(dir + "/c1/state.json", DumpJson(state)).ok()) return over(4);
  const Spec spec(Json{{"mounts", {{{"destination", at}, {"source", "cgroup"}, {"type", "cgroup"}}}}});
  const std::string before = ReadFile(proc + "/mountinfo", 1 << 20).value_or("");
  for (int round = 0; round < 2; ++round) {  // what is mended stays as it is
    if (Status mended = MendCgroupView(dir, "c1", spec); !mended.ok()) {
      fprintf(stderr, "%s\n", mended.ToString().c_str());
      return over(5);
    }
    const std::string now = ReadFile(proc + "/mountinfo", 1 << 20).value_or("");
    if (ReadFile(limit, 64).value_or("") != "7\n") return over(6);
    if (shows_its_own && now != before) return over(7);
    const size_t line = now.find(" " + at + " ");
    if (line == std::string::npos || now.find(" " + at + " ", line + 1) != std::string::npos) return over(8);
    if (now.substr(line, now.find('\n', line) - line).find(" ro,nosuid,nodev,noexec") == std::string::npos) return over(9);
  }
  return over(0);
}

// Hole 22 on cgroup v2, with the kernel's own mounts. Not tried here: CRIU's restore on a machine whose controllers are of v2, and limits.
TEST(CgroupView, OnV2TheContainersOwnIsMountedInPlaceOfAnother) {
  for (const bool shows_its_own : {false, true}) {
    for (const bool private_namespace : {false, true}) {
      SCOPED_TRACE(testing::Message() << "its own: " << shows_its_own << ", cgroup namespace: " << private_namespace);
      TempDir dir;
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) _exit(MendOnV2(dir.path(), shows_its_own, private_namespace));
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "this kernel or user mounts no cgroup v2";
      EXPECT_EQ(WEXITSTATUS(status), 0) << "see MendOnV2";
    }
  }
}

}  // namespace
}  // namespace holdfast::runtime
