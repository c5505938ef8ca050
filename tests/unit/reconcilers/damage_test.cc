// What the store cannot read any more is no checkpoint to restore from, to keep as the last good one, or to count as one.
#include <gtest/gtest.h>

#include "api/stores.h"
#include "reconcilers/checkpoint/damage.h"
#include "reconcilers/claim/step.h"
#include "reconcilers/restorepolicy/survey.h"
#include "tests/unit/kube/fake_transport.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

api::Checkpoint Ready(const std::string& name, const std::string& manifest) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.meta.name = name;
  c.meta.uid = "uid-of-" + name;
  c.status.manifest_id = manifest;
  return c;
}

api::Checkpoint Damaged(api::Checkpoint c) {
  kube::SetCondition(c.status.conditions, {.type = api::kDamaged, .status = "True", .reason = "Unreadable", .message = "a bit of it"},
                     At(30));
  return c;
}

std::map<std::string, std::string> Marked(const std::vector<CheckpointPtr>& all, const Damages& damaged) {
  std::map<std::string, std::string> marks;
  for (const Mark& mark : MarksOf(all, {{api::kDefaultStore, damaged}})) marks[mark.checkpoint->meta.name] = mark.why;
  return marks;
}
using Marks = std::map<std::string, std::string>;

TEST(Damage, IsMarkedWhereTheStoreFindsItAndTakenOffWhereItIsMended) {
  const std::vector<CheckpointPtr> all = {Share(Ready("a", "m-a")), Share(Ready("b", "")), Share(Damaged(Ready("c", "m-c"))),
                                          Share(Damaged(Ready("d", "m-d"))), Share(Ready("e", "m-e"))};
  EXPECT_EQ(Marked(all, {{"m-a", "x"}, {"uid-of-b", "y"}, {"m-c", "z"}, {"another's", "w"}}), (Marks{{"a", "x"}, {"b", "y"}, {"d", ""}}));
  EXPECT_EQ(Marked(all, {{"m-a", ""}, {"m-c", ""}, {"m-d", ""}}), (Marks{{"a", "the store does not say why"}}));
}

TEST(Damage, IsNoMatterOfWhatIsNotReadyOrGoes) {
  api::Checkpoint making = InPhase(Phase::kStoring), leaving = Ready("l", "m-l");
  leaving.meta.deletion_timestamp = FormatTime(At(1));
  EXPECT_EQ(Marked({Share(making), Share(leaving)}, {{making.meta.uid, "x"}, {"m-l", "x"}}), Marks());
}

TEST(Damage, OfAStoreThatDidNotAnswerNothingIsSaid) {
  api::Checkpoint here = Ready("here", "m"), there = Damaged(Ready("there", "m"));
  there.status.manifest_store = "holdfast-store-1";
  const std::vector<CheckpointPtr> all = {Share(here), Share(there)};
  const std::vector<Mark> marks =
      MarksOf(all, {{"default", Damages{{"m", "x"}}}, {"holdfast-store-1", Status(Code::kUnavailable, "no answer")}});
  ASSERT_EQ(marks.size(), 1u) << "what was said before stands";
  EXPECT_EQ(marks[0].checkpoint->meta.name, "here");
  EXPECT_EQ(MarksOf({Share(there)}, {{"default", Damages{{"m", "x"}}}, {"holdfast-store-1", Damages{{"m", "y"}}}}).size(), 0u)
      << "each store speaks of what it has";
}

