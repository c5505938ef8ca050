// Who asks the store for what is not his, says what is not true, or asks without end: refused, and it costs next to nothing.
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "storage/wire.h"
#include "tests/unit/storage/memory_http.h"
#include "tests/unit/storage/server_fixture.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace holdfast::storage {
namespace {

// A node that may write uid-1 and uid-2, and nothing else.
class TwoCheckpoints final : public Authorizer {
 public:
  Status Check(const std::string&, Use, const std::string&, const std::string& checkpoint, std::stop_token) override {
    return checkpoint == "uid-1" || checkpoint == "uid-2" ? Status::Ok() : Status(Code::kPermissionDenied, "not yours");
  }
};

struct Served {
  explicit Served(const TempDir& dir) : store(OpenStore(dir / "store")), fence(std::move(*Fence::Open(dir / "TERM"))) {
    EXPECT_OK(allowed.Add("agent=read-write"));
    EXPECT_OK(allowed.Add("controller=delete"));
  }
  const std::unique_ptr<LocalStore> store;
  const std::unique_ptr<Fence> fence;
  AllowList allowed;
  CachedAuthenticator authenticator{std::make_unique<TokenNames>("node1"), std::chrono::seconds(60), std::chrono::seconds(10),
                                    Clock::Real()};
  TwoCheckpoints authorizer;
  Routes routes{*store, *fence, &authenticator, &authorizer, allowed, Clock::Real()};
  MemoryServer http{routes};

  std::string Ask(const std::string& method, const std::string& path, const std::string& token, const std::string& body = "",
                  const std::string& peer = "10.0.0.1", const std::string& length = "") {
    std::string request = method + " " + path + " HTTP/1.1\r\nHost: s\r\n";
    if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
    if (method == "POST")
      request +=
          "Content-Type: application/octet-stream\r\nContent-Length: " + (length.empty() ? std::to_string(body.size()) : length) + "\r\n";
    return http.Ask(request + "\r\n" + body, peer);
  }
};

TEST(Hostile, SegmentsOfAnotherNamespaceAreNotThere) {
  TempDir dir;
  Served served(dir);
  auto theirs = Take(served.store->OpenSession("uid-1", "theirs"));
  const FileEntry file = PutFile(*theirs, "secret", {"their password"});
  ASSERT_OK(theirs->Commit(ManifestOf("uid-1", "theirs", {file})));
  auto mine = Take(served.store->OpenSession("uid-2", "mine"));
  const SegmentId id = file.segments[0].id;
  // Told that it lacks it, as if nobody had it.
  const std::string answer = served.Ask("POST", "/v1/sessions/uid-2/missing", "agent-token", EncodeIds(std::vector{id}));
  EXPECT_EQ(StatusOf(answer), 200);
  EXPECT_TRUE(answer.ends_with('\1'));
  // It cannot be committed,
  Manifest stolen = ManifestOf("uid-2", "mine", {file});
  EXPECT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-2/commit", "agent-token", stolen.Serialize())), 400);
  // nor by saying that it is of their namespace,
  stolen.ns = "theirs";
  EXPECT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-2/commit", "agent-token", stolen.Serialize())), 400);
  // nor held with their checkpoint,
  EXPECT_NE(StatusOf(served.Ask("POST", "/v1/sessions/uid-2/hold?manifest=uid-1", "agent-token")), 204);
  // nor read by a manifest that does not have it.
  ASSERT_OK(mine->Commit(ManifestOf("uid-2", "mine", {PutFile(*mine, "a", {"my own"})})));
  EXPECT_EQ(StatusOf(served.Ask("POST", "/v1/manifests/uid-2/segments", "agent-token", EncodeIds(std::vector{id}))), 400);
  // Not even who knows its content learns that it is there: names are made with the namespace's key.
  EXPECT_NE(HashSegment(mine->hash_key(), AsBytes("their password")), id);
}

TEST(Hostile, ALengthThatLiesIsRefused) {
  TempDir dir;
  Served served(dir);
  ASSERT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-1?ns=default", "agent-token")), 200);
  const std::string ids(64, 'x');
  EXPECT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-1/missing", "agent-token", ids)), 200);
  EXPECT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-1/missing", "agent-token", ids, "10.0.0.1", "65")), 400) << "and then it ends";
  for (const char* length : {"99999999999999999999", "-1", "4294967296", "50331649", "1e9"}) {
    const int status = StatusOf(served.Ask("POST", "/v1/sessions/uid-1/missing", "agent-token", ids, "10.0.0.1", length));
    EXPECT_TRUE(status == 400 || status == 413) << length << ": " << status;
  }
  // Frames that say more than they have, and more than may be.
  auto frame = [](uint32_t size, uint32_t stored, const std::string& bytes) {
    std::string text(32, 'i');
    text += std::string(4, '\0');
    AppendInteger(size, text);
    AppendInteger(stored, text);
    return text + bytes;
  };
  for (const std::string& body : {frame(10, 10, "short"), frame(~0U, ~0U, "x"), frame(kMaxSegmentBytes + 1, kMaxSegmentBytes + 1, "x"),
                                  frame(0, 0, ""), frame(100, 200, std::string(200, 'x')), frame(5, 5, "hello") + "more"}) {
    const int status = StatusOf(served.Ask("POST", "/v1/sessions/uid-1/segments", "agent-token", body));
    EXPECT_TRUE(status == 400 || status == 422) << status;
  }
  EXPECT_EQ(served.store->Usage()->objects, 0U);
  EXPECT_EQ(StatusOf(served.Ask("GET", "/v1/sessions/uid-1", "agent-token")), 200);
}

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return strtoull(line.c_str() + 6, nullptr, 10) << 10;
  }
  return 0;
}

