#include "kube/admission.h"

#include <gtest/gtest.h>

#include "kube/base64.h"
#include "kube/http.h"
#include "kube/metrics.h"
#include "tests/unit/kube/raw_client.h"
#include "tests/unit/kube/simulation.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::kube {
namespace {

using std::chrono::seconds;

class Admission : public ::testing::Test {
 protected:
  void Start() {
    ASSERT_TRUE(server_.SetCertificate(first_.certificate_pem, first_.key_pem).ok());
    Status status = server_.Start("127.0.0.1", 0);
    ASSERT_TRUE(status.ok()) << status.ToString();
    client_ = Client(first_);
  }
  std::unique_ptr<Transport> Client(const TestCertificate& trusted) const {
    ClientConfig config;
    config.server = "https://127.0.0.1:" + std::to_string(server_.port());
    config.ca_pem = trusted.certificate_pem;
    return MakeCurlTransport(config);
  }
  static HttpRequest Review(const std::string& path) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.headers["content-type"] = "application/json";
    request.body =
        R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"r1","operation":"CREATE","namespace":"ns",
      "name":"web-0","subResource":"eviction","dryRun":true,"userInfo":{"username":"alice"},"kind":{"group":"","version":"v1","kind":"Pod"},
      "resource":{"group":"","version":"v1","resource":"pods"},"object":{"metadata":{"name":"web-0"}},"oldObject":null}})";
    return request;
  }
  Json Ask(const HttpRequest& request) {
    Result<HttpResponse> response = client_->Send(request, {});
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    if (!response.ok()) return nullptr;
    EXPECT_EQ(response->status, 200) << response->body;
    Result<Json> json = ParseJson(response->body);
    return json.ok() ? *json : Json();
  }

  const TestCertificate first_ = TestCertificate::Make("first", 1), second_ = TestCertificate::Make("second", 2);
  AdmissionServer server_;
  std::unique_ptr<Transport> client_;
};

TEST_F(Admission, CarriesAPatchThereAndBack) {
  const Json patch = Json::array({{{"op", "add"}, {"path", "/spec/runtimeClassName"}, {"value", "holdfast"}}});
  AdmissionRequest seen;
  server_.Handle("/mutate", [&](const AdmissionRequest& request) {
    seen = request;
    return AdmissionResponse{.patch = patch, .warnings = {"careful"}};
  });
  Start();
  Json answer = Ask(Review("/mutate?timeout=5s"));
  EXPECT_EQ(GetString(answer, {"apiVersion"}), "admission.k8s.io/v1");
  EXPECT_EQ(GetString(answer, {"response", "uid"}), "r1");
  EXPECT_TRUE(GetBool(answer, {"response", "allowed"}));
  EXPECT_EQ(GetString(answer, {"response", "patchType"}), "JSONPatch");
  EXPECT_EQ(*ParseJson(DecodeBase64(GetString(answer, {"response", "patch"})).value_or("")), patch);
  EXPECT_EQ(GetArray(answer, {"response", "warnings"}).size(), 1u);
  EXPECT_EQ(seen.operation, "CREATE");
  EXPECT_EQ(seen.ns, "ns");
  EXPECT_EQ(seen.name, "web-0");
  EXPECT_EQ(seen.subresource, "eviction");
  EXPECT_EQ(seen.username, "alice");
  EXPECT_EQ(seen.resource.plural, "pods");
  EXPECT_EQ(seen.resource.kind, "Pod");
  EXPECT_TRUE(seen.dry_run);
  EXPECT_EQ(GetString(seen.object, {"metadata", "name"}), "web-0");
  EXPECT_TRUE(seen.old_object.is_null());
}

TEST_F(Admission, RefusesWithItsCodeAndMessage) {
  server_.Handle("/evict", [](const AdmissionRequest&) {
    return AdmissionResponse{.allowed = false, .code = 429, .reason = "TooManyRequests", .message = "holdfast: checkpointing"};
  });
  Start();
  Json answer = Ask(Review("/evict"));
  EXPECT_FALSE(GetBool(answer, {"response", "allowed"}, true));
  EXPECT_EQ(GetInt(answer, {"response", "status", "code"}), 429);
  EXPECT_EQ(GetString(answer, {"response", "status", "reason"}), "TooManyRequests");
  EXPECT_EQ(GetString(answer, {"response", "status", "message"}), "holdfast: checkpointing");
}

