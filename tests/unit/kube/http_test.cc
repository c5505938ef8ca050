#include "kube/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <thread>

#include "base/file.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An HTTP/1.1 server on loopback with a thread for each connection. `answer` gets each request's head and body; what it returns is written,
// and the connection stays open until the peer closes it or the test ends; with nothing returned it is closed at once.
class RawServer {
 public:
  using Answer = std::function<std::optional<std::string>(const std::string& request)>;
  explicit RawServer(std::string answer) : RawServer([answer](const std::string&) { return answer; }) {}
  explicit RawServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { Accept(stop); });
  }
  ~RawServer() {
    thread_.request_stop();
    thread_.join();
    peers_.clear();
    close(listener_);
  }
  ClientConfig Config(const std::string& scheme = "http") const {
    ClientConfig config;
    config.server = scheme + "://127.0.0.1:" + std::to_string(port_);
    return config;
  }
  int connections() const { return connections_; }
  size_t sent() const { return sent_; }
  std::vector<std::string> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  static bool Ready(int fd, short events) {
    pollfd p{fd, events, 0};
    return poll(&p, 1, 10) > 0;
  }
  void Accept(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!Ready(listener_, POLLIN)) continue;
      int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      ++connections_;
      peers_.emplace_back([this, peer](const std::stop_token& end) {
        Serve(peer, end);
        close(peer);
      });
    }
  }
  void Serve(int peer, const std::stop_token& stop) {
    std::string request;
    while (!stop.stop_requested()) {
      if (!Ready(peer, POLLIN)) continue;
      char buffer[4096];
      ssize_t n = recv(peer, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      request.append(buffer, static_cast<size_t>(n));
      const size_t head = request.find("\r\n\r\n");
      const size_t length = request.find("Content-Length: ");
      if (head == std::string::npos) continue;
      if (length < head && request.size() < head + 4 + strtoull(request.c_str() + length + 16, nullptr, 10)) continue;
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      std::optional<std::string> answer = answer_(request);
      request.clear();
      if (!answer) return;
      for (size_t at = 0; at < answer->size() && !stop.stop_requested();) {
        if (!Ready(peer, POLLOUT)) continue;
        n = send(peer, answer->data() + at, std::min<size_t>(answer->size() - at, 65536), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return;
        if (n < 0) continue;
        at += static_cast<size_t>(n);
        sent_ += static_cast<size_t>(n);
      }
    }
  }

  const Answer answer_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<size_t> sent_{0};
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::list<std::jthread> peers_;
  std::jthread thread_;
};

std::string Ok(const std::string& body) { return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body; }

constexpr char kOneLine[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n";

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
  RawServer server(kOneLine);
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
  RawServer server(kOneLine);
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
    stop.request_stop();
    caller.join();
    EXPECT_EQ(status.code(), Code::kCancelled) << "and not what comes of waiting for an answer";
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

TEST(CurlTransport, RefusesToSendALongRequest) {
  RawServer server(Ok(""));
  HttpRequest request = Get();
  request.method = "PUT";
  request.body.resize((16 << 20) + 1);
  EXPECT_EQ(MakeCurlTransport(server.Config())->Send(request, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(server.connections(), 0);
}

TEST(CurlTransport, SaysThatNobodyListens) {
  ClientConfig config;
  {
    RawServer server("");
    config = server.Config();
  }
  Status status = MakeCurlTransport(config)->Send(Get(), {}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  for (const char* part : {"127.0.0.1", "Connection refused", "is the server running"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(CurlTransport, GivesUpAHandshakeThatGoesNowhere) {
  RawServer server("");  // speaks no TLS
  TransportOptions options;
  options.connect_timeout = milliseconds(200);
  Status status = MakeCurlTransport(server.Config("https"), options)->Send(Get(), {}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << "not connected, so that a GET may be tried again: " << status.ToString();
}

// libcurl sends a request again when a kept connection turns out to be closed. For a read that is right.
TEST(CurlTransport, SendsAReadAgainButNeverAWriteWhenAKeptConnectionBreaks) {
  for (const char* method : {"GET", "PUT", "PATCH", "DELETE", "POST"}) {
    RawServer server([first = std::make_shared<std::atomic<int>>(0)](const std::string&) -> std::optional<std::string> {
      if (++*first == 2) return std::nullopt;  // read, and then the connection breaks
      return Ok("ok");
    });
    auto transport = MakeCurlTransport(server.Config());
    ASSERT_TRUE(transport->Send(Get(), {}).ok());
    HttpRequest request = Get();
    request.method = method;
    if (request.method != "GET") request.body = "{}";
    Status status = transport->Send(request, {}).status();
    if (request.method == "GET") {
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(server.requests().size(), 3u);
    } else {
      EXPECT_EQ(status.code(), Code::kUnavailable) << method;
      EXPECT_EQ(server.requests().size(), 2u) << method;
    }
  }
}

TEST(CurlTransport, MakesTheServerWaitForASlowReaderAndLosesNothing) {
  std::string body;
  for (int i = 0; body.size() < (24u << 20); ++i) body += std::to_string(i) + "\n";
  RawServer server(Ok(body));
  auto transport = MakeCurlTransport(server.Config());
  std::string got;
  got.reserve(body.size());
  std::atomic<bool> go{false}, stuck{false};
  std::jthread reader([&] {
    auto take = [&](std::string_view chunk) {
      stuck = true;
      while (!go) Clock::Real().Sleep(milliseconds(1), {});
      got += chunk;
      return true;
    };
    EXPECT_TRUE(transport->Stream(Get(), take, {}).ok());
  });
  ASSERT_TRUE(Eventually([&] { return stuck.load(); }));
  // The server stops: what is under way is in the sockets' buffers, and no more than 1 MiB with us.
  size_t before = 0;
  ASSERT_TRUE(Eventually([&] {
    Clock::Real().Sleep(milliseconds(200), {});
    return std::exchange(before, server.sent()) == server.sent();
  }));
  EXPECT_LT(server.sent(), body.size() / 2);
  EXPECT_TRUE(transport->Send(Get(), {}).ok()) << "others are not in its way";
  go = true;
  reader.join();
  EXPECT_EQ(got, body);
}

class TokenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
    Write("one");
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  void Write(const std::string& token) { ASSERT_TRUE(WriteFileAtomically(dir_ + "/token", token + "\n").ok()); }
  std::unique_ptr<Transport> Make() {
    ClientConfig config = server_.Config();
    config.token_file = dir_ + "/token";
    return MakeCurlTransport(config);
  }
  std::string dir_ = ::testing::TempDir() + "holdfast-token-XXXXXX";
  // Takes the token "two" only.
  RawServer server_{[](const std::string& request) -> std::optional<std::string> {
    if (request.find("Authorization: Bearer two\r\n") != std::string::npos) return Ok("ok");
    return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
  }};
};

TEST_F(TokenTest, IsReadAgainAtOnceWhenItIsRefusedAndTheRequestGoesOutOnceMore) {
  auto transport = Make();
  EXPECT_EQ(transport->Send(Get(), {})->status, 401);
  EXPECT_EQ(server_.requests().size(), 1u) << "the same token is not sent twice";
  Write("two");
  HttpRequest put = Get();
  put.method = "PUT";
  put.body = "body";
  Result<HttpResponse> response = transport->Send(put, {});
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(server_.requests().size(), 3u);
  EXPECT_TRUE(server_.requests()[2].ends_with("\r\n\r\nbody")) << server_.requests()[2];
}

TEST_F(TokenTest, IsRenewedForAStreamToo) {
  auto transport = Make();
  EXPECT_EQ(transport->Send(Get(), {})->status, 401);
  Write("two");
  std::string got;
  auto take = [&](std::string_view chunk) {
    got += chunk;
    return true;
  };
  EXPECT_EQ(transport->Stream(Get(), take, {})->status, 200);
  EXPECT_EQ(got, "ok");
}

TEST_F(TokenTest, OfTheCallerIsItsOwn) {
  auto transport = Make();
  HttpRequest request = Get();
  request.headers["authorization"] = "Bearer other";
  EXPECT_EQ(transport->Send(request, {})->status, 401);
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(server_.requests()[0].find("Bearer one"), std::string::npos);
}

TEST(CurlTransport, NamesItself) {
  RawServer server(Ok(""));
  ASSERT_TRUE(MakeCurlTransport(server.Config())->Send(Get(), {}).ok());
  EXPECT_NE(server.requests()[0].find("User-Agent: holdfast/"), std::string::npos) << server.requests()[0];
}

// For ThreadSanitizer and AddressSanitizer: everything at once, and the transport goes away right after.
TEST(CurlTransport, ServesManyThreadsThatSendStreamAndCancel) {
  RawServer server([](const std::string& request) -> std::optional<std::string> {
    if (request.starts_with("GET /stream")) return kOneLine;
    if (request.starts_with("GET /break")) return std::nullopt;
    return Ok("ok");
  });
  auto transport = MakeCurlTransport(server.Config());
  std::atomic<int> sent{0}, cancelled{0}, streamed{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 12; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 25; ++i) {
          std::stop_source stop;
          if (t % 3 == 0) {
            sent += transport->Send(Get(), stop.get_token()).ok() ? 1 : 0;
          } else if (t % 3 == 1) {
            (void)transport->Send(Get("/break"), stop.get_token()).ok();
            auto take = [&](std::string_view) { return ++streamed % 2 == 0; };
            HttpRequest request = Get("/stream");
            request.idle_timeout = milliseconds(5);
            (void)transport->Stream(request, take, stop.get_token()).ok();
          } else {
            std::jthread canceller([&] { stop.request_stop(); });
            HttpRequest request = Get("/stream");
            Status status = transport
                                ->Stream(
                                    request, [](std::string_view) { return true; }, stop.get_token())
                                .status();
            cancelled += status.code() == Code::kCancelled ? 1 : 0;
          }
        }
      });
    }
  }
  transport.reset();
  EXPECT_EQ(sent, 100);
  EXPECT_EQ(streamed, 100);
  EXPECT_EQ(cancelled, 100);
}

}  // namespace
}  // namespace holdfast::kube