// What this process says meanwhile, to a file.
class StderrTo {
 public:
  explicit StderrTo(const std::string& path) : before_(dup(2)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, 2);
    close(fd);
  }
  ~StderrTo() {
    dup2(before_, 2);
    close(before_);
  }

 private:
  const int before_;
};

TEST(Hostile, AMillionTinyRequestsLeaveMemoryAndLogAsTheyWere) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kRequests = 200'000, kWarm = 100'000;  // the sanitizer makes each several times as long
#else
  constexpr size_t kRequests = 1'000'000, kWarm = 100'000;
#endif
  TempDir dir;
  Served served(dir);
  ASSERT_EQ(StatusOf(served.Ask("POST", "/v1/sessions/uid-1?ns=default", "agent-token")), 200);
  std::map<int, size_t> answers;
  uint64_t resident = 0, grown = 0;
  [[maybe_unused]] size_t allocated = 0;
  {
    StderrTo log(dir / "log");
    SetLogLevel(LogLevel::kInfo);
    std::mt19937_64 random(1);
    for (size_t i = 0; i < kRequests; ++i) {
      if (i == kWarm) {
        resident = ResidentBytes();
#if defined(__SANITIZE_ADDRESS__)
        allocated = __sanitizer_get_current_allocated_bytes();
#endif
      }
      const std::string any = std::to_string(random());
      const std::string peer = "10." + std::to_string(i % 251) + "." + std::to_string(i / 251 % 251) + ".7";
      std::string answer;
      switch (i % 8) {
        case 0:
          answer = served.Ask("GET", "/v1/manifests/" + any, "forged" + any, "", peer);
          break;
        case 1:
          answer = served.Ask("POST", "/v1/sessions/" + any + "?ns=n" + any, "agent-token", "", peer);
          break;
        case 2:
          answer = served.Ask("DELETE", "/v1/manifests/" + any, any + "-token", "", peer);
          break;
        case 3:
          answer = served.Ask("POST", "/v1/sessions/uid-1/missing", "agent-token", "x", peer);
          break;
        case 4:
          answer = served.Ask("GET", "/v2/" + any, "agent-token", "", peer);
          break;
        case 5:
          answer = served.Ask("POST", "/v1/sessions/" + any + "/abort?ns=default", "agent-token", "", peer);
          break;
        case 6:
          answer = served.Ask("POST", "/v1/sessions/uid-1/segments", "agent-token", any, peer);
          break;
        default:
          answer = served.Ask("GET", "/v1/sessions/..%2f" + any, "", "", peer);
      }
      ++answers[StatusOf(answer)];
    }
    grown = ResidentBytes() - std::min(ResidentBytes(), resident);
    SetLogLevel(LogLevel::kError);
  }
  for (const auto& [status, count] : answers) EXPECT_TRUE(status >= 400 && status < 500) << status << " " << count << " times";
#if defined(__SANITIZE_ADDRESS__)
  const size_t now = __sanitizer_get_current_allocated_bytes();
  EXPECT_LT(now - std::min(now, allocated), 1U << 20) << "bytes that are in use";
  EXPECT_LT(grown, 320U << 20) << "the sanitizer keeps freed memory for a while";
#else
  EXPECT_LT(grown, 8U << 20);
#endif
  RecordProperty("grown_kib", static_cast<int>(grown >> 10));
  const std::string log = ReadText(dir / "log");
  const auto lines = std::count(log.begin(), log.end(), '\n');
  EXPECT_GT(lines, 10);
  EXPECT_LT(lines, 10'000) << "a thousand kinds a minute are told";
  EXPECT_EQ(served.store->Usage()->open_sessions, 1U);
  EXPECT_EQ(served.store->Usage()->objects, 0U);
  EXPECT_EQ(StatusOf(served.Ask("GET", "/v1/sessions/uid-1", "agent-token")), 200);
}

}  // namespace
}  // namespace holdfast::storage
