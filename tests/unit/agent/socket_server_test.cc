// The socket against peers that are slow, silent, loud or malicious.
#include "agent/socket_server.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class SocketTest : public testing::Test {
 protected:
  void Start(
      SocketServerOptions options, SocketServer::Handler handler = [](const Json& q, std::stop_token) {
        return Json{{"echo", q}};
      }) {
    options.path = dir.path() + "/s";
    path = options.path;
    server = std::make_unique<SocketServer>(options, std::move(handler));
    ASSERT_TRUE(server->Start().ok());
  }

  int Connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  std::string Ask(const std::string& bytes) {
    int fd = Connect();
    size_t sent = 0;
    while (sent < bytes.size()) {
      ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    Result<std::string> line = ReadLine(fd, 1 << 20, std::chrono::seconds(5));
    close(fd);
    return line.ok() ? *line : line.status().message();
  }

  TempDir dir;
  std::string path;
  std::unique_ptr<SocketServer> server;
};

TEST_F(SocketTest, AnswersOneLineAndIsForRootAlone) {
  Start({});
  EXPECT_EQ(Ask("{\"a\":1}\n"), "{\"echo\":{\"a\":1}}");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SocketTest, WhatIsNoObjectIsRefused) {
  Start({});
  for (const std::string& line : {std::string("\n"), std::string("[]\n"), std::string("7\n"), std::string("{\n"), std::string("\0\0\n", 3),
                                  std::string(200, '[') + "\n", std::string("{\"a\":\"\xff\xfe\"}\n")}) {
    EXPECT_THAT(Ask(line), HasSubstr("refuse")) << line;
  }
}

TEST_F(SocketTest, ALineWithoutEndIsCutOff) {
  SocketServerOptions options;
  options.max_line_bytes = 1000;
  Start(options);
  EXPECT_THAT(Ask(std::string(5000, 'x')), HasSubstr("longer than 1000"));
}

TEST_F(SocketTest, ASilentPeerDoesNotHoldAThreadForLong) {
  SocketServerOptions options;
  options.threads = 1;
  options.io_timeout = milliseconds(200);
  Start(options);
  int silent = Connect();
  EXPECT_EQ(Ask("{}\n"), "{\"echo\":{}}");  // after the silent one was given up
  close(silent);
}

TEST_F(SocketTest, APeerThatHangsUpHarmsNobody) {
  Start({});
  for (int i = 0; i < 20; ++i) {
    int fd = Connect();
    if (i % 2 == 0) {
      EXPECT_GT(send(fd, "{\"a\"", 4, MSG_NOSIGNAL), 0);
    }
    close(fd);
  }
  EXPECT_EQ(Ask("{}\n"), "{\"echo\":{}}");
}

TEST_F(SocketTest, AHandlerThatThrowsIsARefusal) {
  Start({}, [](const Json&, std::stop_token) -> Json { throw std::runtime_error("oops"); });
  EXPECT_THAT(Ask("{}\n"), HasSubstr("internal error"));
}

TEST_F(SocketTest, MoreQuestionsThanThreadsAreAllAnswered) {
  SocketServerOptions options;
  options.threads = 2;
  Start(options);
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> askers;
    for (int i = 0; i < 24; ++i) {
      askers.emplace_back([&] { answered += Ask("{\"a\":1}\n") == "{\"echo\":{\"a\":1}}"; });
    }
  }
  EXPECT_EQ(answered, 24);
}

TEST_F(SocketTest, StopEndsAnAnswerThatWaits) {
  std::atomic<bool> asked = false;
  Start({}, [&](const Json&, std::stop_token stop) -> Json {
    asked = true;
    while (!stop.stop_requested()) std::this_thread::yield();
    return {{"stopped", true}};
  });
  std::jthread asker([&] { EXPECT_THAT(Ask("{}\n"), HasSubstr("stopped")); });
  while (!asked) std::this_thread::yield();
  server->Stop();
}

}  // namespace
}  // namespace holdfast::agent
