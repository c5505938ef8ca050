#include "storage/server/auth.h"

#include <atomic>
#include <thread>

#include "storage/server/server.h"
#include "storage/server/token_review.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

class CountingAuthenticator final : public Authenticator {
 public:
  explicit CountingAuthenticator(int* calls) : calls_(calls) {}
  Result<Caller> Authenticate(const std::string& token, std::stop_token) override {
    ++*calls_;
    if (token == "down") return Status(Code::kUnavailable, "no answer");
    if (token.starts_with("good")) return Caller{.user = "user-of-" + token, .node = "node1"};
    return Status(Code::kUnauthenticated, "nobody's");
  }

 private:
  int* const calls_;
};

TEST(CachedAuthenticator, AsksOncePerMinute) {
  FakeClock clock;
  int calls = 0;
  CachedAuthenticator cached(std::make_unique<CountingAuthenticator>(&calls), std::chrono::seconds(60), std::chrono::seconds(10), clock);
  for (int i = 0; i < 5; ++i) {
    Result<Caller> caller = cached.Authenticate("good", {});
    ASSERT_OK(caller);
    EXPECT_EQ(caller->user, "user-of-good");
    EXPECT_EQ(caller->node, "node1");
  }
  EXPECT_EQ(calls, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(CodeOf(cached.Authenticate("bad", {})), Code::kUnauthenticated);
  EXPECT_EQ(calls, 2);
  clock.Advance(std::chrono::seconds(11));
  EXPECT_EQ(CodeOf(cached.Authenticate("bad", {})), Code::kUnauthenticated);
  EXPECT_OK(cached.Authenticate("good", {}));
  EXPECT_EQ(calls, 3);
  clock.Advance(std::chrono::seconds(50));
  EXPECT_OK(cached.Authenticate("good", {}));
  EXPECT_EQ(calls, 4);
}

TEST(CachedAuthenticator, DoesNotRememberThatNobodyAnswered) {
  FakeClock clock;
  int calls = 0;
  CachedAuthenticator cached(std::make_unique<CountingAuthenticator>(&calls), std::chrono::seconds(60), std::chrono::seconds(10), clock);
  EXPECT_EQ(CodeOf(cached.Authenticate("down", {})), Code::kUnavailable);
  EXPECT_EQ(CodeOf(cached.Authenticate("down", {})), Code::kUnavailable);
  EXPECT_EQ(calls, 2);
}

TEST(CachedAuthenticator, StaysSmall) {
  FakeClock clock;
  int calls = 0;
  CachedAuthenticator cached(std::make_unique<CountingAuthenticator>(&calls), std::chrono::seconds(60), std::chrono::seconds(10), clock);
  for (int i = 0; i < 5000; ++i) EXPECT_OK(cached.Authenticate("good" + std::to_string(i), {}));
  EXPECT_EQ(CodeOf(cached.Authenticate(std::string(1 << 20, 'x'), {})), Code::kUnauthenticated);
  EXPECT_EQ(CodeOf(cached.Authenticate("", {})), Code::kUnauthenticated);
  EXPECT_EQ(calls, 5000);
}

// Does not answer about bad tokens before it may.
class SlowAboutBad final : public Authenticator {
 public:
  SlowAboutBad(std::atomic<int>* waiting, std::atomic<bool>* go) : waiting_(waiting), go_(go) {}
  Result<Caller> Authenticate(const std::string& token, std::stop_token) override {
    if (token.starts_with("good")) return Caller{.user = token, .node = "node1"};
    ++*waiting_;
    while (!*go_) std::this_thread::yield();
    return Status(Code::kUnauthenticated, "nobody's");
  }

 private:
  std::atomic<int>* const waiting_;
  std::atomic<bool>* const go_;
};

// Hole 4: also those who send whole requests, each with another token, and an API server that is slow to tell.
TEST(CachedAuthenticator, TokensThatAreMadeUpKeepNobodyOut) {
  FakeClock clock;
  std::atomic<int> waiting{0};
  std::atomic<bool> go{false};
  CachedAuthenticator cached(std::make_unique<SlowAboutBad>(&waiting, &go), std::chrono::seconds(60), std::chrono::seconds(10), clock);
  EXPECT_OK(cached.Authenticate("good", {}));
  {
    std::vector<std::jthread> strangers;
    for (int i = 0; i < 16; ++i) {
      strangers.emplace_back(
          [&cached, i] { EXPECT_EQ(CodeOf(cached.Authenticate("bad" + std::to_string(i), {})), Code::kUnauthenticated); });
    }
    while (waiting < 16) std::this_thread::yield();
    EXPECT_EQ(CodeOf(cached.Authenticate("bad", {})), Code::kUnavailable) << "it holds no thread";
    clock.Advance(std::chrono::seconds(61));
    EXPECT_OK(cached.Authenticate("good", {}));  // which is asked about again
    go = true;
  }
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(CodeOf(cached.Authenticate("bad" + std::to_string(i), {})), Code::kUnauthenticated);
  const int asked = waiting;
  EXPECT_EQ(CodeOf(cached.Authenticate("bad4999", {})), Code::kUnauthenticated);
  EXPECT_EQ(waiting, asked) << "the last is remembered";
}

TEST(AllowList, KnowsWhoMayDoWhat) {
  AllowList list;
  ASSERT_OK(list.Add("system:serviceaccount:holdfast:agent=read-write"));
  ASSERT_OK(list.Add("system:serviceaccount:holdfast:controller=delete"));
  ASSERT_OK(list.Add("admin=read-write,delete"));
  EXPECT_TRUE(list.Allows("system:serviceaccount:holdfast:agent", Role::kReadWrite));
  EXPECT_FALSE(list.Allows("system:serviceaccount:holdfast:agent", Role::kDelete));
  EXPECT_FALSE(list.Allows("system:serviceaccount:holdfast:controller", Role::kReadWrite));
  EXPECT_TRUE(list.Allows("admin", Role::kDelete));
  EXPECT_FALSE(list.Allows("", Role::kReadWrite));
  for (const char* flag : {"", "x", "=read-write", "x=", "x=all", "x=read-write,"}) EXPECT_FALSE(list.Add(flag).ok()) << flag;
}

// Answers TokenReviews as an API server does.
class FakeApiServer final : public kube::Transport {
 public:
  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token) override {
    last = request;
    if (status != 201) return kube::HttpResponse{.status = status, .headers = {}, .body = "{}"};
    Json review = Json::parse(request.body);
    const bool good = GetString(review, {"spec", "token"}) == "good";
    review["status"] = {{"authenticated", good}};
    if (good)
      review["status"]["user"] = {{"username", "system:serviceaccount:holdfast:agent"},
                                  {"extra", {{"authentication.kubernetes.io/node-name", {"node1"}}}}};
    if (good && review["spec"].contains("audiences") && knows_audiences) review["status"]["audiences"] = review["spec"]["audiences"];
    return kube::HttpResponse{.status = 201, .headers = {{"content-type", "application/json"}}, .body = review.dump()};
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
    return Status(Code::kUnsupported, "");
  }
  kube::HttpRequest last;
  int status = 201;
  bool knows_audiences = true;
};

