#include "kube/client.h"

#include <gtest/gtest.h>

#include "kube/objects.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::seconds;

struct Fixture {
  FakeClock clock;
  std::shared_ptr<FakeTransport> transport = std::make_shared<FakeTransport>();
  Client client{transport, clock};
};

TEST(Client, MapsEveryAnswerToItsCode) {
  struct {
    int http;
    const char* reason;
    Code code;
  } const cases[] = {{400, "BadRequest", Code::kInvalidArgument},
                     {401, "Unauthorized", Code::kUnauthenticated},
                     {403, "Forbidden", Code::kPermissionDenied},
                     {404, "NotFound", Code::kNotFound},
                     {409, "Conflict", Code::kConflict},
                     {409, "AlreadyExists", Code::kAlreadyExists},
                     {410, "Expired", Code::kGone},
                     {422, "Invalid", Code::kInvalidArgument},
                     {429, "TooManyRequests", Code::kResourceExhausted},
                     {500, "InternalError", Code::kUnavailable},
                     {503, "ServiceUnavailable", Code::kUnavailable},
                     {504, "Timeout", Code::kUnavailable}};
  for (const auto& c : cases) {
    Fixture f;
    f.transport->SetAnswer([&](const HttpRequest&) { return Failure(c.http, c.reason, "because"); });
    Status status = f.client.Get(kConfigMaps, "ns", "a").status();
    EXPECT_EQ(status.code(), c.code) << c.http << c.reason;
    EXPECT_TRUE(status.message().starts_with("because")) << status.message();
    EXPECT_EQ(f.transport->sent().size(), 1u) << c.http;
  }
}

TEST(Client, SaysSomethingWhenTheAnswerIsNotAStatus) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) { return HttpResponse{.status = 502, .body = "<html>\nbad gateway"}; });
  EXPECT_EQ(f.client.Get(kConfigMaps, "ns", "a").status().message(),
            "GET /api/v1/namespaces/ns/configmaps/a: HTTP 502: <html> bad gateway");
}

HttpResponse Busy(int code, const std::string& seconds) {
  HttpResponse busy = Failure(code, "Busy");
  busy.headers["retry-after"] = seconds;
  return busy;
}

TEST(Client, WaitsAsLongAsTheServerAsksAndRetries) {
  for (int code : {429, 500, 502, 503, 504}) {
    Fixture f;
    std::atomic<int> calls{0};
    f.transport->SetAnswer(
        [&](const HttpRequest&) -> Result<HttpResponse> { return ++calls > 1 ? JsonAnswer(201, Json::object()) : Busy(code, "2"); });
    Status status(Code::kInternal, "not back");
    std::jthread caller([&] { status = f.client.Create(kConfigMaps, "ns", {{"metadata", {{"name", "a"}}}}).status(); });
    while (f.clock.waiters() == 0) std::this_thread::yield();
    f.clock.Advance(seconds(1));
    EXPECT_EQ(calls, 1);
    f.clock.Advance(seconds(1));
    caller.join();
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(calls, 2);
  }
}

// An answer without Retry-After, and one that is no 429 or 5xx, is handed on.
TEST(Client, RetriesNoAnswerUnlessTheServerAsks) {
  struct {
    int code;
    const char* retry_after;
  } const cases[] = {{429, ""}, {500, ""}, {503, ""}, {503, "soon"}, {503, "-1"}, {409, "1"}, {403, "1"}, {200, "1"}};
  for (const auto& c : cases) {
    Fixture f;
    f.transport->SetAnswer([&](const HttpRequest&) { return Busy(c.code, c.retry_after); });
    (void)f.client.Get(kConfigMaps, "ns", "a").status();
    EXPECT_EQ(f.transport->sent().size(), 1u) << c.code << " " << c.retry_after;
  }
}

TEST(Client, GivesUpAfterTenRetries) {
  for (bool network : {false, true}) {
    Fixture f;
    f.transport->SetAnswer([&](const HttpRequest&) -> Result<HttpResponse> {
      if (network) return Status(Code::kUnavailable, "connection refused");
      return Busy(503, "1");
    });
    Status status;
    std::atomic<bool> back{false};
    std::jthread caller([&] {
      status = f.client.Get(kConfigMaps, "ns", "a", {.timeout = std::chrono::hours(1)}).status();
      back = true;
    });
    EXPECT_TRUE(AdvanceUntil(f.clock, seconds(1), std::chrono::minutes(5), [&] { return back.load(); }));
    caller.join();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(f.transport->sent().size(), 11u);
  }
}

