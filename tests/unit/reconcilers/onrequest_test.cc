#include "reconcilers/onrequest/step.h"

#include <gtest/gtest.h>

#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::onrequest {
namespace {

using api::SuspendPhase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

kube::Service WebService() {
  kube::Service service;
  service.meta.ns = "default";
  service.meta.name = "web";
  service.type = "ClusterIP";
  service.cluster_ip = "10.0.0.1";
  service.family = "IPv4";
  service.selector = {{"app", "web"}};
  service.ports = {{"http", "TCP", 80}, {"dns", "UDP", 53}, {"admin", "TCP", 81}};
  return service;
}

api::SuspendedWorkload Object(SuspendPhase phase = SuspendPhase::kRunning) {
  api::SuspendedWorkload object = SleeperOfWeb(true);
  object.spec.on_request = api::OnRequest{.service = "web"};
  object.status.phase = phase;
  return object;
}

World Asked(api::SuspendedWorkload object = Object()) {
  World w;
  w.object = Share(std::move(object));
  kube::Workload web = Web();
  web.template_labels = {{"app", "web"}, {"tier", "x"}};
  w.target = Share(web);
  w.range = {20000, 100};
  w.service = Share(WebService());
  w.activators = {"10.1.0.7"};
  return w;
}

Step Decide(const World& w) { return Next(w, At(0)); }

// Carries out what is written to the status.
void Apply(World* w, const Step& step) {
  api::SuspendedWorkload object = *w->object;
  const Json patched = {{"status", step.patch["status"]}};
  const auto read = api::SuspendedWorkload::FromJson(patched);
  if (step.patch["status"].contains("onRequest")) object.status.on_request = read.status.on_request;
  object.status.conditions = read.status.conditions;
  w->object = Share(object);
}

std::string ReasonOf(const World& w) {
  const auto* condition = kube::FindCondition(w.object->status.conditions, kCondition);
  return condition == nullptr ? "" : condition->reason.str();
}

// Until nothing is to be written to the status.
Step Settle(World* w) {
  for (int i = 0; i < 5; ++i) {
    Step step = Decide(*w);
    if (step.action != Action::kPatchStatus) return step;
    Apply(w, step);
  }
  ADD_FAILURE() << "it writes on and on";
  return {};
}

World Told(SuspendPhase phase = SuspendPhase::kRunning) {
  World w = Asked(Object(phase));
  Settle(&w);
  return w;
}

// The slice as the API server has it then.
SlicePtr Written(const Step& step) { return Share(kube::EndpointSlice::FromJson(step.slice)); }

std::set<int32_t> NumbersOf(const World& w) {
  std::set<int32_t> out;
  for (const auto& port : w.object->status.on_request.ports) out.insert(port.number);
  return out;
}

TEST(OnRequest, NumbersAreRecordedForEachTcpPortBeforeAnythingLeadsThere) {
  World w = Asked(Object(SuspendPhase::kSuspended));
  const Step first = Decide(w);
  ASSERT_EQ(first.action, Action::kPatchStatus);
  EXPECT_TRUE(first.live) << "what others have is asked of the API server";
  Apply(&w, first);
  ASSERT_EQ(w.object->status.on_request.ports.size(), 2u);
  EXPECT_EQ(w.object->status.on_request.ports[0].name, "http");
  EXPECT_EQ(w.object->status.on_request.ports[1].name, "admin");
  EXPECT_EQ(NumbersOf(w).size(), 2u);
  for (const int32_t number : NumbersOf(w)) EXPECT_TRUE(w.range.Has(number));
  EXPECT_EQ(Settle(&w).action, Action::kWriteSlice);
  EXPECT_EQ(ReasonOf(w), "Ready");
}

TEST(OnRequest, NumbersStayWhoeverElseComesAndGoes) {
  World w = Told();
  const auto before = NumbersOf(w);
  w.taken = {20001, 20002, 20003};
  EXPECT_EQ(Settle(&w).action, Action::kNothing);
  EXPECT_EQ(NumbersOf(w), before);
}

TEST(OnRequest, OfTwoThatHaveTheSameNumberTheLaterGetsAnother) {
  World w = Told();
  const auto before = NumbersOf(w);
  w.taken = before;
  EXPECT_EQ(Settle(&w).action, Action::kNothing) << "the other one came later, and yields";
  w.taken_earlier = {*before.begin()};
  Settle(&w);
  EXPECT_FALSE(NumbersOf(w).contains(*before.begin()));
  EXPECT_TRUE(NumbersOf(w).contains(*before.rbegin()));
}

TEST(OnRequest, EveryNumberOfTheRangeIsGivenOutOnceAndThenItIsUsedUp) {
  std::set<int32_t> taken;
  for (int i = 0; i < 50; ++i) {
    World w = Asked();
    w.taken = taken;
    Settle(&w);
    for (const int32_t number : NumbersOf(w)) EXPECT_TRUE(taken.insert(number).second) << number;
  }
  EXPECT_EQ(taken.size(), 100u);
  World w = Asked();
  w.taken = taken;
  Settle(&w);
  EXPECT_EQ(ReasonOf(w), "PortsUsedUp");
  EXPECT_TRUE(w.object->status.on_request.ports.empty());
}

TEST(OnRequest, ThoseOutsideOfANewRangeAreReplaced) {
  World w = Told();
  w.range = {30000, 10};
  Settle(&w);
  for (const int32_t number : NumbersOf(w)) EXPECT_TRUE(w.range.Has(number));
}

struct Case {
  const char* what;
  void (*change)(World*);
  const char* reason;
};

void ChangeService(World* w, const std::function<void(kube::Service*)>& change) {
  kube::Service service = *w->service;
  change(&service);
  w->service = Share(service);
}

const Case kUnfit[] = {
    {"no activator is installed", [](World* w) { w->range = {}; }, "NotInstalled"},
    {"another object came first", [](World* w) { w->rival = "other"; }, "Conflict"},
    {"no such Service", [](World* w) { w->service = nullptr; }, "ServiceMissing"},
    {"headless", [](World* w) { ChangeService(w, [](auto* s) { s->cluster_ip = "None"; }); }, "ServiceUnsupported"},
    {"ExternalName", [](World* w) { ChangeService(w, [](auto* s) { s->type = "ExternalName"; }); }, "ServiceUnsupported"},
    {"internalTrafficPolicy Local", [](World* w) { ChangeService(w, [](auto* s) { s->local_only = true; }); }, "ServiceUnsupported"},
    {"no selector", [](World* w) { ChangeService(w, [](auto* s) { s->selector = {}; }); }, "ServiceUnsupported"},
    {"UDP alone", [](World* w) { ChangeService(w, [](auto* s) {
                                   s->ports = {{"dns", "UDP", 53}};
                                 }); }, "ServiceUnsupported"},
    {"too many ports", [](World* w) { ChangeService(w, [](auto* s) {
                                        s->ports.assign(17, {"p", "TCP", 1});
                                      }); }, "ServiceUnsupported"},
    {"other pods", [](World* w) { ChangeService(w, [](auto* s) {
                                    s->selector = {{"app", "db"}};
                                  }); }, "NotSelected"},
    {"no activator is ready", [](World* w) { w->activators.clear(); }, "NoActivator"},
};

TEST(OnRequest, WhatCannotBeIsSaidAndLeadsNowhere) {
  for (const Case& unfit : kUnfit) {
    SCOPED_TRACE(unfit.what);
    World fresh = Asked();
    unfit.change(&fresh);
    Settle(&fresh);
    EXPECT_EQ(ReasonOf(fresh), unfit.reason);
    World led = Told(SuspendPhase::kSuspended);
    led.slice = Written(Settle(&led));
    unfit.change(&led);
    EXPECT_EQ(Decide(led).action, Action::kDeleteSlice);
    led.slice = nullptr;
    EXPECT_EQ(Settle(&led).action, Action::kNothing);
    EXPECT_EQ(ReasonOf(led), unfit.reason);
  }
}

TEST(OnRequest, WhileItSleepsItsServiceLeadsToTheReadyActivators) {
  for (const SuspendPhase phase : {SuspendPhase::kSuspended, SuspendPhase::kResuming}) {
    World w = Told(phase);
    w.activators = {"10.1.0.7", "10.1.0.8"};
    const Step step = Settle(&w);
    ASSERT_EQ(step.action, Action::kWriteSlice);
    EXPECT_EQ(GetString(step.slice, {"metadata", "labels", "kubernetes.io/service-name"}), "web");
    EXPECT_EQ(GetString(step.slice, {"metadata", "labels", "endpointslice.kubernetes.io/managed-by"}), "holdfast.dev");
    EXPECT_EQ(GetString(step.slice["metadata"]["ownerReferences"][0], {"uid"}), "uid-nb");
    w.slice = Written(step);
    EXPECT_EQ(w.slice->endpoints.size(), 2u);
    EXPECT_EQ(w.slice->ports[0].port, w.object->status.on_request.ports[0].number);
    EXPECT_EQ(Settle(&w).action, Action::kNothing);
    w.activators = {"10.1.0.8"};
    EXPECT_EQ(Settle(&w).action, Action::kWriteSlice) << "one of them is gone";
  }
}

TEST(OnRequest, WhatIsOnlyBeingCheckpointedAnswersForItself) {
  World w = Told(SuspendPhase::kSuspending);
  EXPECT_EQ(Settle(&w).action, Action::kNothing);
  api::SuspendedWorkload object = *w.object;
  object.status.durable = true;
  w.object = Share(object);
  EXPECT_EQ(Settle(&w).action, Action::kNothing) << "not stopped yet";
  kube::Workload web = *w.target;
  web.meta.annotations = {{api::kAsleep, "{}"}};
  w.target = Share(web);
  EXPECT_EQ(Settle(&w).action, Action::kWriteSlice);
}

TEST(OnRequest, AfterAResumeTheSliceStaysUntilAnEndpointOfItsOwnIsReady) {
  World w = Told(SuspendPhase::kSuspended);
  w.slice = Written(Settle(&w));
  api::SuspendedWorkload object = *w.object;
  object.status.phase = SuspendPhase::kRunning;
  w.object = Share(object);
  const Step wait = Settle(&w);
  EXPECT_EQ(wait.action, Action::kNothing);
  EXPECT_TRUE(wait.live);
  EXPECT_TRUE(wait.again.has_value());
  w.own_endpoint = true;
  EXPECT_EQ(Settle(&w).action, Action::kDeleteSlice);
}

TEST(OnRequest, WhoDoesNotAskAnyMoreIsForgotten) {
  World w = Told(SuspendPhase::kSuspended);
  w.slice = Written(Settle(&w));
  api::SuspendedWorkload object = *w.object;
  object.spec.on_request.reset();
  w.object = Share(object);
  EXPECT_EQ(Decide(w).action, Action::kDeleteSlice);
  w.slice = nullptr;
  const Step step = Decide(w);
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_TRUE(step.patch["status"]["onRequest"].is_null());
  Apply(&w, step);
  EXPECT_EQ(ReasonOf(w), "");
  EXPECT_EQ(Decide(w).action, Action::kNothing);
}

TEST(OnRequest, AnotherServiceFirstLosesTheSliceOfTheOld) {
  World w = Told(SuspendPhase::kSuspended);
  w.slice = Written(Settle(&w));
  api::SuspendedWorkload object = *w.object;
  object.spec.on_request->service = "other";
  w.object = Share(object);
  EXPECT_EQ(Decide(w).action, Action::kDeleteSlice);
}

TEST(OnRequest, ARangeOfPortsIsReadStrictly) {
  const auto range = ParsePortRange("20000-20009");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 20000);
  EXPECT_EQ(range->count, 10);
  EXPECT_EQ(range->ToString(), "20000-20009");
  for (const char* wrong : {"", "20000", "20009-20000", "80-90", "20000-70000", "-20000-20009", "20000-20009x", "a-b", "99999999999-5"})
    EXPECT_FALSE(ParsePortRange(wrong)) << wrong;
}

}  // namespace
}  // namespace holdfast::reconcilers::onrequest
