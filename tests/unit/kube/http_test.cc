#include "kube/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Takes one connection after another on loopback, reads a request's head, writes what the test says, and holds the connection open until
// the peer closes it or the test ends.
class RawServer {
 public:
  explicit RawServer(std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
  ~RawServer() {
    thread_.request_stop();
    thread_.join();
    close(listener_);
  }
  ClientConfig Config() const {
    ClientConfig config;
    config.server = "http://127.0.0.1:" + std::to_string(port_);
    return config;
  }
  int connections() const { return connections_; }
  std::string head() {
    std::lock_guard lock(mutex_);
    return head_;
  }

 private:
  static bool Readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, 10) > 0;
  }
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!Readable(listener_)) continue;
      int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      ++connections_;
      std::string head;
      while (!stop.stop_requested()) {
        if (!Readable(peer)) continue;
        char buffer[4096];
        ssize_t n = recv(peer, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        head.append(buffer, static_cast<size_t>(n));
        if (head.find("\r\n\r\n") == std::string::npos) continue;
        {
          std::lock_guard lock(mutex_);
          head_ = head;
        }
        head.clear();
        (void)send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      }
      close(peer);
    }
  }

  const std::string answer_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::string head_;
  std::jthread thread_;
};

HttpRequest Get(const std::string& path = "/x") {
  HttpRequest request;
  request.path = path;
  return request;
}

TEST(CurlTransport, ReusesItsConnection) {
  RawServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: a b\r\n\r\nok");
  auto transport = MakeCurlTransport(server.Config());
  for (int i = 0; i < 5; ++i) {
    Result<HttpResponse> response = transport->Send(Get(), {});
    ASSERT_TRUE(response.ok()) << response.status().ToString();
    EXPECT_EQ(response->body, "ok");
    EXPECT_EQ(response->headers["x-thing"], "a b");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(CurlTransport, EndsASilentStreamAfterTheIdleTimeout) {
  RawServer server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n");
  auto transport = MakeCurlTransport(server.Config());
  HttpRequest request = Get();
  request.idle_timeout = milliseconds(300);
  std::string got;
  auto take = [&](std::string_view chunk) {
    got += chunk;
    return true;
  };
  MonoTime start = Clock::Real().Mono();
  EXPECT_EQ(transport->Stream(request, take, {}).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(got, "line\n");
  EXPECT_GE(Clock::Real().Mono() - start, milliseconds(300));
  EXPECT_LT(Clock::Real().Mono() - start, seconds(5));
}

TEST(CurlTransport, EndsAStreamWhenTheReaderHasEnough) {
  RawServer server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n");
  auto transport = MakeCurlTransport(server.Config());
  Result<HttpResponse> response = transport->Stream(Get(), [](std::string_view) { return false; }, {});
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  EXPECT_EQ(response->status, 200);
}

TEST(CurlTransport, GivesTheBodyOfAStreamThatWasRefused) {
  RawServer server("HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\ngone");
  auto transport = MakeCurlTransport(server.Config());
  Result<HttpResponse> response = transport->Stream(Get(),
                                                    [](std::string_view) {
                                                      ADD_FAILURE() << "not a 2xx answer";
                                                      return true;
                                                    },
                                                    {});
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 410);
  EXPECT_EQ(response->body, "gone");
}

TEST(CurlTransport, IsCancelledAtOnce) {
  RawServer server("");  // never answers
  auto transport = MakeCurlTransport(server.Config());
  for (bool stream : {false, true}) {
    std::stop_source stop;
    Status status;
    std::jthread caller([&] {
      status = stream ? transport
                            ->Stream(
                                Get(), [](std::string_view) { return true; }, stop.get_token())
                            .status()
                      : transport->Send(Get(), stop.get_token()).status();
    });
    int expected = stream ? 2 : 1;
    ASSERT_TRUE(Eventually([&] { return server.connections() == expected; }));
    MonoTime start = Clock::Real().Mono();
    stop.request_stop();
    caller.join();
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_LT(Clock::Real().Mono() - start, milliseconds(500));
  }
}

TEST(CurlTransport, GivesUpAtTheDeadline) {
  RawServer server("");
  auto transport = MakeCurlTransport(server.Config());
  HttpRequest request = Get("/secret?token=1");
  request.timeout = milliseconds(200);
  Status status = transport->Send(request, {}).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(status.message().find("token"), std::string::npos) << "queries stay out of messages";
}

TEST(CurlTransport, LimitsTheBody) {
  RawServer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
  auto transport = MakeCurlTransport(server.Config());
  HttpRequest request = Get();
  request.max_body_bytes = 9;
  EXPECT_EQ(transport->Send(request, {}).status().code(), Code::kResourceExhausted);
  request.max_body_bytes = 10;
  EXPECT_TRUE(transport->Send(request, {}).ok());
}

TEST(CurlTransport, SaysThatNobodyListens) {
  ClientConfig config;
  {
    RawServer server("");
    config = server.Config();
  }
  Status status = MakeCurlTransport(config)->Send(Get(), {}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("127.0.0.1"), std::string::npos) << status.message();
}

TEST(CurlTransport, ReadsItsTokenAgain) {
  std::string dir = ::testing::TempDir() + "holdfast-token-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  ASSERT_TRUE(WriteFileAtomically(dir + "/token", "one\n").ok());
  RawServer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ClientConfig config = server.Config();
  config.token_file = dir + "/token";
  auto transport = MakeCurlTransport(config);
  ASSERT_TRUE(transport->Send(Get(), {}).ok());
  EXPECT_NE(server.head().find("Authorization: Bearer one\r\n"), std::string::npos) << server.head();
  ASSERT_TRUE(WriteFileAtomically(dir + "/token", "two\n").ok());
  EXPECT_TRUE(Eventually([&] {
    (void)transport->Send(Get(), {}).ok();
    return server.head().find("Authorization: Bearer two\r\n") != std::string::npos;
  }));
  // Replaced by nothing for a moment: the last one serves on.
  ASSERT_TRUE(RemoveAll(dir).ok());
  Clock::Real().Sleep(milliseconds(1100), {});
  ASSERT_TRUE(transport->Send(Get(), {}).ok());
  EXPECT_NE(server.head().find("Bearer two"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::kube
