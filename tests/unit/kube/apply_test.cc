// What goes over the wire for server-side apply, JSON patches and finalizers; what the API server makes of it is tested against a real one.
#include "kube/apply.h"

#include <gtest/gtest.h>

#include "kube/finalizer.h"
#include "kube/json_patch.h"
#include "kube/objects.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

class ApplyTest : public ::testing::Test {
 protected:
  HttpRequest Last() { return transport_->sent().back(); }
  FakeClock clock_;
  std::shared_ptr<FakeTransport> transport_ =
      std::make_shared<FakeTransport>([](const HttpRequest&) { return JsonAnswer(200, Json::object()); });
  Client client_{transport_, clock_};
};

TEST_F(ApplyTest, ForcesAsItsManagerAndSendsOnlyWhatIsOurs) {
  Applier applier(client_, "example.org/pods");
  Json intent = {{"metadata", {{"name", "a"}, {"managedFields", Json::array()}, {"creationTimestamp", "x"}, {"labels", {{"k", "v"}}}}}};
  ASSERT_TRUE(applier.Apply(Pod::kResource, "ns", intent).ok());
  EXPECT_EQ(Last().method, "PATCH");
  EXPECT_EQ(Last().headers.at("content-type"), "application/apply-patch+yaml");
  EXPECT_NE(Last().path.find("fieldManager=example.org%2Fpods"), std::string::npos) << Last().path;
  EXPECT_NE(Last().path.find("force=true"), std::string::npos);
  EXPECT_EQ(*ParseJson(Last().body),
            Json({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "a"}, {"labels", {{"k", "v"}}}}}}));
  ASSERT_TRUE(applier.Apply(Pod::kResource, "ns", intent, {}, /*force=*/false).ok());
  EXPECT_EQ(Last().path.find("force"), std::string::npos);
}

TEST_F(ApplyTest, AppliesTheStatusToItsSubresource) {
  Applier applier(client_, "m");
  ASSERT_TRUE(applier.ApplyStatus(Pod::kResource, "ns", {{"metadata", {{"name", "a"}}}, {"status", {{"phase", "Running"}}}}).ok());
  EXPECT_TRUE(Last().path.starts_with("/api/v1/namespaces/ns/pods/a/status?")) << Last().path;
}

