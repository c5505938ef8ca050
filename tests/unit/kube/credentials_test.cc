#include "kube/credentials.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "base/file.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::kube {
namespace {

using std::chrono::seconds;

class CredentialsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "holdfast-credentials-XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(dir_ + "/" + name, text).ok());
    return dir_ + "/" + name;
  }
  Credentials Make() { return Credentials(config_, clock_, kRecheck); }
  // Of a client certificate in files.
  void UseFiles(const TestCertificate& certificate) {
    config_.client_certificate_file = Write("tls.crt", certificate.certificate_pem);
    config_.client_key_file = Write("tls.key", certificate.key_pem);
  }

  static constexpr Duration kRecheck = seconds(5);
  std::string dir_;
  ClientConfig config_;
  // Now, so that certificates made by TestCertificate are valid.
  FakeClock clock_{Clock::Real().Wall()};
};

TEST_F(CredentialsTest, ReadsTheTokenOnceAndAgainWhenItsTimeIsOver) {
  config_.token_file = Write("token", "one\n");
  Credentials credentials = Make();
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  Write("token", "two\n");
  clock_.Advance(kRecheck - std::chrono::milliseconds(1));
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(credentials.Authorization(), "Bearer two");
}

TEST_F(CredentialsTest, GoesOnWithTheLastTokenWhileTheFileIsMissingOrEmpty) {
  config_.token_file = Write("token", "one\n");
  Credentials credentials = Make();
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  Write("token", "\n");
  clock_.Advance(kRecheck);
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  ASSERT_TRUE(RemoveAll(dir_ + "/token").ok());
  clock_.Advance(kRecheck);
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  Write("token", "two\n");
  clock_.Advance(kRecheck);
  EXPECT_EQ(credentials.Authorization(), "Bearer two");
}

TEST_F(CredentialsTest, ReadsTheTokenAtOnceAfterARefusal) {
  config_.token_file = Write("token", "one\n");
  Credentials credentials = Make();
  EXPECT_EQ(credentials.Authorization(), "Bearer one");
  EXPECT_FALSE(credentials.RenewAfterRefusal("Bearer one")) << "the same token would be refused again";
  Write("token", "two\n");
  EXPECT_TRUE(credentials.RenewAfterRefusal("Bearer one"));
  EXPECT_EQ(credentials.Authorization(), "Bearer two");
  EXPECT_TRUE(credentials.RenewAfterRefusal("Bearer one")) << "another thread has read it meanwhile";
}

TEST_F(CredentialsTest, PrefersTheTokenFileToATokenAndThatToAPassword) {
  config_.username = "u";
  config_.password = "p";
  EXPECT_EQ(Make().Authorization(), "Basic dTpw");
  config_.token = "fixed";
  EXPECT_EQ(Make().Authorization(), "Bearer fixed");
  EXPECT_FALSE(Make().RenewAfterRefusal("Bearer fixed"));
  config_.token_file = Write("token", "file");
  EXPECT_EQ(Make().Authorization(), "Bearer file");
}

TEST_F(CredentialsTest, ServesManyThreads) {
  config_.token_file = Write("token", "token");
  UseFiles(TestCertificate::Make("one", 1));
  Credentials credentials = Make();
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 100; ++round) {
          clock_.Advance(seconds(1));
          good += credentials.Authorization() == "Bearer token" && credentials.Tls().ok() ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(good, 800);
}

TEST_F(CredentialsTest, TakesOverANewClientCertificateWhenBothFilesAreThere) {
  const auto one = TestCertificate::Make("one", 1), two = TestCertificate::Make("two", 2);
  UseFiles(one);
  Credentials credentials = Make();
  const auto first = *credentials.Tls();
  EXPECT_EQ(first->certificate_pem + "\n", one.certificate_pem);
  Write("tls.crt", two.certificate_pem);  // the key comes later
  clock_.Advance(kRecheck);
  EXPECT_EQ(*credentials.Tls(), first) << "half of a pair is of no use";
  Write("tls.key", two.key_pem);
  clock_.Advance(kRecheck);
  const auto second = *credentials.Tls();
  EXPECT_EQ(second->certificate_pem + "\n", two.certificate_pem);
  EXPECT_GT(second->version, first->version);
  EXPECT_GT(second->identity, first->identity);
}

TEST_F(CredentialsTest, TakesOverANewCaButNothingThatIsNone) {
  const auto one = TestCertificate::Make("one", 1), two = TestCertificate::Make("two", 2);
  config_.ca_file = Write("ca.crt", one.certificate_pem);
  Credentials credentials = Make();
  const auto first = *credentials.Tls();
  EXPECT_EQ(first->ca_pem + "\n", one.certificate_pem);
  for (const char* bad : {"", "not a certificate"}) {
    Write("ca.crt", bad);
    clock_.Advance(kRecheck);
    EXPECT_EQ(*credentials.Tls(), first) << bad;
  }
  ASSERT_TRUE(RemoveAll(config_.ca_file).ok());
  clock_.Advance(kRecheck);
  EXPECT_EQ(*credentials.Tls(), first);
  Write("ca.crt", two.certificate_pem + one.certificate_pem);
  EXPECT_EQ(*credentials.Tls(), first) << "not before its time";
  clock_.Advance(kRecheck);
  const auto second = *credentials.Tls();
  EXPECT_EQ(second->ca_pem + "\n", two.certificate_pem + one.certificate_pem);
  EXPECT_GT(second->version, first->version);
  EXPECT_EQ(second->identity, first->identity) << "connections may stay";
}

TEST_F(CredentialsTest, IsUnavailableUntilThereIsACa) {
  config_.ca_file = dir_ + "/ca.crt";
  Credentials credentials = Make();
  Status missing = credentials.Tls().status();
  EXPECT_EQ(missing.code(), Code::kUnavailable);
  EXPECT_NE(missing.message().find(config_.ca_file), std::string::npos) << missing.message();
  Write("ca.crt", TestCertificate::Make("one", 1).certificate_pem);
  EXPECT_TRUE(credentials.Tls().ok());
}

TEST_F(CredentialsTest, DoubtsACertificateThatHasExpired) {
  UseFiles(TestCertificate::Make("one", 1, /*valid=*/3600));
  Credentials credentials = Make();
  ASSERT_TRUE(credentials.Tls().ok());
  EXPECT_EQ(credentials.Doubt(), "");
  clock_.Advance(seconds(3700));
  const std::string doubt = credentials.Doubt();
  EXPECT_NE(doubt.find(config_.client_certificate_file + " expired at 20"), std::string::npos) << doubt;
}

}  // namespace
}  // namespace holdfast::kube
