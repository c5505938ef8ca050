#include "kube/http_server.h"

#include <gtest/gtest.h>

#include "kube/connection_queue.h"
#include "kube/server_connection.h"
#include "tests/unit/kube/raw_client.h"
#include "tests/unit/kube/simulation.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kNever = std::chrono::hours(1);
constexpr char kPage[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

std::string Get(RawClient& client) { return client.Write(kPage) ? client.Read() : ""; }
bool Answered(const std::string& answer) { return answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"); }

// The limits are what the test says, and pass when it says so: each look moves the clock on.
class TlsConnections : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options) {
    ASSERT_TRUE(tls_.SetCertificate(certificate_.certificate_pem, certificate_.key_pem).ok());
    server_ = std::make_unique<HttpServer>(options, &tls_, clock_);
    server_->routes().Get("/healthz",
                          [](const httplib::Request&, httplib::Response& response) { response.set_content("ok", "text/plain"); });
    server_->routes().Post("/echo", [](const httplib::Request& request, httplib::Response& response) {
      response.set_content(std::to_string(request.body.size()) + "\r\n\r\nok", "text/plain");
    });
    Status started = server_->Start("127.0.0.1", 0);
    ASSERT_TRUE(started.ok()) << started.ToString();
    port_ = server_->port();
  }
  // Again and again, since nobody sees from here when the server has what was sent.
  std::jthread TimePasses(Duration step) {
    return std::jthread([this, step](const std::stop_token& stop) {
      while (Clock::Real().Sleep(milliseconds(50), stop)) clock_.Advance(step);
    });
  }
  // Nothing more comes to it: the server has ended it.
  static bool Ended(RawClient& client) { return client.Read().empty(); }

  const TestCertificate certificate_ = TestCertificate::Make("tls", 3);
  TlsServerState tls_;
  FakeClock clock_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

TEST_F(TlsConnections, AnIdleOneIsNotSlow) {
  Start({.handshake = kNever});
  RawClient client(port_);
  ASSERT_TRUE(client.Handshake());
  clock_.Advance(seconds(50));
  EXPECT_TRUE(Answered(Get(client))) << "nothing was asked yet";
  clock_.Advance(seconds(50));
  EXPECT_TRUE(Answered(Get(client))) << "between two requests";
  const std::jthread time = TimePasses(seconds(101));
  EXPECT_TRUE(Ended(client)) << "idle for too long";
}

TEST_F(TlsConnections, OneThatDribblesARequestIsCut) {
  Start({});
  RawClient client(port_);
  ASSERT_TRUE(client.Handshake());
  EXPECT_TRUE(Answered(Get(client)));
  size_t sent = 0;
  // Each byte comes in time, the request does not.
  for (const char* at = kPage; *at != '\0' && client.Write(std::string(1, *at)); ++at, ++sent) {
    Clock::Real().Sleep(milliseconds(20), {});  // the server has to see it before the clock moves
    clock_.Advance(seconds(1));
  }
  EXPECT_FALSE(Answered(client.Read()));
}

TEST_F(TlsConnections, OneThatDribblesABodyIsCut) {
  Start({.body_first = 100, .handshake = kNever});
  RawClient client(port_);
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(client.Write("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"));
  for (int i = 0; i < 99 && client.Write("x"); ++i) {
    Clock::Real().Sleep(milliseconds(10), {});
    clock_.Advance(seconds(1));
  }
  EXPECT_TRUE(Ended(client));
}

TEST_F(TlsConnections, OneThatDoesNotFinishItsHandshakeIsCut) {
  Start({});
  RawClient client(port_);
  const char hello[] = "\x16\x03\x01";  // the beginning of a ClientHello
  ASSERT_EQ(send(client.socket(), hello, 3, 0), 3);
  const std::jthread time = TimePasses(seconds(6));
  char byte;
  EXPECT_LE(recv(client.socket(), &byte, 1, 0), 0);
}

TEST_F(TlsConnections, TheIdlestGivesWay) {
  Start({.max_connections = 3, .handshake = kNever});
  RawClient old(port_, "127.0.1.1"), recent(port_, "127.0.1.2");
  for (RawClient* client : {&old, &recent}) {
    ASSERT_TRUE(client->Handshake());
    EXPECT_TRUE(Answered(Get(*client)));
    Clock::Real().Sleep(milliseconds(50), {});  // it is idle from then on
    clock_.Advance(seconds(1));
  }
  RawClient third(port_, "127.0.1.3");
  ASSERT_TRUE(third.Handshake());
  EXPECT_TRUE(Answered(Get(third)));
  RawClient fourth(port_, "127.0.1.4");
  ASSERT_TRUE(fourth.Handshake());
  EXPECT_TRUE(Answered(Get(fourth)));
  EXPECT_TRUE(Ended(old));
  EXPECT_TRUE(Answered(Get(recent)));
  EXPECT_TRUE(Answered(Get(third)));
}

TEST_F(TlsConnections, AStrangersBodyIsNotWaitedFor) {
  ASSERT_TRUE(tls_.SetCertificate(certificate_.certificate_pem, certificate_.key_pem).ok());
  HttpServer server({.threads = 1}, &tls_, clock_);
  server.routes().Post("/refused", [](const httplib::Request&, httplib::Response& response, const httplib::ContentReader&) {
    response.status = 403;
    response.set_content("\r\n\r\nok", "text/plain");
  });
  server.routes().Get("/healthz", [](const httplib::Request&, httplib::Response& r) { r.set_content("ok", "text/plain"); });
  ASSERT_TRUE(server.Start("127.0.0.1", 0).ok());
  RawClient stranger(server.port()), other(server.port());
  ASSERT_TRUE(stranger.Handshake() && other.Handshake());
  ASSERT_TRUE(stranger.Write("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nsome"));
  EXPECT_TRUE(stranger.Read().starts_with("HTTP/1.1 403 "));
  EXPECT_TRUE(Answered(Get(other))) << "the one thread is free";
  EXPECT_TRUE(Ended(stranger)) << "what else comes from it is no request";
}

TEST_F(TlsConnections, SeveralRequestsAtOnceAreAnsweredInTurn) {
  Start({.body_first = 100});
  RawClient client(port_);
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(client.Write(std::string("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc") + kPage));
  std::string answers = client.Read();
  while (answers.find("text/plain") == answers.rfind("text/plain")) {
    const std::string more = client.Read();
    ASSERT_FALSE(more.empty()) << answers;
    answers += more;
  }
  EXPECT_NE(answers.find("\r\n\r\n3\r\n"), std::string::npos) << answers;
}

TEST_F(TlsConnections, OnePeerDoesNotGetAllThreads) {
  HttpServer server({.threads = 4}, nullptr, Clock::Real());
  std::atomic<int> inside{0};
  std::atomic<bool> go{false};
  server.routes().Get("/long", [&](const httplib::Request&, httplib::Response&) {
    ++inside;
    EXPECT_TRUE(Eventually([&] { return go.load(); }));
  });
  server.routes().Get("/healthz", [](const httplib::Request&, httplib::Response& r) { r.set_content("ok", "text/plain"); });
  ASSERT_TRUE(server.Start("127.0.0.1", 0).ok());
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 10; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server.port(), "127.0.1.1"));
    ASSERT_TRUE(greedy.back()->Write("GET /long HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  EXPECT_TRUE(Eventually([&] { return inside == 3; }));
  RawClient other(server.port());
  EXPECT_TRUE(Answered(Get(other)));
  EXPECT_EQ(inside, 3);
  go = true;
}

TEST(Yielding, InOrder) {
  const MonoTime early{seconds(1)}, late{seconds(2)};
  const std::vector<Standing> order = {
      {Phase::kHead, early, true}, {Phase::kIdle, late, false},    {Phase::kIdle, early, true},
      {Phase::kIdle, late, true},  {Phase::kServing, early, true},
  };
  for (size_t a = 0; a < order.size(); ++a) {
    for (size_t b = a + 1; b < order.size(); ++b) {
      EXPECT_TRUE(YieldsBefore(order[a], order[b])) << a << " before " << b;
      EXPECT_FALSE(YieldsBefore(order[b], order[a])) << b << " before " << a;
    }
  }
  EXPECT_FALSE(MayYield({.phase = Phase::kReady}));
}

TEST(RequestHeads, AreReadAsFarAsTheyMustBeKnown) {
  struct Case {
    const char* bytes;
    std::optional<size_t> head, body;
  };
  for (const Case& c : std::vector<Case>{
           {"", {}, {}},
           {"GET / HTTP/1.1\r\nHost: x\r\n", {}, {}},
           {"GET / HTTP/1.1\r\n\r\n", 18, 0},
           {"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest", 27, 0},
           {"POST / HTTP/1.1\r\ncOntent-length:  12 \r\n\r\nrest", 41, 12},
           {"POST /?Content-Length: 7 HTTP/1.1\r\nX: Content-Length: 9\r\n\r\n", 59, 0},
       }) {
    Result<std::optional<RequestHead>> read = ReadRequestHead(c.bytes);
    ASSERT_TRUE(read.ok()) << c.bytes;
    ASSERT_EQ(read->has_value(), c.head.has_value()) << c.bytes;
    if (!c.head) continue;
    EXPECT_EQ((*read)->bytes, *c.head) << c.bytes;
    EXPECT_EQ((*read)->body_bytes, *c.body) << c.bytes;
  }
  for (const char* lengths : {"Content-Length: 1\r\nContent-Length: 2", "Content-Length: ", "Content-Length: -1", "Content-Length: 1x",
                              "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked"}) {
    EXPECT_EQ(ReadRequestHead(std::string("POST / HTTP/1.1\r\n") + lengths + "\r\n\r\n").status().code(), Code::kInvalidArgument)
        << lengths;
  }
}

TEST(ConnectionQueue, WaitsWhenItIsFullAndServesEverything) {
  ConnectionQueue queue(2, 3);
  std::atomic<bool> go{false};
  std::atomic<int> served{0}, taken{0};
  auto serve = [&] {
    EXPECT_TRUE(Eventually([&] { return go.load(); }));
    ++served;
  };
  std::jthread listener([&] {
    for (int i = 0; i < 8; ++i) {
      queue.enqueue(serve);
      ++taken;
    }
  });
  EXPECT_TRUE(Eventually([&] { return taken == 5; })) << "two are served, three wait";
  Clock::Real().Sleep(std::chrono::milliseconds(20), {});
  EXPECT_EQ(taken, 5);
  EXPECT_EQ(queue.waiting(), 3u);
  go = true;
  listener.join();
  queue.shutdown();
  EXPECT_EQ(served, 8);
}

}  // namespace
}  // namespace holdfast::kube
