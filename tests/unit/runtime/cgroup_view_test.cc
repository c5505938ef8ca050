#include "runtime/cgroup_view.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

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

}  // namespace
}  // namespace holdfast::runtime
