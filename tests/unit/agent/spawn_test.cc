#include "agent/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "agent/host_node.h"
#include "agent/http_kubelet.h"
#include "fakes.h"

namespace holdfast::agent {
namespace {

TEST(Spawn, TheChildHoldsItsLockAndASuccessorSeesItRunning) {
  TempDir dir;
  Layout layout;
  layout.run = dir.path();
  ASSERT_TRUE(MakeDirs(dir.path() + "/dumps").ok());
  SpawnOptions options;
  options.lock_file = layout.DumpLock("ck");
  options.output_file = options.lock_file + ".log";
  Result<int> pid = SpawnDetached({"/bin/sh", "-c", "echo hello; echo last words; exec sleep 60"}, options);
  ASSERT_TRUE(pid.ok()) << pid.status().message();
  EXPECT_EQ(getsid(*pid), *pid) << "a session of its own";
  HostNode node(layout, getpid());
  EXPECT_TRUE(node.DumpRunning("ck", "no-pod"));
  EXPECT_FALSE(node.DumpRunning("other", "no-pod"));
  EXPECT_EQ(SpawnDetached({"/bin/true"}, options).status().code(), Code::kAlreadyExists);
  std::jthread reap([&] { waitpid(*pid, nullptr, 0); });
  EXPECT_TRUE(node.KillDump("ck").ok());
  EXPECT_FALSE(node.DumpRunning("ck", "no-pod"));
}

TEST(Spawn, ItsLastWordsAreKept) {
  TempDir dir;
  Layout layout;
  layout.run = dir.path();
  ASSERT_TRUE(MakeDirs(dir.path() + "/dumps").ok());
  SpawnOptions options;
  options.lock_file = layout.DumpLock("ck");
  options.output_file = options.lock_file + ".log";
  Result<int> pid = SpawnDetached({"/bin/sh", "-c", "echo hello; echo last words >&2"}, options);
  ASSERT_TRUE(pid.ok());
  waitpid(*pid, nullptr, 0);
  HostNode node(layout, getpid());
  EXPECT_EQ(node.DumpOutput("ck"), "last words");
  EXPECT_FALSE(node.DumpRunning("ck", "no-pod"));
}

TEST(Spawn, NoFileOfOursOutlivesUsInIt) {
  TempDir dir;
  int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as some libraries do
  SpawnOptions options;
  options.output_file = dir.path() + "/out";
  Result<int> pid = SpawnDetached({"/bin/sh", "-c", "ls /proc/self/fd"}, options);
  ASSERT_TRUE(pid.ok());
  waitpid(*pid, nullptr, 0);
  close(leaked);
  EXPECT_EQ(*ReadFile(options.output_file), "0\n1\n2\n3\n") << "3 is ls's own";
}

TEST(Spawn, AProgramThatIsNotThereIsAnError) {
  EXPECT_EQ(SpawnDetached({"/no/such/program"}, {}).status().code(), Code::kNotFound);
  EXPECT_EQ(SpawnDetached({"relative"}, {}).status().code(), Code::kInvalidArgument);
}

TEST(HostNode, ADumpOfTheKubeletsIsKnownByThePodsLock) {
  TempDir dir;
  Layout layout;
  layout.run = dir.path();
  ASSERT_TRUE(MakeDirs(dir.path() + "/locks").ok());
  int fd = open(layout.PodLock("pod").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  HostNode node(layout, getpid());
  EXPECT_FALSE(node.DumpRunning("ck", "pod"));
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  EXPECT_TRUE(node.DumpRunning("ck", "pod"));
  close(fd);
}

TEST(KubeletAnswer, IsReadWithSuspicion) {
  auto read = [](int status, const std::string& body) { return ReadCheckpointAnswer({status, {}, body}); };
  EXPECT_EQ(*read(200, R"({"items":["/var/lib/kubelet/checkpoints/checkpoint-web-0_default-main-2026.tar"]})"),
            "/var/lib/kubelet/checkpoints/checkpoint-web-0_default-main-2026.tar");
  for (const char* body : {"", "{}", R"({"items":[]})", R"({"items":["/etc/passwd"]})", R"({"items":["/a/../checkpoints/x"]})",
                           R"({"items":["checkpoints/x"]})", R"({"items":[7]})"}) {
    EXPECT_FALSE(read(200, body).ok()) << body;
  }
  EXPECT_EQ(read(404, "404 page not found").status().code(), Code::kUnsupported);
  EXPECT_EQ(read(404, "pod does not exist").status().code(), Code::kNotFound);
  EXPECT_EQ(read(403, "").status().code(), Code::kPermissionDenied);
  EXPECT_EQ(read(500, "checkpointing of default/web-0/main failed").status().code(), Code::kInternal);
}

// What a process in a mount namespace of its own finds while its parent, outside, is `there` or has ended at any moment; 0: nothing.
int FoundBelow(bool there) {
  int found[2], end[2];
  if (pipe(found) != 0 || pipe(end) != 0) return -1;
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) {
      close(end[1]);
      int pid = unshare(CLONE_NEWNS) == 0 ? FindNodeProcess().value_or(0) : -1;
      [[maybe_unused]] ssize_t n = write(found[1], &pid, sizeof pid);
      _exit(0);
    }
    char byte;
    close(end[1]);
    if (there) [[maybe_unused]]
      ssize_t n = read(end[0], &byte, 1);
    _exit(0);
  }
  close(found[1]);
  int pid = -1;
  const bool told = read(found[0], &pid, sizeof pid) == sizeof pid;
  for (int fd : {found[0], end[0], end[1]}) close(fd);
  while (wait(nullptr) > 0) {
  }
  EXPECT_NE(pid, parent) << "it may end at any moment";
  return told ? pid : -1;
}

TEST(FindNodeProcess, NamesOneThatOutlivesTheParentOfACommand) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // as containerd's shim is
  const std::string ours = std::filesystem::read_symlink("/proc/self/ns/mnt");
  for (int round = 0; round < 200; ++round) {
    const int pid = FoundBelow(round % 2 == 0);
    ASSERT_GT(pid, 0) << "these tests need root; round " << round;
    EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/mnt"), ours);
  }
}

}  // namespace
}  // namespace holdfast::agent
