// Apply, finalizers and preconditions, as a real API server sees them.
#include "kube/apply.h"

#include "kube/finalizer.h"
#include "kube/json_patch.h"
#include "tests/integration/kube/fixture.h"

namespace holdfast::kube {
namespace {

Json MapIntent(const std::string& name, const Json& data) { return {{"metadata", {{"name", name}}}, {"data", data}}; }

std::string Version(const Json& object) { return GetString(object, {"metadata", "resourceVersion"}); }

TEST_F(KubeTest, ApplyingTheSameAgainChangesNothing) {
  Applier applier(client_, "a");
  Result<Json> first = applier.Apply(kConfigMaps, ns_, MapIntent("m", {{"k", "v"}}));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  Result<Json> again = applier.Apply(kConfigMaps, ns_, MapIntent("m", {{"k", "v"}}));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Version(*first), Version(*again));
  Result<Json> without = applier.Apply(kConfigMaps, ns_, MapIntent("m", {{"other", "v"}}));
  ASSERT_TRUE(without.ok());
  EXPECT_EQ((*without)["data"], Json({{"other", "v"}})) << "what is left out is removed";
}

TEST_F(KubeTest, TwoManagersKeepToTheirFieldsUnlessForced) {
  Applier a(client_, "a"), b(client_, "b");
  ASSERT_TRUE(a.Apply(kConfigMaps, ns_, MapIntent("m", {{"a", "1"}, {"shared", "of a"}})).ok());
  Result<Json> beside = b.Apply(kConfigMaps, ns_, MapIntent("m", {{"b", "2"}}));
  ASSERT_TRUE(beside.ok());
  EXPECT_EQ((*beside)["data"], Json({{"a", "1"}, {"b", "2"}, {"shared", "of a"}}));
  Status refused = b.Apply(kConfigMaps, ns_, MapIntent("m", {{"shared", "of b"}}), {}, /*force=*/false).status();
  EXPECT_EQ(refused.code(), Code::kConflict);
  EXPECT_NE(refused.message().find("\"a\""), std::string::npos) << refused.message();
  Result<Json> forced = b.Apply(kConfigMaps, ns_, MapIntent("m", {{"shared", "of b"}}));
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ((*forced)["data"], Json({{"a", "1"}, {"shared", "of b"}}));
}

TEST_F(KubeTest, AStatusIsAppliedApartFromTheRest) {
  ASSERT_TRUE(client_.Create(Pod::kResource, ns_, PodObject("p")).ok());
  Applier applier(client_, "status-writer");
  Result<Json> applied = applier.ApplyStatus(Pod::kResource, ns_, {{"metadata", {{"name", "p"}}}, {"status", {{"message", "hello"}}}});
  ASSERT_TRUE(applied.ok()) << applied.status().ToString();
  EXPECT_EQ(GetString(*applied, {"status", "message"}), "hello");
  EXPECT_EQ(GetString(*applied, {"spec", "nodeName"}), "node-a");
}

TEST_F(KubeTest, AnIntentForAnotherObjectOfTheNameIsAConflict) {
  Json intent = MapIntent("m", {{"k", "v"}});
  ASSERT_TRUE(Applier(client_, "a").Apply(kConfigMaps, ns_, intent).ok());
  intent["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000";
  Status refused = Applier(client_, "a").Apply(kConfigMaps, ns_, intent).status();
  EXPECT_EQ(refused.code(), Code::kConflict) << refused.ToString();
}

TEST_F(KubeTest, FinalizersDoNotRemoveEachOther) {
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("m", "v"));
  ASSERT_TRUE(made.ok());
  const ObjectMeta bare = ObjectMeta::FromJson(*made);
  Result<Json> with_f = AddFinalizer(client_, kConfigMaps, bare, "example.org/f");
  ASSERT_TRUE(with_f.ok()) << with_f.status().ToString();
  EXPECT_EQ(AddFinalizer(client_, kConfigMaps, bare, "example.org/g").status().code(), Code::kConflict) << "it saw none, and there is one";
  Result<Json> with_g = AddFinalizer(client_, kConfigMaps, ObjectMeta::FromJson(*with_f), "example.org/g");
  ASSERT_TRUE(with_g.ok()) << with_g.status().ToString();
  const ObjectMeta both = ObjectMeta::FromJson(*with_g);
  EXPECT_EQ(both.finalizers.size(), 2u);

  ASSERT_TRUE(client_.Delete(kConfigMaps, ns_, "m", {.preconditions = {.uid = both.uid}}).ok());
  EXPECT_EQ(AddFinalizer(client_, kConfigMaps, both, "example.org/late").status().code(), Code::kConflict) << "a deletion has begun";
  // Both saw f at 0 and g at 1.
  ASSERT_TRUE(RemoveFinalizer(client_, kConfigMaps, both, "example.org/f").ok());
  EXPECT_EQ(RemoveFinalizer(client_, kConfigMaps, both, "example.org/g").status().code(), Code::kConflict);
  Result<Json> left = client_.Get(kConfigMaps, ns_, "m");
  ASSERT_TRUE(left.ok()) << "g holds it";
  const ObjectMeta now = ObjectMeta::FromJson(*left);
  EXPECT_EQ(NextFinalizerStep(now, "example.org/f"), FinalizerStep::kNothing);
  EXPECT_EQ(NextFinalizerStep(now, "example.org/g"), FinalizerStep::kCleanup);
  ASSERT_TRUE(RemoveFinalizer(client_, kConfigMaps, now, "example.org/g").ok());
  EXPECT_EQ(client_.Get(kConfigMaps, ns_, "m").status().code(), Code::kNotFound);
  EXPECT_TRUE(RemoveFinalizer(client_, kConfigMaps, now, "example.org/g").ok()) << "it is gone, which is what was wanted";
}

TEST_F(KubeTest, AFinalizerIsCarriedFromBirthToEnd) {
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("m", "v"));
  ASSERT_TRUE(made.ok());
  std::string log;
  auto reconcile = [&]() -> Status {
    Result<Json> object = client_.Get(kConfigMaps, ns_, "m");
    if (!object.ok()) return object.status();
    return Finalized(
               client_, kConfigMaps, ObjectMeta::FromJson(*object), "example.org/f",
               [&]() -> Result<ReconcileResult> {
                 log += "apply ";
                 return ReconcileResult{};
               },
               [&]() -> Result<ReconcileResult> {
                 log += "cleanup ";
                 return ReconcileResult{};
               })
        .status();
  };
  ASSERT_TRUE(reconcile().ok());
  ASSERT_TRUE(reconcile().ok());
  ASSERT_TRUE(client_.Delete(kConfigMaps, ns_, "m").ok());
  ASSERT_TRUE(reconcile().ok());
  EXPECT_EQ(reconcile().code(), Code::kNotFound);
  EXPECT_EQ(log, "apply cleanup ");
}

