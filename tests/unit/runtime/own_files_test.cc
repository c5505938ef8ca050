#include "runtime/own_files.h"

#include <gtest/gtest.h>

namespace holdfast::runtime {
namespace {

constexpr char kSandboxes[] = "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/";

std::string Mounted(const std::string& path, const std::string& type) {
  return "100 30 0:50 / " + path + " rw,nosuid - " + type + " " + type + " rw,size=65536k\n";
}

// Hole 1: only the tmpfs that was made for this very sandbox is read, emptied or filled; never what else a pod has at /dev/shm.
TEST(OwnFiles, ASandboxHasItsOwnSharedMemory) {
  const std::string own = kSandboxes + std::string("0a1b/shm");
  struct Case {
    std::string mountinfo, shm;
  };
  const Case cases[] = {
      {Mounted(own, "tmpfs"), own},
      {Mounted("/dev/shm", "tmpfs") + Mounted(own, "tmpfs") + Mounted(kSandboxes + std::string("ffff/shm"), "tmpfs"), own},
      {Mounted(own, "ext4"), ""},  // whatever it is, no runtime made it
      {Mounted("/dev/shm", "tmpfs"), ""},
      {Mounted(kSandboxes + std::string("ffff/shm"), "tmpfs"), ""},
      {Mounted("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/0a1b/mount", "tmpfs"), ""},
      {Mounted("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/shm", "tmpfs"), ""},
      {"", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(SandboxShmIn(c.mountinfo, "0a1b"), c.shm) << c.mountinfo;
  for (const char* id : {"", ".", "..", "a/b"}) EXPECT_EQ(SandboxShmIn(Mounted(own, "tmpfs"), id), "") << id;
}

// Hole 1: an emptyDir of this pod, where the kubelet puts it, and nothing else.
TEST(OwnFiles, AnEmptyDirLiesInThePodsFolder) {
  const std::string good = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/data";
  EXPECT_TRUE(CheckEmptyDir(good, "u1", "data").ok());
  EXPECT_TRUE(CheckEmptyDir("/elsewhere/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/data", "u1", "data").ok());
  struct Case {
    std::string path, uid, volume;
  };
  const Case cases[] = {
      {good, "u2", "data"},
      {good, "u1", "other"},
      {good + "/below", "u1", "data"},
      {good, "u1", "kubernetes.io~empty-dir/data"},
      {"/", "", ""},
      {"/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/data", "u1", "data"},
      {"/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/..", "u1", ".."},
  };
  for (const Case& c : cases) EXPECT_EQ(CheckEmptyDir(c.path, c.uid, c.volume).code(), Code::kInvalidArgument) << c.path;
}

}  // namespace
}  // namespace holdfast::runtime
