#include "activator/request.h"

#include <gtest/gtest.h>

#include <random>

namespace holdfast::activator {
namespace {

constexpr char kBrowser[] =
    "GET /lab/tree?x=1 HTTP/1.1\r\nHost: nb\r\nUser-Agent: Mozilla/5.0 (X11)\r\nACCEPT: text/html,application/xhtml+xml;q=0.9\r\n\r\n";

TEST(ReadRequest, ReadsABrowsersNavigation) {
  const Request request = ReadRequest(kBrowser);
  EXPECT_EQ(request.protocol, Protocol::kHttp);
  EXPECT_TRUE(request.complete);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/lab/tree");
  EXPECT_EQ(request.user_agent, "Mozilla/5.0 (X11)");
  EXPECT_TRUE(request.is_navigation());
  EXPECT_FALSE(request.asks_status());
}

TEST(ReadRequest, AnythingElseIsNoNavigation) {
  EXPECT_FALSE(ReadRequest("POST / HTTP/1.1\r\nAccept: text/html\r\n\r\n").is_navigation());
  EXPECT_FALSE(ReadRequest("GET / HTTP/1.1\r\nAccept: */*\r\n\r\n").is_navigation());
  EXPECT_FALSE(ReadRequest("GET / HTTP/1.1\r\nX-Accept: text/html\r\n\r\n").is_navigation());
  EXPECT_TRUE(ReadRequest("GET /.holdfast/status HTTP/1.1\r\n\r\n").asks_status());
  EXPECT_FALSE(ReadRequest("POST /.holdfast/status HTTP/1.1\r\n\r\n").asks_status());
}

TEST(ReadRequest, TellsOtherProtocolsByTheirFirstBytes) {
  const std::string_view others[] = {std::string_view("\x16\x03\x01\x02\x00", 5),
                                     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                     "PING\r\n",
                                     "*1\r\n$4\r\nPING\r\n",
                                     "SSH-2.0-x\r\n",
                                     "HELO mail\r\n",
                                     "hello\n",
                                     std::string_view("\0\0\0\x08", 4),
                                     "GET / FTP/1.1\r\n",
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n",
                                     "GET\r\n",
                                     " GET / HTTP/1.1\r\n"};
  for (const std::string_view bytes : others) EXPECT_EQ(ReadRequest(bytes).protocol, Protocol::kOther) << bytes;
}

TEST(ReadRequest, WaitsWhileTooLittleIsThereToTell) {
  const std::string_view whole = kBrowser;
  for (size_t length = 0; length < whole.size(); ++length) {
    const Request request = ReadRequest(whole.substr(0, length));
    EXPECT_NE(request.protocol, Protocol::kOther) << length;
    EXPECT_FALSE(request.complete) << length;
    EXPECT_FALSE(request.is_navigation()) << length;
  }
}

TEST(ReadRequest, AHeadThatIsTooLongSaysNothingButThatItIsHttp) {
  const std::string head = "GET / HTTP/1.1\r\nAccept: text/html\r\nX: " + std::string(kMaxHead, 'a');
  const Request request = ReadRequest(std::string_view(head).substr(0, kMaxHead));
  EXPECT_EQ(request.protocol, Protocol::kHttp);
  EXPECT_TRUE(request.complete);
  EXPECT_FALSE(request.is_navigation());
  EXPECT_EQ(ReadRequest("GET /" + std::string(kMaxHead, 'a')).protocol, Protocol::kOther);
}

TEST(ReadRequest, TakesAnyBytesWhatever) {
  std::minstd_rand random(1);
  const std::string_view parts[] = {"GET", " ", "/", "\r\n", "\n", "HTTP/1.1", ":", "Accept", "text/html", "\0", "\xff", "A", "?"};
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (unsigned n = random() % 12; n > 0; --n) bytes += parts[random() % std::size(parts)];
    const Request request = ReadRequest(bytes);
    EXPECT_TRUE(request.protocol == Protocol::kHttp || !request.complete);
  }
}

}  // namespace
}  // namespace holdfast::activator
