// The real counter against the real witness, on loopback.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>

#include "tests/places.h"
#include "witness/server.h"

namespace witness {
namespace {

int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

class CounterAndWitness : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(server_->error(), "");
    Start();
  }
  void TearDown() override {
    if (counter_ > 0) {
      kill(counter_, SIGKILL);
      waitpid(counter_, nullptr, 0);
    }
  }
  void Start() {
    const std::string program = holdfast::places::Program("holdfast_example_counter");
    const std::string witness = "WITNESS=127.0.0.1:" + std::to_string(server_->counter_port());
    counter_ = fork();
    if (counter_ == 0) {
      const char* argv[] = {program.c_str(), nullptr};
      const char* env[] = {witness.c_str(), "COUNTER_MIB=4", nullptr};
      execve(program.c_str(), const_cast<char**>(argv), const_cast<char**>(env));
      _exit(127);
    }
  }
  // Serves until `condition` holds; false after 20 s.
  bool Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      server_->RunOnce(20);
    }
    return true;
  }
  std::string Http(const std::string& request) {
    const int fd = Connect(server_->http_port());
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    std::string answer;
    Until([&] {
      char data[4096];
      const ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
      if (n > 0) answer.append(data, n);
      return n == 0;
    });
    close(fd);
    return answer;
  }
  nlohmann::json Report() {
    const std::string answer = Http("GET /report HTTP/1.1\r\n\r\n");
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4))["nonces"];
  }
  nlohmann::json Only() {
    const auto report = Report();
    EXPECT_LE(report.size(), 1u) << report;
    return report.empty() ? nlohmann::json{{"last", 0}} : report.begin().value();
  }
  bool Reaches(uint64_t count) {
    return Until([&] { return Only()["last"] >= count; });
  }

  std::unique_ptr<Server> server_ = std::make_unique<Server>(0, 0);
  pid_t counter_ = -1;
};

TEST_F(CounterAndWitness, AgreeOnEveryCount) {
  ASSERT_TRUE(Reaches(20));
  const auto seen = Only();
  EXPECT_EQ(seen["first"], 1);
  for (const char* key : {"lost", "repeated", "hash_mismatches", "monotonic_jumps", "reconnects"}) EXPECT_EQ(seen[key], 0) << seen;
  for (const char* key : {"loopback_broken", "two_copies"}) EXPECT_EQ(seen[key], false) << seen;
  EXPECT_EQ(seen["mib"], 4);
}

TEST_F(CounterAndWitness, AResetConnectionLosesAndRepeatsNothing) {
  ASSERT_TRUE(Reaches(5));
  const uint16_t port = server_->counter_port();
  // Stopped, so that no count reaches the first witness after the last look at it.
  kill(counter_, SIGSTOP);
  uint64_t last = 0;
  ASSERT_TRUE(Until([&] {
    const uint64_t now = Only()["last"];
    const bool still = now == last;
    last = now;
    return still;
  }));
  const auto before = Only();
  // A witness that goes away resets its connections. The next one, at the same port, knows nothing: the counter sends on what the first
  // did not acknowledge.
  server_.reset();
  server_ = std::make_unique<Server>(port, 0);
  ASSERT_EQ(server_->error(), "");
  kill(counter_, SIGCONT);
  ASSERT_TRUE(Reaches(before["last"].get<uint64_t>() + 10));
  const auto after = Only();
  EXPECT_LE(after["first"], before["last"].get<uint64_t>() + 1) << "counts lost between " << before << " and " << after;
  EXPECT_EQ(after["lost"], 0);
  EXPECT_EQ(after["repeated"], 0);
  EXPECT_EQ(after["hash_mismatches"], 0);
  EXPECT_EQ(after["reconnects"], 1);
}

TEST_F(CounterAndWitness, AFrozenCounterIsAGapAndGoesOn) {
  ASSERT_TRUE(Reaches(5));
  kill(counter_, SIGSTOP);
  const auto thaw = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  ASSERT_TRUE(Until([&] { return std::chrono::steady_clock::now() > thaw; }));
  const uint64_t last = Only()["last"];
  kill(counter_, SIGCONT);
  ASSERT_TRUE(Reaches(last + 5));
  const auto seen = Only();
  EXPECT_EQ(seen["lost"], 0);
  EXPECT_GE(seen["longest_gap_ms"], 1400);
  ASSERT_EQ(seen["gaps"].size(), 1u) << seen;
}

TEST_F(CounterAndWitness, ALostChildIsABrokenLoopbackConnection) {
  ASSERT_TRUE(Reaches(5));
  const std::string children = "/proc/" + std::to_string(counter_) + "/task/" + std::to_string(counter_) + "/children";
  FILE* file = fopen(children.c_str(), "re");
  ASSERT_NE(file, nullptr);
  int child = 0;
  ASSERT_EQ(fscanf(file, "%d", &child), 1);
  fclose(file);
  kill(child, SIGKILL);
  EXPECT_TRUE(Until([&] { return Only()["loopback_broken"] == true; }));
}

TEST_F(CounterAndWitness, ARestartIsANewNonce) {
  ASSERT_TRUE(Reaches(3));
  TearDown();
  Start();
  EXPECT_TRUE(Until([&] { return Report().size() == 2; }));
}

TEST_F(CounterAndWitness, AResetForgetsAndCountingGoesOn) {
  ASSERT_TRUE(Reaches(5));
  EXPECT_NE(Http("POST /reset HTTP/1.1\r\n\r\n").find("200 OK"), std::string::npos);
  ASSERT_TRUE(Reaches(15));
  const auto seen = Only();
  EXPECT_GT(seen["first"], 1);
  EXPECT_EQ(seen["lost"], 0);
  EXPECT_EQ(seen["hash_mismatches"], 0);
}

TEST_F(CounterAndWitness, TheWitnessClosesOnNonsense) {
  const int fd = Connect(server_->counter_port());
  ASSERT_EQ(send(fd, "COUNT me in\n", 12, MSG_NOSIGNAL), 12);
  char data;
  EXPECT_TRUE(Until([&] { return recv(fd, &data, 1, MSG_DONTWAIT) == 0; }));
  close(fd);
  EXPECT_NE(Http("DELETE / HTTP/1.1\r\n\r\n").find("404"), std::string::npos);
}

}  // namespace
}  // namespace witness
