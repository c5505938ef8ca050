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
    EXPECT_EQ(status.message(), "because");
    EXPECT_EQ(f.transport->sent().size(), 1u) << c.http;
  }
}

TEST(Client, SaysSomethingWhenTheAnswerIsNotAStatus) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) { return HttpResponse{.status = 502, .body = "<html>\nbad gateway"}; });
  EXPECT_EQ(f.client.Get(kConfigMaps, "ns", "a").status().message(),
            "GET /api/v1/namespaces/ns/configmaps/a: HTTP 502: <html> bad gateway");
}

TEST(Client, WaitsAsLongAsTheServerAsksAndRetries) {
  Fixture f;
  std::atomic<int> calls{0};
  f.transport->SetAnswer([&](const HttpRequest&) -> Result<HttpResponse> {
    if (++calls > 1) return JsonAnswer(201, Json::object());
    HttpResponse busy = Failure(429, "TooManyRequests");
    busy.headers["retry-after"] = "2";
    return busy;
  });
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

TEST(Client, DoesNotWaitBeyondItsDeadline) {
  Fixture f;
  f.transport->SetAnswer([](const HttpRequest&) {
    HttpResponse busy = Failure(429, "TooManyRequests");
    busy.headers["retry-after"] = "60";
    return busy;
  });
  EXPECT_EQ(f.client.Get(kConfigMaps, "ns", "a", {.timeout = seconds(30)}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(f.transport->sent().size(), 1u);
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
