// The server on loopback: what clients and endpoints see of it. The cluster is what a test says it is.
#include "activator/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

namespace holdfast::activator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kPatience = 20000;  // ms, for what must come

// A blocking TCP socket whose every wait has a limit.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Peer() {
    if (fd_ >= 0) close(fd_);
  }
  static Peer Connect(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{
        .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    return Peer(fd);
  }
  void Say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void SayNoMore() { shutdown(fd_, SHUT_WR); }
  // So many bytes, or all until the end.
  std::string Hear(size_t bytes = SIZE_MAX) {
    std::string heard;
    char part[65536];
    while (heard.size() < bytes && Readable(kPatience)) {
      const ssize_t got = recv(fd_, part, std::min(sizeof part, bytes - heard.size()), 0);
      if (got < 0) broken_ = true;
      if (got <= 0) break;
      heard.append(part, static_cast<size_t>(got));
    }
    return heard;
  }
  bool Readable(int ms) {
    pollfd wait{fd_, POLLIN, 0};
    return poll(&wait, 1, ms) > 0;
  }
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(std::exchange(fd_, -1));
  }
  bool broken() const { return broken_; }

 private:
  int fd_;
  bool broken_ = false;
};

class Endpoint {
 public:
  Endpoint() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~Endpoint() { close(fd_); }
  void Listen() { EXPECT_EQ(listen(fd_, 128), 0); }  // before that, it refuses
  Peer Accept() {
    pollfd wait{fd_, POLLIN, 0};
    EXPECT_GT(poll(&wait, 1, kPatience), 0) << "nobody connects";
    return Peer(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  }
  bool Asked(int ms) {
    pollfd wait{fd_, POLLIN, 0};
    return poll(&wait, 1, ms) > 0;
  }
  Address address() const { return {"127.0.0.1", port_}; }

 private:
  int fd_, port_ = 0;
};

class ServerTest : public ::testing::Test, public World {
 protected:
  ServerTest() {
    limits_.silence = milliseconds(100);
    limits_.head = milliseconds(400);
    limits_.retry = milliseconds(20);
    nb_.meta.ns = "default";
    nb_.meta.name = "nb";
    nb_.spec.on_request = api::OnRequest{.service = "nb", .hold_for = seconds(30)};
    nb_.spec.suspended = true;
    nb_.status.phase = api::SuspendPhase::kSuspended;
    nb_.status.conditions = {{.type = "Suspended", .message = "no node has room"}};
  }
  ~ServerTest() override {
    On([&] { server_.reset(); });
  }
  void On(const std::function<void()>& task) {
    std::promise<void> ran;
    loop_.Post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  }
  int Start() {
    int port = 0;
    On([&] {
      server_ = std::make_unique<Server>(loop_, *this, limits_);
      // Port 0: one that is free.
      EXPECT_TRUE(server_->SetRoutes({{0, route_}}));
      port = server_->PortOf(route_);
    });
    return port;
  }
  // The workload runs, and its endpoint is ready.
  void Awake() {
    On([&] {
      nb_.status.phase = api::SuspendPhase::kRunning;
      nb_.spec.suspended = false;
      ready_ = true;
      server_->Consider();
    });
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (const MonoTime until = Clock::Real().Mono() + milliseconds(kPatience); Clock::Real().Mono() < until;) {
      bool now = false;
      On([&] { now = holds(); });
      if (now) return true;
      Clock::Real().Sleep(milliseconds(5), {});
    }
    return false;
  }
  int Counted(Outcome outcome) {
    int count = 0;
    On([&] { count = outcomes_[outcome]; });
    return count;
  }
  int Wakes() {
    int wakes = 0;
    On([&] { wakes = wakes_; });
    return wakes;
  }

  SleeperPtr SleeperOf(const Route&) override { return gone_ ? nullptr : std::make_shared<const api::SuspendedWorkload>(nb_); }
  std::vector<Address> ReadyAddressesOf(const Route&) override {
    return ready_ ? std::vector<Address>{endpoint_.address()} : std::vector<Address>{};
  }
  void Wake(const Route& route) override { wakes_ += route == route_ ? 1 : 0; }
  void Count(Outcome outcome, Duration) override { ++outcomes_[outcome]; }

