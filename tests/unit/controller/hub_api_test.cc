#include "controller/hub_api.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/controller/fake_api.h"

namespace holdfast::controller {
namespace {

constexpr char kBase[] = "/v1/namespaces/lab/suspendedworkloads";
constexpr char kObject[] = "/apis/holdfast.dev/v1alpha1/namespaces/lab/suspendedworkloads/nb";

TEST(HubCall, SaysWhatIsAskedFor) {
  struct {
    const char *method, *path;
    HubVerb verb;
    const char* kubernetes;
  } const table[] = {
      {"GET", "", HubVerb::kList, "list"},
      {"GET", "/nb", HubVerb::kStatus, "get"},
      {"GET", "/nb.v2", HubVerb::kStatus, "get"},
      {"GET", "/suspend", HubVerb::kStatus, "get"},
      {"POST", "/nb/suspend", HubVerb::kSuspend, "patch"},
      {"POST", "/nb/resume", HubVerb::kResume, "patch"},
  };
  for (const auto& row : table) {
    const auto call = ReadHubCall({row.method, std::string(kBase) + row.path});
    ASSERT_TRUE(call.ok()) << row.path << call.status().ToString();
    EXPECT_EQ(call->verb, row.verb) << row.path;
    EXPECT_EQ(ActionOf(*call).verb, row.kubernetes);
    EXPECT_EQ(ActionOf(*call).ns, "lab");
  }
}

TEST(HubCall, RefusesWhatItDoesNotKnow) {
  const std::string base = kBase;
  struct {
    std::string method, path;
    Code code;
  } const table[] = {
      {"GET", "", Code::kNotFound},
      {"GET", "/", Code::kNotFound},
      {"GET", "/v2/namespaces/lab/suspendedworkloads", Code::kNotFound},
      {"GET", "/v1/namespaces/lab/pods", Code::kNotFound},
      {"GET", base + "/nb/wake", Code::kNotFound},
      {"GET", base + "/nb/suspend/now", Code::kNotFound},
      {"GET", base + "/", Code::kInvalidArgument},
      {"GET", base + "/..", Code::kInvalidArgument},
      {"GET", base + "/NB", Code::kInvalidArgument},
      {"GET", base + "/n\xff", Code::kInvalidArgument},
      {"GET", base + "/nb?x", Code::kInvalidArgument},
      {"GET", base + "/" + std::string(254, 'a'), Code::kInvalidArgument},
      {"GET", "/v1/namespaces/a.b/suspendedworkloads", Code::kInvalidArgument},
      {"GET", "/v1/namespaces//suspendedworkloads", Code::kInvalidArgument},
      {"GET", base + "/nb/suspend", Code::kUnsupported},
      {"POST", base, Code::kUnsupported},
      {"DELETE", base + "/nb", Code::kUnsupported},
      {"PUT", base + "/nb/resume", Code::kUnsupported},
  };
  for (const auto& row : table) EXPECT_EQ(ReadHubCall({row.method, row.path}).status().code(), row.code) << row.method << " " << row.path;
}

TEST(HubCall, WaitsForAMinuteAtMost) {
  for (const char* good : {"0", "7", "60"}) {
    const auto call = ReadHubCall({"GET", kBase, {{"wait", good}}});
    ASSERT_TRUE(call.ok()) << good;
    EXPECT_EQ(call->wait, std::chrono::seconds(atoi(good)));
  }
  for (const char* bad : {"", "-1", "61", "1.5", "1s", " 1", "99999999999999999999"}) {
    EXPECT_EQ(ReadHubCall({"GET", kBase, {{"wait", bad}}}).status().code(), Code::kInvalidArgument) << bad;
  }
}

// An API server that knows the token "good" of user hub, and lets it do what is in `allowed`.
class HubApiTest : public ::testing::Test {
 protected:
  class Reviews final : public kube::Transport {
   public:
    std::shared_ptr<testing::FakeApi> objects = std::make_shared<testing::FakeApi>();
    std::vector<std::string> allowed = {"list", "get", "patch"};
    std::string audience = "holdfast-hub";
    std::vector<Json> access_reviews{};
    int token_reviews = 0, down = 0;
    std::mutex mutex{};

    Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override {
      const bool token = request.path.find("/tokenreviews") != std::string::npos;
      if (!token && request.path.find("/subjectaccessreviews") == std::string::npos) return objects->Send(request, stop);
      std::lock_guard lock(mutex);
      if (down != 0) return kube::HttpResponse{.status = down, .body = R"({"kind":"Status","message":"no"})"};
      Json body = *ParseJson(request.body);
      if (token) {
        ++token_reviews;
        const bool good = GetString(body, {"spec", "token"}) == "good";
        body["status"] = {{"authenticated", good}};
        if (good) {
          body["status"]["audiences"] = {audience};
          body["status"]["user"] = {{"username", "hub"}, {"uid", "7"}, {"groups", {"g"}}, {"extra", {{"k", {"v"}}}}};
        }
      } else {
        access_reviews.push_back(body["spec"]);
        const std::string verb = GetString(body, {"spec", "resourceAttributes", "verb"});
        body["status"] = {{"allowed", std::find(allowed.begin(), allowed.end(), verb) != allowed.end()}, {"reason", "so it is"}};
      }
      return kube::HttpResponse{.status = 201, .body = DumpJson(body)};
    }
    Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
      return Status(Code::kUnavailable, "nothing to watch");
    }
  };