TEST_F(Admission, AllowsWhenAHandlerThrows) {
  server_.Handle("/throw", [](const AdmissionRequest&) -> AdmissionResponse { throw std::runtime_error("a bug"); });
  server_.Handle("/odd", [](const AdmissionRequest&) -> AdmissionResponse { throw 1; });
  Start();
  EXPECT_TRUE(GetBool(Ask(Review("/throw")), {"response", "allowed"}));
  EXPECT_TRUE(GetBool(Ask(Review("/odd")), {"response", "allowed"}));
}

TEST_F(Admission, RefusesWhatIsNoReview) {
  server_.Handle("/mutate", [](const AdmissionRequest&) { return AdmissionResponse{}; });
  Start();
  for (const char* body :
       {"", "not JSON", "{}", R"({"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"x"}})",
        R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":[]})"}) {
    HttpRequest request = Review("/mutate");
    request.body = body;
    Result<HttpResponse> response = client_->Send(request, {});
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response->status, 400) << body;
  }
  HttpRequest other = Review("/mutate.other");
  EXPECT_EQ(client_->Send(other, {})->status, 404);
}

TEST_F(Admission, LimitsTheBody) {
  server_.Handle("/mutate", [](const AdmissionRequest&) { return AdmissionResponse{}; });
  Start();
  HttpRequest request = Review("/mutate");
  request.body = std::string((7 << 20) + 1, ' ');
  Result<HttpResponse> response = client_->Send(request, {});
  // Or the connection is closed before all of it was sent.
  EXPECT_TRUE(!response.ok() || response->status == 413) << response->status;
  request.body = std::string(6 << 20, ' ') + Review("/mutate").body;
  EXPECT_TRUE(GetBool(Ask(request), {"response", "allowed"}));
}

TEST_F(Admission, TakesANewCertificateWhileItRuns) {
  server_.Serve("/healthz", [] { return std::pair{200, std::string("ok")}; });
  Start();
  HttpRequest page;
  page.path = "/healthz";
  ASSERT_TRUE(client_->Send(page, {}).ok());
  EXPECT_EQ(server_.SetCertificate("nonsense", second_.key_pem).code(), Code::kInvalidArgument);
  EXPECT_EQ(server_.SetCertificate(second_.certificate_pem, first_.key_pem).code(), Code::kInvalidArgument);
  ASSERT_TRUE(server_.SetCertificate(second_.certificate_pem, second_.key_pem).ok());
  EXPECT_TRUE(Client(second_)->Send(page, {}).ok());
  Status refused = Client(first_)->Send(page, {}).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("certificate"), std::string::npos) << refused.message();
  EXPECT_TRUE(client_->Send(page, {}).ok()) << "a connection that is open goes on";
}

TEST_F(Admission, NeedsACertificate) { EXPECT_EQ(server_.Start("127.0.0.1", 0).code(), Code::kFailedPrecondition); }

TEST_F(Admission, ServesPagesWithoutTlsButNoReviews) {
  server_.Handle("/mutate", [](const AdmissionRequest&) { return AdmissionResponse{}; });
  server_.Serve("/metrics", [] { return std::pair{200, std::string("up 1\n")}; });
  server_.Serve("/throws", []() -> std::pair<int, std::string> { throw std::runtime_error("a bug"); });
  ASSERT_TRUE(server_.StartPlain("127.0.0.1", 0).ok());
  ClientConfig config;
  config.server = "http://127.0.0.1:" + std::to_string(server_.port());
  auto client = MakeCurlTransport(config);
  HttpRequest page;
  page.path = "/metrics";
  EXPECT_EQ(client->Send(page, {})->body, "up 1\n");
  page.path = "/throws";
  EXPECT_EQ(client->Send(page, {})->status, 500);
  EXPECT_EQ(client->Send(Review("/mutate"), {})->status, 404);
}

TEST_F(Admission, StopsAlthoughConnectionsAreIdle) {
  server_.Serve("/healthz", [] { return std::pair{200, std::string("ok")}; });
  Start();
  HttpRequest page;
  page.path = "/healthz";
  ASSERT_TRUE(client_->Send(page, {}).ok());
  MonoTime start = Clock::Real().Mono();
  server_.Stop();
  EXPECT_LT(Clock::Real().Mono() - start, seconds(2));
  EXPECT_FALSE(client_->Send(page, {}).ok());
}