  const Route route_{"default", "nb", "nb", "http"};
  Limits limits_;
  Endpoint endpoint_;
  api::SuspendedWorkload nb_;  // this and what follows: on the loop's thread, once it is started
  bool ready_ = false, gone_ = false;
  int wakes_ = 0;
  std::map<Outcome, int> outcomes_;
  kube::EventLoop loop_;
  std::unique_ptr<Server> server_;
};

constexpr char kRequest[] = "POST /run HTTP/1.1\r\nHost: nb\r\nContent-Length: 4\r\n\r\nbody";

TEST_F(ServerTest, HoldsARequestWakesAndForwardsAllOfIt) {
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  client.Say(kRequest);
  ASSERT_TRUE(Eventually([&] { return wakes_ == 1; }));
  EXPECT_FALSE(client.Readable(50)) << "it is held";
  Awake();
  Peer server = endpoint_.Accept();
  EXPECT_EQ(server.Hear(sizeof kRequest - 1), kRequest);
  server.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(client.Hear(40), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  client.Say("more");
  EXPECT_EQ(server.Hear(4), "more");
  EXPECT_EQ(Counted(Outcome::kForwarded), 1);
}

TEST_F(ServerTest, AClientThatWaitsForTheServersFirstWordIsForwardedToo) {
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  ASSERT_TRUE(Eventually([&] { return wakes_ == 1; }));
  Awake();
  Peer server = endpoint_.Accept();
  server.Say("220 welcome\r\n");
  EXPECT_EQ(client.Hear(13), "220 welcome\r\n");
}

TEST_F(ServerTest, WhoOnlyLooksWhetherSomebodyListensWakesNobody) {
  limits_.silence = seconds(20);
  const int port = Start();
  { Peer check = Peer::Connect(port); }
  ASSERT_TRUE(Eventually([&] { return outcomes_[Outcome::kLeft] == 1; }));
  EXPECT_EQ(Wakes(), 0);
}

TEST_F(ServerTest, EachSideMayEndItsHalfAndHearTheOther) {
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  client.Say("one\n");
  client.SayNoMore();
  ASSERT_TRUE(Eventually([&] { return wakes_ == 1; }));
  Awake();
  Peer server = endpoint_.Accept();
  EXPECT_EQ(server.Hear(), "one\n") << "and the end";
  server.Say("two\n");
  EXPECT_FALSE(client.broken());
  server.SayNoMore();
  EXPECT_EQ(client.Hear(), "two\n");
  EXPECT_TRUE(Eventually([&] { return server_->open() == 0; }));
}

TEST_F(ServerTest, MuchIsForwardedWholeBothWaysPastASlowReader) {
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  Awake();
  std::string much(8 << 20, '\0');
  for (size_t i = 0; i < much.size(); ++i) much[i] = static_cast<char>(i * 2654435761u >> 13);
  std::jthread sending([&] {
    client.Say("x ");
    client.Say(much);
    client.SayNoMore();
  });
  Peer server = endpoint_.Accept();
  Clock::Real().Sleep(milliseconds(200), {});  // the sender meets full buffers meanwhile
  const std::string heard = server.Hear();
  EXPECT_TRUE(heard == "x " + much);
  std::jthread answering([&] {
    server.Say(much);
    server.SayNoMore();
  });
  EXPECT_TRUE(client.Hear() == much);
}

TEST_F(ServerTest, ASenderIsHeldBackWhileItWaits) {
  limits_.held_bytes = 32 << 10;
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  const std::string much(4 << 20, 'm');
  std::atomic<bool> sent = false;
  std::jthread sending([&] {
    client.Say("POST / HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n");
    client.Say(much);
    sent = true;
  });
  ASSERT_TRUE(Eventually([&] { return wakes_ == 1; }));
  Awake();
  Peer server = endpoint_.Accept();
  EXPECT_EQ(server.Hear(44 + much.size()).size(), 44 + much.size());
  sending.join();
  EXPECT_TRUE(sent);
}

TEST_F(ServerTest, WhenTimeIsOverHttpIsToldWhyAndOthersAreClosed) {
  nb_.spec.on_request->hold_for = milliseconds(300);
  const int port = Start();
  Peer client = Peer::Connect(port), other = Peer::Connect(port);
  client.Say(kRequest);
  other.Say("hello\n");
  const std::string answer = client.Hear();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
  EXPECT_NE(answer.find("Retry-After: "), std::string::npos);
  EXPECT_NE(answer.find("nb: not awake in time: Suspended: no node has room\n"), std::string::npos) << answer;
  EXPECT_EQ(other.Hear(), "");
  EXPECT_EQ(Counted(Outcome::kGaveUp), 2);
}

TEST_F(ServerTest, AnEndpointThatRefusesAtFirstIsAskedAgain) {
  Peer client = Peer::Connect(Start());
  client.Say(kRequest);
  Awake();
  ASSERT_TRUE(Eventually([&] { return server_->waiting() == 1; }));
  Clock::Real().Sleep(milliseconds(100), {});  // it is refused some times
  endpoint_.Listen();
  EXPECT_EQ(endpoint_.Accept().Hear(sizeof kRequest - 1), kRequest);
}

TEST_F(ServerTest, ABrowserGetsThePageAndTheStatusPathWakesNobody) {
  const int port = Start();
  Peer look = Peer::Connect(port);
  look.Say("GET /.holdfast/status HTTP/1.1\r\n\r\n");
  EXPECT_NE(look.Hear().find("\"phase\":\"Suspended\""), std::string::npos);
  EXPECT_EQ(Wakes(), 0);
  Peer browser = Peer::Connect(port);
  browser.Say("GET / HTTP/1.1\r\nAccept: text/html\r\n\r\n");
  EXPECT_NE(browser.Hear().find("<!doctype html>"), std::string::npos);
  EXPECT_EQ(Wakes(), 1);
  EXPECT_FALSE(browser.broken()) << "closed, not reset";
}

TEST_F(ServerTest, AHeadThatDribblesIsCutOff) {
  Peer client = Peer::Connect(Start());
  client.Say("GET / HTTP/1.1\r\nX: ");
  EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(Wakes(), 0);
}

TEST_F(ServerTest, BeyondTheLimitHttpIsToldSoAndThenNobodyIsLetIn) {
  limits_.per_service = 2;
  limits_.refusals = 1;
  limits_.silence = seconds(20);
  const int port = Start();
  Peer first = Peer::Connect(port), second = Peer::Connect(port);
  first.Say(kRequest);
  second.Say(kRequest);
  ASSERT_TRUE(Eventually([&] { return wakes_ == 2; }));
  Peer third = Peer::Connect(port);
  ASSERT_TRUE(Eventually([&] { return server_->open() == 3; }));
  Peer fourth = Peer::Connect(port);
  EXPECT_EQ(fourth.Hear(), "") << "there is no room even to tell it so";
  third.Say(kRequest);
  const std::string told = third.Hear();
  EXPECT_NE(told.find("503 Service Unavailable"), std::string::npos) << told;
  EXPECT_NE(told.find("too many requests"), std::string::npos) << told;
  EXPECT_EQ(Counted(Outcome::kRefused), 2);
  EXPECT_EQ(Wakes(), 2);
}

TEST_F(ServerTest, ASideThatBreaksHasTheOtherReset) {
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  client.Say("hello\n");
  Awake();
  Peer server = endpoint_.Accept();
  EXPECT_EQ(server.Hear(6), "hello\n");
  server.Reset();
  EXPECT_EQ(client.Hear(), "");
  EXPECT_TRUE(client.broken());
}

TEST_F(ServerTest, WhatNothingMovesOnIsClosedInTheEnd) {
  limits_.idle = milliseconds(200);
  endpoint_.Listen();
  Peer client = Peer::Connect(Start());
  client.Say("hello\n");
  Awake();
  Peer server = endpoint_.Accept();
  EXPECT_EQ(server.Hear(6), "hello\n");
  EXPECT_EQ(client.Hear(), "");
  EXPECT_TRUE(Eventually([&] { return server_->open() == 0; }));
}

TEST_F(ServerTest, WhatIsNotASleeperAnyMoreForwardsNothing) {
  endpoint_.Listen();
  const int port = Start();
  Peer held = Peer::Connect(port);
  held.Say(kRequest);
  ASSERT_TRUE(Eventually([&] { return wakes_ == 1; }));
  On([&] {
    gone_ = ready_ = true;
    server_->Consider();
  });
  EXPECT_TRUE(held.Hear().starts_with("HTTP/1.1 503 "));
  EXPECT_FALSE(endpoint_.Asked(50));
}

TEST_F(ServerTest, APortThatStandsForNobodyAnyMoreIsClosed) {
  const int port = Start();
  On([&] { EXPECT_TRUE(server_->SetRoutes({})); });
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  EXPECT_NE(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  close(fd);
}

TEST_F(ServerTest, ManyAtTheSameTimeAreAllForwarded) {
  endpoint_.Listen();
  const int port = Start();
  std::vector<Peer> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(Peer::Connect(port));
    clients.back().Say("number " + std::to_string(1000 + i) + "\n");
  }
  ASSERT_TRUE(Eventually([&] { return wakes_ == 100; }));
  Awake();
  for (int i = 0; i < 100; ++i) {
    Peer server = endpoint_.Accept();
    server.Say(server.Hear(12));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(clients[static_cast<size_t>(i)].Hear(12), "number " + std::to_string(1000 + i) + "\n");
}

}  // namespace
}  // namespace holdfast::activator
