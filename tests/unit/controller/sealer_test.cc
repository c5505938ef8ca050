#include "controller/sealer.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/fake_api.h"

namespace holdfast::controller {
namespace {

constexpr char kPath[] = "/api/v1/namespaces/holdfast-system/secrets/holdfast-seal";

class SealerTest : public ::testing::Test {
 protected:
  std::shared_ptr<testing::FakeApi> api_ = std::make_shared<testing::FakeApi>();
  kube::Client client_{api_};
  Sealer sealer_{client_, "holdfast-system"};
};

TEST_F(SealerTest, OpensWhatItSealedAndSoDoesTheNextController) {
  const auto sealed = sealer_.Seal("a pod", "ns/lab", {});
  ASSERT_TRUE(sealed.ok()) << sealed.status().ToString();
  EXPECT_EQ(sealed->find("a pod"), std::string::npos);
  EXPECT_EQ(sealer_.Open(*sealed, "ns/lab", {}).value_or(""), "a pod");
  Sealer next(client_, "holdfast-system");
  EXPECT_EQ(next.Open(*sealed, "ns/lab", {}).value_or(""), "a pod");
  EXPECT_EQ(api_->Count("POST"), 1u) << "one key";
  EXPECT_NE(sealer_.Seal("a pod", "ns/lab", {}).value_or(""), *sealed) << "never the same twice";
}

TEST_F(SealerTest, RefusesWhatWasChangedIsOfAnotherOrOfAnotherKey) {
  const std::string sealed = sealer_.Seal("a pod", "ns/lab", {}).value_or("");
  ASSERT_FALSE(sealed.empty());
  EXPECT_EQ(sealer_.Open(sealed, "ns/other", {}).status().code(), Code::kDataLoss);
  for (size_t at = 0; at + 4 < sealed.size(); at += 3) {
    std::string changed = sealed;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_EQ(sealer_.Open(changed, "ns/lab", {}).status().code(), Code::kDataLoss) << at;
  }
  for (const std::string& hostile : {std::string(), std::string("%"), std::string("QUJD"), sealed.substr(0, 40)}) {
    EXPECT_EQ(sealer_.Open(hostile, "ns/lab", {}).status().code(), Code::kDataLoss) << hostile;
  }
  api_->objects.erase(kPath);
  Sealer other(client_, "holdfast-system");
  EXPECT_EQ(other.Open(sealed, "ns/lab", {}).status().code(), Code::kDataLoss);
}

TEST_F(SealerTest, TakesTheKeyOfWhoWasFaster) {
  bool once = true;
  api_->before = [&](const kube::HttpRequest& request) {
    if (request.method != "POST" || !std::exchange(once, false)) return;
    Json secret = *ParseJson(request.body);
    secret["data"]["key"] = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    api_->Put(kPath, secret);
  };
  const auto sealed = sealer_.Seal("a pod", "ns/lab", {});
  ASSERT_TRUE(sealed.ok()) << sealed.status().ToString();
  Sealer next(client_, "holdfast-system");
  EXPECT_EQ(next.Open(*sealed, "ns/lab", {}).value_or(""), "a pod");
}

TEST_F(SealerTest, SaysWhatIsWrongWithTheSecret) {
  api_->Put(kPath, {{"metadata", {{"name", "holdfast-seal"}}}, {"data", {{"key", "QUJD"}}}});
  const Status status = sealer_.Seal("a pod", "ns/lab", {}).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("holdfast-system/holdfast-seal"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::controller
