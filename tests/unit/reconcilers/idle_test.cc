#include "reconcilers/idle/step.h"

#include <gtest/gtest.h>

#include "reconcilers/lineage.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::idle {
namespace {

using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

World Annotated(const std::string& text) {
  kube::Workload web = Web();
  if (!text.empty()) web.meta.annotations[api::kSuspendWhenIdle] = text;
  World w;
  w.kind = "Deployment";
  w.workload = Share(web);
  return w;
}

// As it was created, and read again.
World Made(const std::string& text, const Json& object) {
  World w = Annotated(text);
  w.named = Share(api::SuspendedWorkload::FromJson(object));
  w.of_it = {w.named};
  return w;
}

TEST(SuspendWhenIdle, AnAnnotationStandsForAnObjectOfItsOwn) {
  const Step step = Next(Annotated("30m"));
  ASSERT_EQ(step.action, Action::kCreate);
  EXPECT_EQ(GetString(step.object, {"metadata", "name"}), "web");
  EXPECT_EQ(GetString(step.object, {"spec", "idle", "after"}), "30m");
  EXPECT_EQ(GetString(step.object, {"spec", "targetRef", "kind"}), "Deployment");
  EXPECT_EQ(step.object["metadata"]["ownerReferences"][0]["uid"], "uid-web") << "it goes with its workload";
  EXPECT_EQ(Next(Made("30m", step.object)).action, Action::kNothing);
  EXPECT_EQ(Next(Made("1800s", step.object)).action, Action::kNothing);
}

TEST(SuspendWhenIdle, AnotherTimeIsWrittenIntoIt) {
  const Json object = Next(Annotated("30m")).object;
  const Step step = Next(Made("2h", object));
  ASSERT_EQ(step.action, Action::kPatch);
  EXPECT_EQ(GetString(step.object, {"spec", "idle", "after"}), "2h");
}

TEST(SuspendWhenIdle, WithoutTheAnnotationItGoes) {
  const Json object = Next(Annotated("30m")).object;
  EXPECT_EQ(Next(Made("", object)).action, Action::kDelete);
  EXPECT_EQ(Next(Annotated("")).action, Action::kNothing);
}

TEST(SuspendWhenIdle, WhatAUserMadeIsTheUsers) {
  Json theirs = Next(Annotated("30m")).object;
  theirs["metadata"].erase("ownerReferences");
  theirs["spec"]["idle"]["after"] = "1h";
  for (const char* text : {"30m", ""}) EXPECT_EQ(Next(Made(text, theirs)).action, Action::kNothing) << text;
  theirs["metadata"]["name"] = "nb";
  World w = Annotated("30m");
  w.of_it = {Share(api::SuspendedWorkload::FromJson(theirs))};
  EXPECT_EQ(Next(w).action, Action::kNothing);
}

TEST(SuspendWhenIdle, ANameThatIsTakenIsSaid) {
  World w = Annotated("30m");
  Json other = Next(w).object;
  other["spec"]["targetRef"]["kind"] = "StatefulSet";
  other["metadata"]["ownerReferences"][0]["uid"] = "another";
  w.named = Share(api::SuspendedWorkload::FromJson(other));
  const Step step = Next(w);
  EXPECT_EQ(step.action, Action::kNothing);
  ASSERT_TRUE(step.notice);
  EXPECT_NE(step.notice->note.find("StatefulSet web"), std::string::npos) << step.notice->note;
}

TEST(SuspendWhenIdle, WhatIsNoTimeChangesNothingAndIsSaid) {
  const Json object = Next(Annotated("30m")).object;
  for (const char* text : {"soon", "30", "1s", "2000h", "true"}) {
    const Step step = Next(Made(text, object));
    EXPECT_EQ(step.action, Action::kNothing) << text;
    ASSERT_TRUE(step.notice) << text;
    EXPECT_NE(step.notice->note.find(text), std::string::npos);
  }
}

TEST(SuspendWhenIdle, ItsFirstPodIsProtectedThoughTheObjectIsNotThereYet) {
  for (const auto& [text, on] : std::map<std::string, bool>{{"30m", true}, {"soon", false}}) {
    FakeView view;
    view.AddWeb({{api::kSuspendWhenIdle, text}});
    const kube::Pod pod = WebPod();
    EXPECT_EQ(ProtectionOf(view, pod, "default", Trace(view, pod, "default")).on, on) << text;
  }
}

}  // namespace
}  // namespace holdfast::reconcilers::idle