TEST(Damage, AStoreThatIsNotConfiguredIsToldAndNeitherDamagesNorMends) {
  api::Checkpoint c = Damaged(Ready("c", "m"));
  c.status.manifest_store = "holdfast-store-2";
  std::vector<Mark> marks = MarksOf({Share(c)}, {{"default", Damages()}});
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_STREQ(marks[0].condition, api::kStoreMissing);
  EXPECT_NE(marks[0].why.find("holdfast-store-2"), std::string::npos) << marks[0].why;
  kube::SetCondition(c.status.conditions, {.type = api::kStoreMissing, .status = "True", .reason = "NotConfigured", .message = "gone"},
                     At(30));
  EXPECT_TRUE(MarksOf({Share(c)}, {{"default", Damages()}}).empty()) << "once";
  marks = MarksOf({Share(c)}, {{"default", Damages()}, {"holdfast-store-2", Status(Code::kUnavailable, "it starts")}});
  ASSERT_EQ(marks.size(), 1u) << "it is known again, though it does not answer yet";
  EXPECT_STREQ(marks[0].condition, api::kStoreMissing);
  EXPECT_EQ(marks[0].why, "");
  for (const char* old : {"", "default", "store"}) {
    c.status.manifest_store = old;
    kube::RemoveCondition(c.status.conditions, api::kStoreMissing);
    EXPECT_TRUE(MarksOf({Share(c)}, {{"default", Damages{{"m", "x"}}}}).empty()) << old << ": of before there were several";
  }
}

// A teller of what one store says about the Checkpoint "c", before an API server that takes every event, and a write of the status only
// when it is of the newest version.
class Telling : public ::testing::Test, public Contents {
 protected:
  Telling() { See(Ready("c", "m-c")); }

  void See(api::Checkpoint c) {
    c.meta.resource_version = std::to_string(++version_);
    view_.checkpoints = {Share(std::move(c))};
  }
  Result<kube::HttpResponse> Answer(const kube::HttpRequest& request) {
    const Json body = *ParseJson(request.body);
    if (request.method == "POST") {
      events_.push_back(GetString(body, {"metadata", "name"}));
      return kube::JsonAnswer(201, body);
    }
    EXPECT_EQ(request.method, "PATCH");
    if (std::exchange(another_writes_, false)) ++version_;
    if (GetString(body, {"metadata", "resourceVersion"}) != std::to_string(version_)) return kube::Failure(409, "Conflict", "changed");
    api::Checkpoint c = *view_.checkpoints[0];
    c.status.conditions.clear();
    for (const Json& condition : GetArray(body, {"status", "conditions"}))
      c.status.conditions.push_back(kube::Condition::FromJson(condition));
    See(c);
    return kube::JsonAnswer(200, body);
  }
  void Look() { ASSERT_TRUE(teller_.Reconcile(DamageTeller::kKey, {}).ok()); }
  bool Marked() { return DamageOf(*view_.checkpoints[0]) != nullptr; }

  Result<Content> Read(const std::string&, std::stop_token) override { return Status(Code::kNotFound, "not asked for"); }
  Status Delete(const std::string&, const std::string&, int64_t, std::stop_token) override { return Status::Ok(); }
  std::map<std::string, Result<Damages>> Damaged(std::stop_token) override { return {{api::kDefaultStore, damaged_}}; }

  Damages damaged_{{"m-c", "a bit of it"}};
  bool another_writes_ = false;      // just before our next write of the status
  std::vector<std::string> events_;  // names of those that were sent
  int version_ = 0;
  FakeView view_;
  FakeClock clock_;
  kube::Client client_{std::make_shared<kube::FakeTransport>([this](const kube::HttpRequest& request) { return Answer(request); }), clock_};
  kube::EventRecorder recorder_{client_, "example.org/controller", "a"};
  DamageTeller teller_{Context{.view = view_, .client = client_, .events = recorder_, .clock = clock_, .observe = nullptr}, *this};
};

TEST_F(Telling, HasOneNameForDamageThatAnothersWriteMakesItTellAgain) {
  another_writes_ = true;
  Look();
  EXPECT_FALSE(Marked()) << "that write was refused";
  See(*view_.checkpoints[0]);
  Look();
  EXPECT_TRUE(Marked());
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[0], events_[1]) << "the API server keeps one event of a name";
}