TEST(TokenReview, SaysWhoseATokenIs) {
  auto api = std::make_shared<FakeApiServer>();
  auto authenticator = MakeTokenReviewAuthenticator(std::make_shared<kube::Client>(api), "");
  Result<Caller> caller = authenticator->Authenticate("good", {});
  ASSERT_OK(caller);
  EXPECT_EQ(caller->user, "system:serviceaccount:holdfast:agent");
  EXPECT_EQ(caller->node, "node1") << "the node of the pod that the token is bound to";
  EXPECT_EQ(api->last.method, "POST");
  EXPECT_EQ(api->last.path.substr(0, api->last.path.find('?')), "/apis/authentication.k8s.io/v1/tokenreviews");
  EXPECT_EQ(CodeOf(authenticator->Authenticate("bad", {})), Code::kUnauthenticated);
}

TEST(TokenReview, AFailureIsNotTheCallersFault) {
  auto api = std::make_shared<FakeApiServer>();
  auto authenticator = MakeTokenReviewAuthenticator(std::make_shared<kube::Client>(api), "");
  for (int status : {401, 403, 500, 503}) {
    api->status = status;
    EXPECT_EQ(CodeOf(authenticator->Authenticate("good", {})), Code::kUnavailable) << status;
  }
}

TEST(TokenReview, ChecksTheAudience) {
  auto api = std::make_shared<FakeApiServer>();
  auto authenticator = MakeTokenReviewAuthenticator(std::make_shared<kube::Client>(api), "holdfast-store");
  EXPECT_OK(authenticator->Authenticate("good", {}));
  api->knows_audiences = false;
  EXPECT_EQ(CodeOf(authenticator->Authenticate("good", {})), Code::kUnauthenticated);
}

TEST(Addresses, AreRead) {
  EXPECT_EQ(ParseAddress("127.0.0.1:8443")->second, 8443);
  EXPECT_EQ(ParseAddress(":8443")->first, "0.0.0.0");
  EXPECT_EQ(ParseAddress("[::1]:0")->first, "::1");
  for (const char* text : {"", "8443", "x:", "x:-1", "x:70000", "x:80y"}) EXPECT_FALSE(ParseAddress(text).ok()) << text;
  EXPECT_TRUE(IsLoopback("127.3.4.5"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_FALSE(IsLoopback("0.0.0.0"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
}

}  // namespace
}  // namespace holdfast::storage
