#include "runtime/network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/loopback_hold.h"
#include "runtime/namespaces.h"
#include "runtime/network_lock.h"

namespace holdfast::runtime {
namespace {

constexpr char kHere[] = "/proc/thread-self/ns/net";

// A network namespace of the test's own, with lo up.
class Network : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(unshare(CLONE_NEWNET | CLONE_NEWUTS), 0) << "these tests need root";
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    ifreq request{};
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    ASSERT_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
  }

  static int Listen(const char* ip) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Address(ip, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd, 8), 0);
    return fd;
  }
  static sockaddr_in Address(const char* ip, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
  }
  static int Connect(const char* from, int listener) {
    sockaddr_in to;
    socklen_t size = sizeof to;
    getsockname(listener, reinterpret_cast<sockaddr*>(&to), &size);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in source = Address(from, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&source), sizeof source), 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  static int Error(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0;
  }
};

TEST_F(Network, AnAddressOnLoCanBeAddedTwiceAndRemovedTwice) {
  for (const char* address : {"10.9.8.7", "fd00::7"}) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(AddLoopbackAddress(kHere, address).ok()) << address;
    for (int i = 0; i < 2; ++i) {
      Status removed = RemoveLoopbackAddress(kHere, address);
      EXPECT_TRUE(removed.ok()) << removed.message();
    }
  }
  EXPECT_TRUE(GlobalAddresses(kHere)->empty());
}

TEST_F(Network, AddressesOnLoAreNotThePods) {
  ASSERT_TRUE(AddLoopbackAddress(kHere, "10.9.8.7").ok());
  EXPECT_TRUE(GlobalAddresses(kHere)->empty());
}

TEST_F(Network, ConnectionsFromTheAddressAreResetAndAllOthersLive) {
  ASSERT_TRUE(AddLoopbackAddress(kHere, "10.9.8.7").ok());
  ASSERT_TRUE(AddLoopbackAddress(kHere, "10.9.8.8").ok());
  int listener = Listen("0.0.0.0"), same = Listen("10.9.8.7");
  int gone = Connect("10.9.8.7", listener), other = Connect("10.9.8.8", listener), loop = Connect("127.0.0.1", listener);
  Result<int> reset = ResetConnections(kHere, "10.9.8.7");
  ASSERT_TRUE(reset.ok()) << reset.status().message();
  EXPECT_GE(*reset, 1);
  // Its other end, which has the same address here, may have been reset first.
  const int error = Error(gone);
  EXPECT_TRUE(error == ECONNABORTED || error == ECONNRESET) << error;
  EXPECT_EQ(Error(other), EAGAIN);
  EXPECT_EQ(Error(loop), EAGAIN);
  int again = Connect("10.9.8.8", same);  // listeners stay
  EXPECT_EQ(Error(again), EAGAIN);
  for (int fd : {listener, same, gone, other, loop, again}) close(fd);
}

TEST_F(Network, MappedConnectionsAreResetToo) {
  ASSERT_TRUE(AddLoopbackAddress(kHere, "10.9.8.7").ok());
  int listener = Listen("0.0.0.0");
  sockaddr_in to;
  socklen_t size = sizeof to;
  getsockname(listener, reinterpret_cast<sockaddr*>(&to), &size);
  int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 source{}, target{};
  source.sin6_family = target.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "::ffff:10.9.8.7", &source.sin6_addr);
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &target.sin6_addr);
  target.sin6_port = to.sin_port;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&source), sizeof source), 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof target), 0);
  ASSERT_TRUE(ResetConnections(kHere, "10.9.8.7").ok());
  EXPECT_EQ(Error(fd), ECONNABORTED);
  close(fd);
  close(listener);
}

TEST_F(Network, NothingToResetIsNoError) {
  EXPECT_EQ(*ResetConnections(kHere, "10.9.8.7"), 0);
  EXPECT_EQ(*ResetConnections(kHere, "fd00::1"), 0);
  EXPECT_FALSE(ResetConnections(kHere, "not an address").ok());
  EXPECT_FALSE(AddLoopbackAddress("/proc/nonexistent/ns/net", "10.9.8.7").ok());
}

TEST_F(Network, WithoutALeftNetworkLockThereIsNothingToRemove) {
  Result<int> removed = RemoveNetworkLock(kHere);
  ASSERT_TRUE(removed.ok()) << removed.status().message();
  EXPECT_EQ(*removed, 0);
}

TEST_F(Network, ASocketThatADeadCriuLeftInRepairModeWorksAgain) {
  int listener = Listen("127.0.0.1");
  int fd = Connect("127.0.0.1", listener);
  const int on = 1;
  ASSERT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on), 0);
  ASSERT_EQ(Error(fd), EPERM);
  EXPECT_EQ(EndSocketRepair({getpid()}), 1);
  EXPECT_EQ(Error(fd), EAGAIN);
  EXPECT_EQ(EndSocketRepair({getpid()}), 0);
  close(fd);
  close(listener);
}

TEST_F(Network, TheHostnameOfANamespaceIsSetThere) {
  ASSERT_TRUE(SetHostnameIn("/proc/thread-self/ns/uts", "web-0").ok());
  EXPECT_EQ(*HostnameIn("/proc/thread-self/ns/uts"), "web-0");
}

TEST_F(Network, AProgramThatAsksForMultipathTcpGetsNoneOnceItIsOff) {
  constexpr int kMultipathTcp = 262;
  auto opens = [] {
    int fd = socket(AF_INET, SOCK_STREAM, kMultipathTcp);
    if (fd >= 0) close(fd);
    return fd >= 0;
  };
  const bool had = opens();
  ASSERT_TRUE(TurnOffMultipathTcp(kHere).ok());
  EXPECT_FALSE(opens());
  if (!had) GTEST_SKIP() << "this kernel has no Multipath TCP";
}

// What connect() to a port of lo where nobody listens says within 200 ms: 0 when it is still waiting.
int RefusalOnLoopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  int error = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    error = 0;
    if (poll(&waiting, 1, 200) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  close(fd);
  return error;
}

TEST_F(Network, ResetsOnLoAreDroppedWhileItIsHeldAndConnectionsLive) {
  EXPECT_EQ(RefusalOnLoopback(), ECONNREFUSED);
  int listener = Listen("127.0.0.1");
  ASSERT_TRUE(HoldLoopback(kHere).value_or(false));
  ASSERT_TRUE(HoldLoopback(kHere).value_or(false)) << "twice";
  EXPECT_EQ(RefusalOnLoopback(), 0);
  int client = Connect("127.0.0.1", listener);
  EXPECT_EQ(Error(client), EAGAIN);
  ASSERT_TRUE(ReleaseLoopback(kHere).ok());
  EXPECT_EQ(RefusalOnLoopback(), ECONNREFUSED);
  EXPECT_TRUE(ReleaseLoopback(kHere).ok()) << "twice";
  close(client);
  close(listener);
}

}  // namespace
}  // namespace holdfast::runtime
