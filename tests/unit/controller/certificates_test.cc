#include "controller/certificates.h"

#include <gtest/gtest.h>

#include "controller/certificate_keeper.h"
#include "kube/base64.h"
#include "tests/unit/controller/fake_api.h"

namespace holdfast::controller {
namespace {

using std::chrono::hours;
using testing::FakeApi;

TEST(Certificates, AServersIsSignedByItsCaAndNoOther) {
  const WallTime now = Clock::Real().Wall();
  auto ca = MakeCa({"ca", {}, hours(24)}, now), other = MakeCa({"ca", {}, hours(24)}, now);
  ASSERT_TRUE(ca.ok()) << ca.status().ToString();
  auto server = IssueServer(*ca, {"web", {"web.ns.svc", "127.0.0.1", "::1"}, hours(2)}, now);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_TRUE(SignedBy(server->cert_pem, ca->cert_pem));
  EXPECT_FALSE(SignedBy(server->cert_pem, other->cert_pem));
  auto facts = ReadCertificate(server->cert_pem);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->hosts, (std::vector<std::string>{"web.ns.svc", "127.0.0.1", "::1"}));
  EXPECT_NEAR(std::chrono::duration<double>(facts->not_after - now).count(), 7200, 2);
  EXPECT_LT(facts->not_before, now);
}

TEST(Certificates, RubbishIsAnErrorAndNoCrash) {
  for (const char* pem : {"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}) {
    EXPECT_FALSE(ReadCertificate(pem).ok());
    EXPECT_FALSE(SignedBy(pem, pem));
    EXPECT_FALSE(IssueServer({pem, pem}, {"a", {"a"}, hours(1)}, WallTime()).ok());
  }
}

constexpr char kSecrets[] = "/api/v1/namespaces/hf/secrets/", kMap[] = "/api/v1/namespaces/hf/configmaps/holdfast-ca",
               kHooks[] = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/holdfast";

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() : api_(std::make_shared<FakeApi>()), client_(api_, clock_) {
    options_.ns = "hf";
    options_.webhook_hosts = ServiceHosts("holdfast-webhook", "hf");
    options_.store_hosts = StoreHosts("hf");
    api_->Put(kHooks, {{"metadata", {{"name", "holdfast"}}}, {"webhooks", {{{"name", "pods"}, {"clientConfig", Json::object()}}}}});
  }
  CertificateKeeper Keeper() {
    return CertificateKeeper(client_, options_, [this](const KeyPair& pair) { given_.push_back(pair.cert_pem); });
  }
  std::string Stored(const std::string& secret, const char* key) {
    return kube::DecodeBase64(GetString(api_->objects[kSecrets + secret], {"data", key})).value_or("");
  }

  FakeClock clock_{Clock::Real().Wall()};
  std::shared_ptr<FakeApi> api_;
  kube::Client client_;
  CertificateOptions options_;
  std::vector<std::string> given_;
};

TEST_F(KeeperTest, MakesEverythingOnceAndSecondReplicaTakesIt) {
  CertificateKeeper one = Keeper(), two = Keeper();
  ASSERT_TRUE(one.Ensure({}).ok());
  EXPECT_TRUE(one.ready());
  const std::string ca = Stored("holdfast-ca", "tls.crt");
  EXPECT_TRUE(SignedBy(Stored("holdfast-webhook-tls", "tls.crt"), ca));
  EXPECT_TRUE(SignedBy(Stored("holdfast-store-tls", "tls.crt"), ca));
  EXPECT_EQ(Stored("holdfast-store-tls", "ca.crt"), ca);
  EXPECT_EQ(GetString(api_->objects[kMap], {"data", "ca.crt"}), ca);
  EXPECT_EQ(api_->objects[kHooks]["webhooks"][0]["clientConfig"]["caBundle"], kube::EncodeBase64(ca));

  const size_t posts = api_->Count("POST"), patches = api_->Count("PATCH");
  ASSERT_TRUE(two.Ensure({}).ok());
  ASSERT_TRUE(one.Ensure({}).ok());
  EXPECT_EQ(api_->Count("POST"), posts);
  EXPECT_EQ(api_->Count("PATCH"), patches);
  EXPECT_EQ(api_->Count("PUT"), 0u);
  ASSERT_EQ(given_.size(), 2u) << "once to each replica";
  EXPECT_EQ(given_[0], given_[1]);
}

// Hole 3: the key was rendered with the chart, and rendered anew without Helm's look into the cluster.
TEST_F(KeeperTest, MakesTheStoresKeyByCreateAloneAndNeverTwice) {
  options_.kek_secret = "holdfast-store-kek";
  CertificateKeeper one = Keeper(), two = Keeper();
  ASSERT_TRUE(one.Ensure({}).ok());
  const std::string key = Stored("holdfast-store-kek", "kek");
  EXPECT_EQ(key.size(), 32u);
  ASSERT_TRUE(two.Ensure({}).ok());
  EXPECT_EQ(Stored("holdfast-store-kek", "kek"), key);
  EXPECT_EQ(api_->Count("PUT"), 0u);
  // Somebody took it away: a backup of it is what helps, and not another key in its place.
  api_->objects.erase(kSecrets + std::string("holdfast-store-kek"));
  ASSERT_TRUE(one.Ensure({}).ok());
  EXPECT_FALSE(api_->objects.contains(kSecrets + std::string("holdfast-store-kek")));
}

TEST_F(KeeperTest, MakesNoKeyWhereItIsSomebodyElses) {
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  for (const auto& [path, object] : api_->objects) EXPECT_EQ(path.find("kek"), std::string::npos);
}

TEST_F(KeeperTest, AFurtherStoreNeedsNoOtherCertificate) {
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  const auto facts = ReadCertificate(Stored("holdfast-store-tls", "tls.crt"));
  ASSERT_TRUE(facts.ok());
  for (const char* host : {"holdfast-store.hf.svc", "holdfast-store-1.hf.svc", "holdfast-store-31.hf.svc"})
    EXPECT_NE(std::find(facts->hosts.begin(), facts->hosts.end(), host), facts->hosts.end()) << host;
}

TEST_F(KeeperTest, TwoReplicasThatBeginTogetherEndWithOneCa) {
  CertificateKeeper one = Keeper(), two = Keeper();
  bool raced = false;
  api_->before = [&](const kube::HttpRequest& request) {
    if (raced || request.method != "POST") return;
    raced = true;  // between the first replica's look and its write
    ASSERT_TRUE(two.Ensure({}).ok());
  };
  ASSERT_TRUE(one.Ensure({}).ok());
  EXPECT_TRUE(raced);
  ASSERT_EQ(given_.size(), 2u);
  EXPECT_EQ(given_[0], given_[1]);
}

TEST_F(KeeperTest, RenewsLongBeforeTheEnd) {
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  clock_.Advance(hours(24 * 240));
  ASSERT_TRUE(keeper.Ensure({}).ok());
  EXPECT_EQ(given_.size(), 1u);
  clock_.Advance(hours(24 * 10));
  ASSERT_TRUE(keeper.Ensure({}).ok());
  EXPECT_EQ(given_.size(), 2u);
}

TEST_F(KeeperTest, ANewCaIsKnownBeforeItIsUsed) {
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  const std::string old_ca = Stored("holdfast-ca", "tls.crt");
  for (int day = 0; day < 3650 - 366; day += 200) {
    clock_.Advance(hours(24 * 200));
    ASSERT_TRUE(keeper.Ensure({}).ok());
    if (Stored("holdfast-ca", "tls.crt") != old_ca) break;
  }
  const std::string new_ca = Stored("holdfast-ca", "tls.crt");
  ASSERT_NE(new_ca, old_ca);
  EXPECT_EQ(GetString(api_->objects[kMap], {"data", "ca.crt"}), new_ca + old_ca) << "both, so that neither side is refused meanwhile";
  clock_.Advance(hours(2));
  ASSERT_TRUE(keeper.Ensure({}).ok());
  EXPECT_TRUE(SignedBy(Stored("holdfast-webhook-tls", "tls.crt"), new_ca));
}

TEST_F(KeeperTest, PutsTheBundleBackAfterAnUpgradeRemovedIt) {
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  api_->objects[kHooks]["webhooks"][0]["clientConfig"].erase("caBundle");
  ASSERT_TRUE(keeper.Ensure({}).ok());
  EXPECT_TRUE(api_->objects[kHooks]["webhooks"][0]["clientConfig"].contains("caBundle"));
}

TEST_F(KeeperTest, ReplacesASecretThatHoldsRubbish) {
  api_->Put(std::string(kSecrets) + "holdfast-webhook-tls",
            {{"metadata", {{"name", "holdfast-webhook-tls"}}}, {"data", {{"tls.crt", "AAAA"}}}});
  CertificateKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Ensure({}).ok());
  EXPECT_TRUE(SignedBy(Stored("holdfast-webhook-tls", "tls.crt"), Stored("holdfast-ca", "tls.crt")));
}

}  // namespace
}  // namespace holdfast::controller
