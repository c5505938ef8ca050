#include "runtime/unix_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;

// A process that holds what it was given, closes what it was told to, and waits.
pid_t Keep(const std::vector<int>& closed) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd : closed) close(fd);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

void End(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

Status Check(const std::vector<int>& pids) { return CheckUnixPeers(pids, "/proc/self/ns/net"); }

TEST(UnixPeers, APairWithinTheContainerIsLetThroughAndOneThatLeavesItIsNot) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const pid_t left = Keep({pair[1]}), right = Keep({pair[0]});
  close(pair[0]);
  close(pair[1]);
  EXPECT_TRUE(Check({left, right}).ok()) << Check({left, right}).message();
  const Status outside = Check({left});
  EXPECT_EQ(outside.code(), Code::kUnsupported);
  EXPECT_THAT(outside.message(), HasSubstr("process " + std::to_string(left)));
  End(right);
  EXPECT_TRUE(Check({left}).ok()) << "a socket whose peer has gone is dumped as closed";
  End(left);
}

TEST(UnixPeers, AServerOutsideIsNamedByItsPath) {
  TempDir dir;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", (dir / "socket").c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const int accepted = accept(listener, nullptr, nullptr);
  const pid_t inside = Keep({listener, accepted});
  close(client);
  EXPECT_THAT(Check({inside}).message(), HasSubstr(dir / "socket"));
  End(inside);
  close(listener);
  close(accepted);
}

TEST(UnixPeers, ADescriptorThatNobodyHasReceivedYetIsSeen) {
  for (int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, type, 0, pair), 0);
    const pid_t pid = Keep({pair[0]});
    auto check = [pid] { return CheckNothingSent({pid}, "/proc/self/ns/net"); };
    EXPECT_TRUE(check().ok()) << check().message();
    char byte = 'x', space[CMSG_SPACE(sizeof(int))] = {};
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    ASSERT_EQ(sendmsg(pair[0], &message, 0), 1);
    EXPECT_TRUE(check().ok()) << "bytes alone are restored";
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pair[0], sizeof(int));
    ASSERT_EQ(sendmsg(pair[0], &message, 0), 1);
    EXPECT_EQ(check().code(), Code::kUnavailable);
    EXPECT_THAT(check().message(), HasSubstr("process " + std::to_string(pid)));
    for (int i = 0; i < 2; ++i) {
      message.msg_controllen = sizeof space;
      ASSERT_EQ(recvmsg(pair[1], &message, 0), 1);
    }
    EXPECT_TRUE(check().ok()) << check().message();
    int received;
    memcpy(&received, CMSG_DATA(header), sizeof received);
    for (int fd : {received, pair[0], pair[1]}) close(fd);
    End(pid);
  }
}

}  // namespace
}  // namespace holdfast::runtime