TEST(Client, StopsWaitingWhenItIsCancelled) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) { return Busy(503, "20"); });
  std::stop_source stop;
  Status status;
  std::jthread caller([&] { status = f.client.Get(kConfigMaps, "ns", "a", {.stop = stop.get_token()}).status(); });
  while (f.clock.waiters() == 0) std::this_thread::yield();
  stop.request_stop();
  caller.join();
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(f.transport->sent().size(), 1u);
}

TEST(Client, DoesNotWaitBeyondItsDeadline) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) { return Busy(429, "60"); });
  EXPECT_EQ(f.client.Get(kConfigMaps, "ns", "a", {.timeout = seconds(30)}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(f.transport->sent().size(), 1u);
}

TEST(Client, GivesEachTryWhatIsLeftOfItsTime) {
  Fixture f;
  f.transport->SetAnswer(
      [&](const HttpRequest&) { return f.transport->sent().size() == 1 ? Busy(503, "10") : JsonAnswer(200, Json::object()); });
  std::jthread caller([&] { EXPECT_TRUE(f.client.Get(kConfigMaps, "ns", "a", {.timeout = seconds(30)}).ok()); });
  while (f.clock.waiters() == 0) std::this_thread::yield();
  f.clock.Advance(seconds(10));
  caller.join();
  EXPECT_EQ(f.transport->sent()[0].timeout, seconds(30));
  EXPECT_EQ(f.transport->sent()[1].timeout, seconds(20));
}

TEST(Client, NeverRetriesAnEviction) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) {
    HttpResponse busy = Failure(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.");
    busy.headers["retry-after"] = "1";
    return busy;
  });
  Status status = f.client.Evict("ns", "web-0", {.preconditions = {.uid = "u1"}, .grace_period_seconds = 0});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  std::vector<HttpRequest> sent = f.transport->sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].path, "/api/v1/namespaces/ns/pods/web-0/eviction");
  Result<Json> body = ParseJson(sent[0].body);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(GetString(*body, {"apiVersion"}), "policy/v1");
  EXPECT_EQ(GetString(*body, {"deleteOptions", "preconditions", "uid"}), "u1");
  EXPECT_EQ(GetInt(*body, {"deleteOptions", "gracePeriodSeconds"}, -1), 0);
}

TEST(Client, RetriesOnlyReadsAfterANetworkFailure) {
  for (bool read : {true, false}) {
    Fixture f;
    std::atomic<int> calls{0};
    f.transport->SetAnswer([&](const HttpRequest&) -> Result<HttpResponse> {
      if (++calls == 1) return Status(Code::kUnavailable, "connection reset");
      return JsonAnswer(200, Json::object());
    });
    Status status;
    std::atomic<bool> back{false};
    std::jthread caller([&] {
      status = read ? f.client.Get(kConfigMaps, "ns", "a").status() : f.client.Update(kConfigMaps, "ns", "a", Json::object()).status();
      back = true;
    });
    EXPECT_TRUE(AdvanceUntil(f.clock, std::chrono::milliseconds(50), seconds(5), [&] { return back.load(); }));
    caller.join();
    EXPECT_EQ(status.ok(), read) << status.ToString();
    EXPECT_EQ(calls, read ? 2 : 1);
  }
}

