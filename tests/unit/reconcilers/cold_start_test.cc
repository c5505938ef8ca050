#include "reconcilers/claim/cold_start.h"

#include <gtest/gtest.h>

#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::claim {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): builders

// Keeps events, each name once, as the API server does.
class Events final : public kube::Transport {
 public:
  std::vector<Json> events;
  int status = 0;  // of every answer; 0: as it should be
  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token) override {
    EXPECT_TRUE(request.path.starts_with("/apis/events.k8s.io/v1/namespaces/default/events")) << request.path;
    kube::HttpResponse answer{.status = status != 0 ? status : 201, .headers = {}, .body = request.body};
    const Json event = Json::parse(request.body);
    for (const Json& other : events) {
      if (other["metadata"]["name"] == event["metadata"]["name"])
        answer = {.status = 409, .headers = {}, .body = R"({"kind":"Status","reason":"AlreadyExists","code":409})"};
    }
    if (answer.status == 201) events.push_back(event);
    return answer;
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
    return Status(Code::kUnsupported, "not used");
  }
};

class ColdStartTest : public ::testing::Test {
 protected:
  ColdStartTest() {
    view_.checkpoints = {Share(InPhase(api::Phase::kFailed))};
    pod_.meta.annotations[api::kRestoreSkipped] = ColdStart{At(50), "the store is full", view_.checkpoints[0]->meta.name}.ToAnnotation();
  }
  // As a leader that has told nobody yet.
  Status Tell() {
    kube::EventRecorder recorder(client_, "test", "leader");
    return TellColdStart({view_, client_, recorder, clock_, {}}, *ColdStart::Of(pod_), pod_, {});
  }
  FakeClock clock_{At(60)};
  std::shared_ptr<Events> api_ = std::make_shared<Events>();
  kube::Client client_{api_, clock_};
  FakeView view_;
  kube::Pod pod_ = WebPod("web-b", "uid-b");
};

TEST_F(ColdStartTest, IsToldOnceOnPodAndCheckpointWhoeverTellsIt) {
  ASSERT_TRUE(Tell().ok());
  ASSERT_EQ(api_->events.size(), 2u);
  EXPECT_EQ(GetString(api_->events[0], {"regarding", "kind"}), "Pod");
  EXPECT_EQ(GetString(api_->events[0], {"regarding", "uid"}), "uid-b");
  EXPECT_EQ(GetString(api_->events[1], {"regarding", "kind"}), "Checkpoint");
  for (const Json& event : api_->events) {
    EXPECT_EQ(GetString(event, {"reason"}), "ColdStart");
    EXPECT_EQ(GetString(event, {"note"}), "the store is full");
  }
  EXPECT_TRUE(Tell().ok());
  EXPECT_EQ(api_->events.size(), 2u);
}

TEST_F(ColdStartTest, IsNoNewsWhenTheServerMayHaveForgottenTheEvent) {
  clock_.Advance(std::chrono::seconds(3590));
  EXPECT_TRUE(Tell().ok());
  EXPECT_TRUE(api_->events.empty());
}

TEST_F(ColdStartTest, IsTriedAgainWhenTheEventMayPassLaterAndElseHoldsNothingUp) {
  api_->status = 503;
  EXPECT_EQ(Tell().code(), Code::kUnavailable);
  api_->status = 403;
  EXPECT_TRUE(Tell().ok());
}

TEST_F(ColdStartTest, IsReadFromNothingThatWeDidNotWrite) {
  for (const char* text : {"", "true", "[]", R"({"why":"x"})", R"({"at":"yesterday","why":"x"})", R"({"at":5})"}) {
    pod_.meta.annotations[api::kRestoreSkipped] = text;
    EXPECT_FALSE(ColdStart::Of(pod_)) << text;
  }
  EXPECT_FALSE(ColdStart::Of(WebPod()));
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