TEST_F(Telling, HasANewNameForEachTimeThatItIsDamagedOrMended) {
  Look();
  ASSERT_TRUE(Marked());
  damaged_.clear();
  Look();
  ASSERT_FALSE(Marked());
  damaged_ = {{"m-c", "another bit of it"}};
  Look();
  ASSERT_TRUE(Marked());
  Look();
  EXPECT_EQ(std::set<std::string>(events_.begin(), events_.end()).size(), 3u);
  EXPECT_EQ(events_.size(), 3u) << "nothing new: nothing told";
}

claim::World Waiting(const api::Checkpoint& c) {
  claim::World w;
  kube::Pod pod = WebPod("web-b", "uid-b");
  pod.phase = "Pending";
  pod.node_name = "";
  pod.scheduling_gates = {api::kClaimGate};
  pod.meta.creation_timestamp = FormatTime(At(5));
  w.pod = Share(pod);
  w.lineage.owner = WebOwner();
  w.protection.on = true;
  w.protection.policy = Share(api::RestorePolicy());
  w.candidates = {{Share(c), nullptr, nullptr, nullptr}};
  return w;
}

TEST(Damage, NoPodIsGivenADamagedOne) {
  api::Checkpoint c = InPhase(Phase::kReady);
  ASSERT_EQ(claim::Next(Waiting(c), At(20)).action, claim::Action::kClaim);
  const claim::Step step = claim::Next(Waiting(Damaged(c)), At(20));
  EXPECT_EQ(step.action, claim::Action::kCold);
  EXPECT_NE(step.why.find("a bit of it"), std::string::npos) << step.why;
}

TEST(Damage, APodThatMustNotStartColdTriesItAllTheSame) {
  for (api::OnFailure on_failure : {api::OnFailure::kRetry, api::OnFailure::kFail}) {
    claim::World w = Waiting(Damaged(InPhase(Phase::kReady)));
    api::RestorePolicy policy;
    policy.spec.restore.options.on_failure = on_failure;
    w.protection.policy = Share(policy);
    EXPECT_EQ(claim::Next(w, At(20)).action, claim::Action::kClaim);
  }
}

TEST(Damage, WhoAsksForADamagedOneIsHeldAndHearsWhy) {
  api::Checkpoint c = Damaged(InPhase(Phase::kReady));
  claim::World w = Waiting(c);
  kube::Pod pod = *w.pod;
  pod.meta.annotations[api::kFromCheckpoint] = c.meta.name;
  w.pod = Share(pod);
  const claim::Step step = claim::Next(w, At(20));
  EXPECT_EQ(step.action, claim::Action::kWait);
  EXPECT_NE(step.why.find("damaged"), std::string::npos) << step.why;
}

TEST(Damage, TheLastGoodOneIsTheLastThatCanBeRead) {
  FakeView view;
  view.AddWeb({{api::kProtect, "true"}});
  auto interval = [](const std::string& name, int completed) {
    api::Checkpoint c = Ready(name, "m-" + name);
    c.spec.final = false;
    c.spec.trigger = api::Trigger::kInterval;
    c.status.completed_at = FormatTime(At(completed));
    return c;
  };
  view.checkpoints = {Share(interval("old", -400))};
  // Four later ones: with keepLast 3 the old one would be one too many.
  for (int i = 0; i < 4; ++i) view.checkpoints.push_back(Share(Damaged(interval("bad" + std::to_string(i), -300 + i))));
  const restorepolicy::Plan plan = restorepolicy::MakePlan(restorepolicy::Survey(view, {"default"}, 0, At(60)), At(60));
  std::map<std::string, std::string> kept;
  for (const restorepolicy::Stay& stay : plan.stays) kept[stay.subject->name] = restorepolicy::KeepName(stay.keep);
  EXPECT_EQ(kept["old"], "LastGood");
  EXPECT_EQ(kept["bad3"], "KeepLast");
  EXPECT_FALSE(kept.contains("bad0")) << "of the damaged ones too only the newest three stay";
}

}  // namespace
}  // namespace holdfast::reconcilers::checkpoint