TEST(Client, SaysWhatToDoAboutARefusal) {
  struct {
    HttpResponse answer;
    Code code;
    const char* says;
  } const cases[] = {
      {Failure(403, "Forbidden", "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" at the cluster scope"),
       Code::kPermissionDenied,
       "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" at the cluster scope (allow it with a Role"},
      {Failure(403, "Forbidden", "exceeded quota: q"), Code::kPermissionDenied, "exceeded quota: q"},
      {Failure(401, "Unauthorized", "Unauthorized"), Code::kUnauthenticated,
       "Unauthorized (the API server does not accept our token or certificate"},
      {{.status = 401, .hint = "our client certificate /tls.crt expired"},
       Code::kUnauthenticated,
       "401 (our client certificate /tls.crt expired)"},
      {{.status = 404, .body = "404 page not found\n"},
       Code::kFailedPrecondition,
       "GET /apis/example.com/v1/namespaces/ns/widgets/a: the API server does not serve widgets.example.com: is its "
       "CustomResourceDefinition "
       "installed? (kubectl get crd widgets.example.com)"},
      {Failure(404, "NotFound", "the server could not find the requested resource"), Code::kFailedPrecondition,
       "does not serve widgets.example.com"},
      {Failure(404, "NotFound", "widgets.example.com \"a\" not found"), Code::kNotFound, "widgets.example.com \"a\" not found"},
  };
  const Resource widgets{"example.com", "v1", "widgets", "Widget", true};
  for (const auto& c : cases) {
    Fixture f;
    f.transport->SetAnswer([&](const HttpRequest&) { return c.answer; });
    Status status = f.client.Get(widgets, "ns", "a").status();
    EXPECT_EQ(status.code(), c.code) << status.ToString();
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

Json PageOf(const std::vector<std::string>& names, const std::string& more) {
  Json items = Json::array();
  for (const std::string& name : names) items.push_back({{"metadata", {{"name", name}}}});
  return {{"items", items}, {"metadata", {{"resourceVersion", "7"}, {"continue", more}}}};
}

TEST(Client, ListsPageAfterPage) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest& request) {
    bool first = request.path.find("continue") == std::string::npos;
    return JsonAnswer(200, first ? PageOf({"a", "b"}, "next/page") : PageOf({"c"}, ""));
  });
  Result<std::vector<Json>> list = f.client.List(kConfigMaps, {.label_selector = "app=web,tier!=x"});
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 3u);
  EXPECT_EQ(f.transport->sent()[0].path, "/api/v1/configmaps?labelSelector=app%3Dweb%2Ctier%21%3Dx&limit=500");
  EXPECT_NE(f.transport->sent()[1].path.find("continue=next%2Fpage"), std::string::npos);
}

TEST(Client, StartsAListOverWithoutPagesWhenItsSnapshotExpired) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest& request) {
    if (request.path.find("continue") != std::string::npos) return Failure(410, "Expired");
    return JsonAnswer(200, request.path.find("limit") != std::string::npos ? PageOf({"a"}, "x") : PageOf({"a", "b", "c"}, ""));
  });
  Result<std::vector<Json>> list = f.client.List(kConfigMaps, {});
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_EQ(list->size(), 3u);
}

TEST(Client, SendsServerSideApplyWithItsManager) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) { return JsonAnswer(200, Json::object()); });
  CallOptions options{.subresource = "status", .field_manager = "holdfast agent", .force = true, .dry_run = true};
  ASSERT_TRUE(f.client.Patch(Pod::kResource, "ns", "web-0", PatchType::kApply, Json::object(), options).ok());
  HttpRequest sent = f.transport->sent()[0];
  EXPECT_EQ(sent.method, "PATCH");
  EXPECT_EQ(sent.path, "/api/v1/namespaces/ns/pods/web-0/status?fieldManager=holdfast%20agent&force=true&dryRun=All");
  EXPECT_EQ(sent.headers["content-type"], "application/apply-patch+yaml");
}

TEST(Resource, EscapesNamesSoThatTheyCannotLeaveTheirPath) {
  EXPECT_EQ(Pod::kResource.Path("a/../b", "x?y"), "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy");
  EXPECT_EQ(kLeases.Path("ns", "l", "status"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l/status");
  EXPECT_EQ(Node::kResource.Path("ignored", "n"), "/api/v1/nodes/n");
}

TEST(Resource, ComparesVersionsAsNumbers) {
  EXPECT_TRUE(IsOlderVersion("9", "10"));
  EXPECT_FALSE(IsOlderVersion("10", "9"));
  EXPECT_FALSE(IsOlderVersion("10", "10"));
  EXPECT_FALSE(IsOlderVersion("", "10"));
  EXPECT_FALSE(IsOlderVersion("x", "10"));
  EXPECT_TRUE(IsOlderVersion("99999999999999999999", "100000000000000000000"));
}

}  // namespace
}  // namespace holdfast::kube