TEST_F(ApplyTest, RefusesWhatTheApiServerWould) {
  EXPECT_EQ(ValidateFieldManager("").code(), Code::kInvalidArgument);
  EXPECT_EQ(ValidateFieldManager(std::string(129, 'a')).code(), Code::kInvalidArgument);
  EXPECT_EQ(ValidateFieldManager("tab\t").code(), Code::kInvalidArgument);
  EXPECT_TRUE(ValidateFieldManager(std::string(128, 'a')).ok());
  EXPECT_EQ(Applier(client_, "").Apply(Pod::kResource, "ns", {{"metadata", {{"name", "a"}}}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Applier(client_, "m").Apply(Pod::kResource, "ns", Json::object()).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(transport_->sent().empty());
}

TEST(JsonPatch, SaysItsOperationsInOrder) {
  JsonPatch patch;
  EXPECT_TRUE(patch.empty());
  patch.Test("/a", 1).Add("/b", nullptr).Replace("/c", "x").Remove("/d");
  EXPECT_EQ(patch.json(), Json::parse(R"([{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":null},
                                          {"op":"replace","path":"/c","value":"x"},{"op":"remove","path":"/d"}])"));
  EXPECT_EQ(EscapePointer("example.org/a~b"), "example.org~1a~0b");
}

ObjectMeta WithFinalizers(std::vector<std::string> finalizers, bool terminating = false) {
  ObjectMeta meta;
  meta.ns = "ns";
  meta.name = "a";
  meta.uid = "u1";
  meta.finalizers = std::move(finalizers);
  if (terminating) meta.deletion_timestamp = "2026-01-01T00:00:00Z";
  return meta;
}

TEST(Finalizers, SayWhatComesNext) {
  EXPECT_EQ(NextFinalizerStep(WithFinalizers({}), "f"), FinalizerStep::kAdd);
  EXPECT_EQ(NextFinalizerStep(WithFinalizers({"g", "f"}), "f"), FinalizerStep::kApply);
  EXPECT_EQ(NextFinalizerStep(WithFinalizers({"f"}, true), "f"), FinalizerStep::kCleanup);
  EXPECT_EQ(NextFinalizerStep(WithFinalizers({"g"}, true), "f"), FinalizerStep::kNothing) << "the API server takes no new one now";
}

// Both patches, on the object as it is when they arrive.
bool Applies(const Json& patch, Json* object) {
  try {
    *object = object->patch(patch);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

TEST(Finalizers, CannotRemoveEachOther) {
  Json object = {{"metadata", {{"uid", "u1"}, {"finalizers", {"f", "g"}}}}};
  const ObjectMeta seen = WithFinalizers({"f", "g"}, true);
  const Json remove_f = *RemoveFinalizerPatch(seen, "f"), remove_g = *RemoveFinalizerPatch(seen, "g");
  ASSERT_TRUE(Applies(remove_f, &object));
  EXPECT_FALSE(Applies(remove_g, &object)) << "index 1 is gone";
  EXPECT_EQ(object["metadata"]["finalizers"], Json::array({"g"}));
  EXPECT_FALSE(Applies(remove_f, &object)) << "index 0 is another's now";
  ASSERT_TRUE(Applies(*RemoveFinalizerPatch(WithFinalizers({"g"}, true), "g"), &object));
  EXPECT_EQ(object["metadata"]["finalizers"], Json::array());
}

TEST(Finalizers, AreAddedOnceAndNotOverAnother) {
  const ObjectMeta seen = WithFinalizers({"g"});
  Json object = {{"metadata", {{"uid", "u1"}, {"finalizers", {"g"}}}}};
  const Json add_f = *AddFinalizerPatch(seen, "f"), add_h = *AddFinalizerPatch(seen, "h");
  ASSERT_TRUE(Applies(add_f, &object));
  EXPECT_FALSE(Applies(add_h, &object)) << "the list changed";
  EXPECT_FALSE(Applies(add_f, &object)) << "it would be there twice";
  EXPECT_EQ(AddFinalizerPatch(WithFinalizers({"g", "f"}), "f"), std::nullopt);
  EXPECT_EQ(RemoveFinalizerPatch(WithFinalizers({"g"}), "f"), std::nullopt);
  EXPECT_EQ((*AddFinalizerPatch(WithFinalizers({}), "f")).back(),
            Json({{"op", "add"}, {"path", "/metadata/finalizers"}, {"value", {"f"}}}));
}

TEST(Finalizers, DoNotTouchAnotherObjectOfTheName) {
  Json other = {{"metadata", {{"uid", "u2"}, {"finalizers", {"f"}}}}};
  EXPECT_FALSE(Applies(*RemoveFinalizerPatch(WithFinalizers({"f"}, true), "f"), &other));
}

class FinalizedTest : public ApplyTest {
 protected:
  Result<ReconcileResult> Reconcile(const ObjectMeta& meta) {
    return Finalized(
        client_, Pod::kResource, meta, "f",
        [&]() -> Result<ReconcileResult> {
          log_ += "apply ";
          return ReconcileResult{};
        },
        [&]() -> Result<ReconcileResult> {
          log_ += "cleanup ";
          return cleanup_;
        });
  }
  std::string log_;
  Result<ReconcileResult> cleanup_ = ReconcileResult{};
};

TEST_F(FinalizedTest, AppliesOnlyUnderTheFinalizer) {
  ASSERT_TRUE(Reconcile(WithFinalizers({})).ok());
  EXPECT_EQ(log_, "") << "it has to be in place first";
  EXPECT_EQ(Last().headers.at("content-type"), "application/json-patch+json");
  ASSERT_TRUE(Reconcile(WithFinalizers({"f"})).ok());
  EXPECT_EQ(log_, "apply ");
  EXPECT_EQ(transport_->sent().size(), 1u);
}

TEST_F(FinalizedTest, RemovesItOnlyAfterACleanupThatSucceeded) {
  cleanup_ = Status(Code::kUnavailable, "the store is away");
  EXPECT_FALSE(Reconcile(WithFinalizers({"f"}, true)).ok());
  EXPECT_TRUE(transport_->sent().empty());
  cleanup_ = ReconcileResult{.requeue_after = std::chrono::seconds(1)};
  EXPECT_TRUE(Reconcile(WithFinalizers({"f"}, true)).ok());
  EXPECT_TRUE(transport_->sent().empty()) << "not done yet";
  cleanup_ = ReconcileResult{};
  EXPECT_TRUE(Reconcile(WithFinalizers({"f"}, true)).ok());
  EXPECT_EQ(transport_->sent().size(), 1u);
  EXPECT_EQ(log_, "cleanup cleanup cleanup ");
  log_ = "";
  EXPECT_TRUE(Reconcile(WithFinalizers({"g"}, true)).ok());
  EXPECT_EQ(log_, "");
}

TEST_F(FinalizedTest, ATestThatDoesNotHoldIsAConflict) {
  transport_->SetAnswer([](const HttpRequest&) { return Failure(422, "Invalid", "testing path /metadata/finalizers/0 failed"); });
  EXPECT_EQ(Reconcile(WithFinalizers({"f"}, true)).status().code(), Code::kConflict);
  transport_->SetAnswer([](const HttpRequest&) { return Failure(404, "NotFound"); });
  EXPECT_TRUE(Reconcile(WithFinalizers({"f"}, true)).ok()) << "it is gone, which is what was wanted";
  EXPECT_EQ(Reconcile(WithFinalizers({})).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace holdfast::kube