  void Put(const char* state, const char* phase, int generation = 2, const Json& status = Json::object()) {
    Json object = {{"metadata", {{"namespace", "lab"}, {"name", "nb"}, {"generation", generation}}},
                   {"spec", {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", state}}},
                   {"status", {{"phase", phase}, {"observedGeneration", generation}}}};
    object["status"].update(status);
    reviews_->objects->Put(kObject, object);
  }
  HubAnswer Call(const std::string& method, const std::string& path, const std::string& token = "good",
                 const std::map<std::string, std::string>& query = {}, std::stop_token stop = {}) {
    return hub_.Answer({method, kBase + path, query, token.empty() ? "" : "Bearer " + token}, stop);
  }
  static Json Body(const HubAnswer& answer) { return ParseJson(answer.body).value_or(Json()); }
  std::string State() { return GetString(reviews_->objects->objects[kObject], {"spec", "state"}); }

  std::shared_ptr<Reviews> reviews_ = std::make_shared<Reviews>();
  FakeClock clock_;
  kube::Client client_{reviews_, clock_};
  HubAccess access_{client_, "holdfast-hub"};
  HubApi hub_{client_, access_, [](auto&, auto&) { return std::string(); }, 1};
};

TEST_F(HubApiTest, WhoMayDoWhat) {
  Put("Running", "Running");
  struct {
    std::vector<std::string> allowed;
    const char *method, *path;
    int status;
  } const table[] = {
      {{}, "GET", "/nb", 403},        {{"get"}, "GET", "/nb", 200},
      {{"get"}, "GET", "", 403},      {{"get", "list"}, "POST", "/nb/suspend", 403},
      {{"patch"}, "GET", "/nb", 403}, {{"patch"}, "POST", "/nb/suspend", 202},
      {{}, "GET", "/none", 403},  // who may not look does not learn what there is
      {{"get"}, "GET", "/none", 404},
  };
  for (const auto& row : table) {
    clock_.Advance(std::chrono::minutes(1));
    reviews_->allowed = row.allowed;
    const HubAnswer answer = Call(row.method, row.path);
    EXPECT_EQ(answer.status, row.status) << row.method << " " << row.path << ": " << answer.body;
    if (row.status < 400) continue;
    EXPECT_EQ(answer.type, "application/problem+json");
    EXPECT_EQ(GetInt(Body(answer), {"status"}), row.status);
  }
  const Json spec = reviews_->access_reviews.at(0);
  EXPECT_EQ(spec, Json::parse(R"({"user":"hub","uid":"7","groups":["g"],"extra":{"k":["v"]},"resourceAttributes":
    {"verb":"get","group":"holdfast.dev","resource":"suspendedworkloads","namespace":"lab","name":"nb"}})"));
}

TEST_F(HubApiTest, NobodysTokensAreRefusedAndTouchNothing) {
  Put("Running", "Running");
  for (const std::string& token : {std::string(), std::string("bad"), std::string(20000, 'a')}) {
    const HubAnswer answer = Call("POST", "/nb/suspend", token);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.headers.at("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(hub_.Answer({"POST", std::string(kBase) + "/nb/suspend", {}, "Basic good"}, {}).status, 401);
  reviews_->audience = "another";
  EXPECT_EQ(Call("POST", "/nb/suspend").status, 401) << "a token that is meant for somebody else";
  EXPECT_TRUE(reviews_->objects->calls.empty());
  EXPECT_EQ(reviews_->token_reviews, 2) << "bad and good; the others are none";
}

TEST_F(HubApiTest, RemembersForSecondsWhatTheApiServerSaid) {
  Put("Running", "Running");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call("GET", "/nb").status, 200);
  EXPECT_EQ(reviews_->token_reviews, 1);
  EXPECT_EQ(reviews_->access_reviews.size(), 1U);
  EXPECT_EQ(Call("POST", "/nb/resume").status, 200);
  EXPECT_EQ(reviews_->access_reviews.size(), 2U) << "a yes to one verb is none to another";
  reviews_->allowed = {};
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_EQ(Call("GET", "/nb").status, 403);
  for (int i = 0; i < 1100; ++i) EXPECT_EQ(Call("GET", "/nb", "made up " + std::to_string(i)).status, 401);
  EXPECT_EQ(reviews_->token_reviews, 1101);
  EXPECT_EQ(Call("GET", "/nb").status, 403);
  EXPECT_EQ(reviews_->token_reviews, 1101) << "those who make tokens up push no good one out";
}

TEST_F(HubApiTest, AnApiServerThatDoesNotAnswerIsNobodysFault) {
  Put("Running", "Running");
  reviews_->down = 500;
  const HubAnswer answer = Call("GET", "/nb");
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_TRUE(answer.headers.contains("Retry-After"));
  reviews_->down = 0;
  EXPECT_EQ(Call("GET", "/nb").status, 200) << "that is not remembered";
}

TEST_F(HubApiTest, SuspendsOnceAndResumesWhatRuns) {
  Put("Running", "Running");
  for (int i = 0; i < 2; ++i) {
    const HubAnswer answer = Call("POST", "/nb/suspend");
    EXPECT_EQ(answer.status, 202) << answer.body;
    EXPECT_EQ(GetString(Body(answer), {"state"}), "Suspended");
  }
  EXPECT_EQ(reviews_->objects->Count("PATCH"), 1U);
  Put("Suspended", "Suspended");
  EXPECT_EQ(Call("POST", "/nb/suspend").status, 200);
  Put("Running", "Running");
  EXPECT_EQ(Call("POST", "/nb/resume").status, 200);
  EXPECT_EQ(reviews_->objects->Count("PATCH"), 1U);
}

TEST_F(HubApiTest, DoesNotPutToSleepAgainWhatItsUserHasWoken) {
  Put("Suspended", "Running", 2, {{"overriddenGeneration", 2}});
  const HubAnswer answer = Call("POST", "/nb/suspend");
  EXPECT_EQ(answer.status, 409) << answer.body;
  EXPECT_NE(answer.body.find("resume it here, then suspend it"), std::string::npos) << answer.body;
  EXPECT_LT(Call("POST", "/nb/resume").status, 300);
  EXPECT_EQ(State(), "Running");
}

TEST_F(HubApiTest, AVersionChangesWithWhatIsSeenAndWithNothingElse) {
  Put("Running", "Running");
  const std::string version = GetString(Body(Call("GET", "/nb")), {"version"});
  Put("Running", "Running");
  EXPECT_EQ(GetString(Body(Call("GET", "/nb")), {"version"}), version) << "another resourceVersion";
  EXPECT_EQ(Call("GET", "/nb", "good", {{"wait", "60"}, {"since", "older"}}).status, 200) << "at once";
  Put("Running", "Running", 2, {{"conditions", {{{"type", "Suspended"}, {"status", "False"}, {"reason", "R"}, {"message", "m"}}}}});
  const Json now = Body(Call("GET", "/nb"));
  EXPECT_NE(GetString(now, {"version"}), version);
  EXPECT_EQ(GetString(now, {"reason"}), "R");
}

TEST_F(HubApiTest, WaitsUntilItIsSoOrTheTimeIsOver) {
  Put("Running", "Running");
  HubAnswer suspended, late;
  {
    std::jthread caller([&] { suspended = Call("POST", "/nb/suspend", "good", {{"wait", "30"}}); });
    ASSERT_TRUE(clock_.Settle(1));
    const HubAnswer second = Call("GET", "/nb", "good", {{"wait", "30"}});
    EXPECT_EQ(second.status, 200) << "there is one place to wait";
    EXPECT_EQ(second.headers.count("Retry-After"), 1U);
    Put("Suspended", "Suspended", 3);
    clock_.Advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(suspended.status, 200) << suspended.body;
  {
    std::jthread caller([&] { late = Call("GET", "/nb", "good", {{"wait", "30"}}); });
    ASSERT_TRUE(clock_.Settle(1));
    clock_.Advance(std::chrono::seconds(31));
  }
  EXPECT_EQ(late.status, 200);
  EXPECT_EQ(GetString(Body(late), {"phase"}), "Suspended");
}

TEST_F(HubApiTest, WhoWaitsIsSentAwayWhenTheReplicaEnds) {
  Put("Running", "Running");
  HubAnswer answer;
  std::stop_source stop;
  {
    std::jthread caller([&] { answer = Call("GET", "/nb", "good", {{"wait", "30"}}, stop.get_token()); });
    ASSERT_TRUE(clock_.Settle(1));
    stop.request_stop();
  }
  EXPECT_EQ(answer.status, 503) << answer.body;
}

}  // namespace
}  // namespace holdfast::controller