TEST_F(Admission, AnswersManyAtOnce) {
  std::atomic<int> inside{0}, most{0};
  server_.Handle("/mutate", [&](const AdmissionRequest&) {
    int now = ++inside;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    EXPECT_TRUE(Eventually([&] { return most >= 20; }));
    --inside;
    return AdmissionResponse{};
  });
  Start();
  std::atomic<int> allowed{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 20; ++i) {
      callers.emplace_back([&] {
        Result<HttpResponse> response = client_->Send(Review("/mutate"), {});
        if (response.ok() && response->status == 200) ++allowed;
      });
    }
  }
  EXPECT_EQ(allowed, 20);
}

TEST_F(Admission, CountsAndTimesReviews) {
  prometheus::Registry registry;
  RuntimeMetrics metrics(registry);
  AdmissionServer server(&metrics);
  server.Handle("/mutate", [](const AdmissionRequest& request) -> AdmissionResponse {
    if (request.operation == "throw") throw std::runtime_error("a bug");
    if (request.operation == "refuse") return {.allowed = false, .code = 429};
    return {.allowed = request.operation != "forbid"};
  });
  ASSERT_TRUE(server.SetCertificate(first_.certificate_pem, first_.key_pem).ok());
  ASSERT_TRUE(server.Start("127.0.0.1", 0).ok());
  ClientConfig config;
  config.server = "https://127.0.0.1:" + std::to_string(server.port());
  config.ca_pem = first_.certificate_pem;
  auto client = MakeCurlTransport(config);
  for (const char* operation : {"CREATE", "throw", "refuse", "forbid", "not JSON"}) {
    HttpRequest request = Review("/mutate");
    const size_t at = request.body.find("CREATE");
    request.body.replace(at, 6, operation);
    if (operation == std::string("not JSON")) request.body = "{";
    ASSERT_TRUE(client->Send(request, {}).ok());
  }
  for (auto [code, count] : {std::pair{"200", 1}, {"500", 1}, {"429", 1}, {"403", 1}, {"400", 1}}) {
    EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_requests_total", {{"webhook", "/mutate"}, {"code", code}}), count) << code;
  }
  EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_latency_seconds", {{"webhook", "/mutate"}}), 5);
  EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_requests_in_flight", {{"webhook", "/mutate"}}), 0);
}

// Hole 4: whoever reaches the webhooks held all of their threads with connections that trickle.
TEST_F(Admission, AnswersEveryReviewBesideAThousandPeersThatTrickle) {
  server_.Handle("/mutate", [](const AdmissionRequest&) { return AdmissionResponse{}; });
  Start();
  TricklingPeers peers(server_.port(), 1000);
  EXPECT_TRUE(peers.Connected());
  for (int i = 0; i < 50; ++i) {
    auto fresh = i % 10 == 0 ? Client(first_) : nullptr;
    Result<HttpResponse> response = (fresh ? fresh : client_)->Send(Review("/mutate"), {});
    ASSERT_TRUE(response.ok()) << response.status().ToString();
    EXPECT_EQ(response->status, 200);
  }
}

// Hole 4: and so the metrics port, with the liveness probe on it.
TEST_F(Admission, AnswersEveryProbeBesideAThousandPeersThatTrickle) {
  server_.Serve("/healthz", [] { return std::pair{200, std::string("ok")}; });
  ASSERT_TRUE(server_.StartPlain("127.0.0.1", 0).ok());
  TricklingPeers peers(server_.port(), 1000, /*with_tls=*/false);
  EXPECT_TRUE(peers.Connected());
  ClientConfig config;
  config.server = "http://127.0.0.1:" + std::to_string(server_.port());
  HttpRequest page;
  page.path = "/healthz";
  for (int i = 0; i < 50; ++i) {
    Result<HttpResponse> response = MakeCurlTransport(config)->Send(page, {});
    ASSERT_TRUE(response.ok()) << response.status().ToString();
    EXPECT_EQ(response->body, "ok");
  }
}

}  // namespace
}  // namespace holdfast::kube