TEST_F(KubeTest, ADeletionOfWhatIsNotAsItWasSeenIsAConflict) {
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("m", "v"));
  ASSERT_TRUE(made.ok());
  Result<Json> changed = client_.Patch(kConfigMaps, ns_, "m", PatchType::kMerge, {{"data", {{"key", "w"}}}});
  ASSERT_TRUE(changed.ok());
  DeleteOptions stale;
  stale.preconditions.resource_version = Version(*made);
  EXPECT_EQ(client_.Delete(kConfigMaps, ns_, "m", stale).code(), Code::kConflict);
  DeleteOptions other;
  other.preconditions.uid = "00000000-0000-0000-0000-000000000000";
  EXPECT_EQ(client_.Delete(kConfigMaps, ns_, "m", other).code(), Code::kConflict);
  stale.preconditions.resource_version = Version(*changed);
  EXPECT_TRUE(client_.Delete(kConfigMaps, ns_, "m", stale).ok());
}

TEST_F(KubeTest, AJsonPatchWhoseTestDoesNotHoldChangesNothing) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("m", "v")).ok());
  JsonPatch patch;
  patch.Replace("/data/key", "w").Test("/data/key", "something else");
  EXPECT_EQ(client_.Patch(kConfigMaps, ns_, "m", PatchType::kJson, patch.json()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(GetString(*client_.Get(kConfigMaps, ns_, "m"), {"data", "key"}), "v");
}

}  // namespace
}  // namespace holdfast::kube
