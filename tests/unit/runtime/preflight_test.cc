// Each test's process holds what CRIU 4.2 cannot dump, as the kernel of this machine shows it.
#include "runtime/preflight.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;

// A process that has done `setup` and then waits. Not there when setup says that this kernel cannot do it.
class Process {
 public:
  explicit Process(const std::function<bool()>& setup) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char answer = setup() ? 'y' : 'n';
      if (write(ready[1], &answer, 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char answer = 'n';
    there_ = read(ready[0], &answer, 1) == 1 && answer == 'y';
    close(ready[0]);
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  bool there() const { return there_; }
  pid_t pid() const { return pid_; }
  Status Check(bool unified = true) const { return CheckDumpable({pid_}, unified); }

 private:
  pid_t pid_ = -1;
  bool there_ = false;
};

struct Case {
  const char* name;
  bool (*setup)();
  const char* says;
};

class Refuses : public testing::TestWithParam<Case> {};

TEST_P(Refuses, WithItsName) {
  Process process(GetParam().setup);
  if (!process.there()) GTEST_SKIP() << "this kernel or user has none";
  const Status status = process.Check();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().says));
  EXPECT_THAT(status.message(), HasSubstr("process " + std::to_string(process.pid())));
}

bool Socket(int family, int type, int protocol) { return socket(family, type, protocol) >= 0; }

INSTANTIATE_TEST_SUITE_P(Preflight, Refuses,
                         testing::Values(Case{"IoUring",
                                              [] {
                                                char parameters[256] = {};
                                                return syscall(SYS_io_uring_setup, 4, parameters) >= 0;
                                              },
                                              "io_uring"},
                                         Case{"Userfaultfd", [] { return syscall(SYS_userfaultfd, O_CLOEXEC) >= 0; }, "userfaultfd"},
                                         Case{"SecretMemory", [] { return syscall(SYS_memfd_secret, 0) >= 0; }, "memfd_secret"},
                                         Case{"PerformanceCounter",
                                              [] {
                                                perf_event_attr attributes{};
                                                attributes.type = PERF_TYPE_SOFTWARE;
                                                attributes.size = sizeof attributes;
                                                attributes.config = PERF_COUNT_SW_TASK_CLOCK;
                                                return syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0) >= 0;
                                              },
                                              "[perf_event]"},
                                         Case{"MultipathTcp", [] { return Socket(AF_INET, SOCK_STREAM, 262); }, "GODEBUG=multipathtcp=0"},
                                         Case{"VirtualMachineSocket", [] { return Socket(AF_VSOCK, SOCK_STREAM, 0); }, "AF_VSOCK"},
                                         Case{"Fuse", [] { return open("/dev/fuse", O_RDWR) >= 0; }, "the device /dev/fuse"}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(Preflight, ATracedProcessIsRefusedAlsoWhileItRuns) {
  Process process([] { return true; });
  ASSERT_TRUE(process.there());
  ASSERT_TRUE(process.Check().ok());
  ASSERT_EQ(ptrace(PTRACE_SEIZE, process.pid(), nullptr, nullptr), 0);
  const Status status = process.Check();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("traced by a debugger"));
}

TEST(Preflight, AStoppedProcessIsRefusedOnCgroupV1Only) {
  Process process([] { return true; });
  ASSERT_TRUE(process.there());
  kill(process.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(process.pid(), &status, WUNTRACED), process.pid());
  EXPECT_THAT(process.Check(false).message(), HasSubstr("SIGCONT"));
  EXPECT_TRUE(process.Check(true).ok());
}

TEST(Preflight, AProcessWithAUserNamespaceOfItsOwnIsRefusedBesideOneWithout) {
  Process outside([] { return true; }), inside([] { return unshare(CLONE_NEWUSER) == 0; });
  if (!inside.there()) GTEST_SKIP() << "no user namespaces here";
  EXPECT_THAT(CheckDumpable({outside.pid(), inside.pid()}, true).message(), HasSubstr("user namespace"));
}

TEST(Preflight, WhatCriuCanDumpIsLetThrough) {
  Process process([] {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    int pair[2];
    const bool anonymous = epoll_create1(0) >= 0 && eventfd(0, 0) >= 0 && inotify_init1(0) >= 0 && signalfd(-1, &signals, 0) >= 0 &&
                           timerfd_create(CLOCK_MONOTONIC, 0) >= 0 && syscall(SYS_pidfd_open, getpid(), 0) >= 0 &&
                           syscall(SYS_memfd_create, "m", 0) >= 0;
    const bool sockets = Socket(AF_INET, SOCK_STREAM, 0) && Socket(AF_INET6, SOCK_STREAM, 0) && Socket(AF_INET, SOCK_DGRAM, 0) &&
                         Socket(AF_INET6, SOCK_DGRAM, 0) && Socket(AF_NETLINK, SOCK_RAW, 0) && Socket(AF_UNIX, SOCK_DGRAM, 0) &&
                         Socket(AF_UNIX, SOCK_STREAM, 0) && Socket(AF_UNIX, SOCK_SEQPACKET, 0) &&
                         socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
    const bool files = open("/dev/null", O_RDWR) >= 0 && open("/dev/urandom", O_RDONLY) >= 0 && open("/dev/ptmx", O_RDWR) >= 0 &&
                       open("/proc/self/ns/net", O_RDONLY) >= 0 && pipe(pair) == 0;
    return anonymous && sockets && files;
  });
  ASSERT_TRUE(process.there());
  const Status status = process.Check();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace holdfast::runtime
