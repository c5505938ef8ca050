#include "kube/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"
#include "kube/base64.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::kube {
namespace {

class Kubeconfig : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "holdfast-kubeconfig-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(dir_ + "/" + name, text).ok());
    return dir_ + "/" + name;
  }
  // A kubeconfig whose user is `user`.
  std::string WithUser(const std::string& user, const std::string& cluster = "server: https://api:6443") {
    return Write("config", "current-context: c\nclusters:\n- name: k\n  cluster: {" + cluster + "}\nusers:\n- name: u\n  user: {" + user +
                               "}\ncontexts:\n- name: c\n  context: {cluster: k, user: u, namespace: team}\n");
  }
  std::string dir_;
};

TEST_F(Kubeconfig, ReadsDataAndRemembersFiles) {
  const auto own = TestCertificate::Make("u", 1);
  Write("key.pem", own.key_pem);
  Write("ca.crt", own.certificate_pem);
  std::string path = WithUser("client-certificate-data: " + EncodeBase64(own.certificate_pem) + ", client-key: key.pem",
                              "server: 'https://api:6443/', certificate-authority: ca.crt");
  Result<ClientConfig> config = LoadKubeconfig(path);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->server, "https://api:6443");
  EXPECT_EQ(config->client_certificate_pem, own.certificate_pem);
  EXPECT_EQ(config->client_key_file, dir_ + "/key.pem") << "relative paths start at the kubeconfig";
  EXPECT_EQ(config->ca_file, dir_ + "/ca.crt");
  EXPECT_EQ(config->default_namespace, "team");
}

TEST_F(Kubeconfig, PrefersDataToFiles) {
  const std::string ca = TestCertificate::Make("ca", 1).certificate_pem;
  std::string path =
      WithUser("token: t", "server: https://api, certificate-authority: ca.crt, certificate-authority-data: " + EncodeBase64(ca));
  Result<ClientConfig> config = LoadKubeconfig(path);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->ca_pem, ca);
  EXPECT_EQ(config->ca_file, "");
  EXPECT_EQ(config->token, "t");
}

TEST_F(Kubeconfig, SaysWhatToUseInsteadOfAnExecPlugin) {
  Result<ClientConfig> config = LoadKubeconfig(WithUser("exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}"));
  EXPECT_EQ(config.status().code(), Code::kUnsupported);
  for (const char* part : {"\"u\"", "exec plugin", "\"aws\"", "kubectl create token"}) {
    EXPECT_NE(config.status().message().find(part), std::string::npos) << config.status().message();
  }
}

TEST_F(Kubeconfig, RefusesWhatItWouldOtherwiseIgnore) {
  EXPECT_EQ(LoadKubeconfig(WithUser("auth-provider: {name: gcp}")).status().code(), Code::kUnsupported);
  EXPECT_EQ(LoadKubeconfig(WithUser("token: t, as: somebody")).status().code(), Code::kUnsupported);
  EXPECT_EQ(LoadKubeconfig(WithUser("token: t", "server: https://api, proxy-url: http://p")).status().code(), Code::kUnsupported);
  EXPECT_EQ(LoadKubeconfig(WithUser("token: t", "server: https://api, tls-server-name: x")).status().code(), Code::kUnsupported);
}

TEST_F(Kubeconfig, NamesWhatIsWrong) {
  EXPECT_EQ(LoadKubeconfig(dir_ + "/none").status().code(), Code::kNotFound);
  EXPECT_EQ(LoadKubeconfig(Write("a", "clusters: [unclosed")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig(Write("b", "just text")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig(Write("c", "clusters: 1\nusers: {}\ncurrent-context: [x]\n")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig(WithUser("token: t"), "other").status().code(), Code::kNotFound);
  EXPECT_EQ(LoadKubeconfig(WithUser("client-certificate-data: '***', client-key-data: x")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig(WithUser("client-certificate-data: " + EncodeBase64("CERT"))).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig(WithUser("token: t", "server: api")).status().code(), Code::kInvalidArgument);
}

TEST_F(Kubeconfig, SaysInOneLineWhatIsWrongAndWhere) {
  const auto one = TestCertificate::Make("one", 1), other = TestCertificate::Make("other", 2);
  const std::string path = dir_ + "/config";
  const auto user = [](const TestCertificate& certificate, const std::string& key) {
    return "client-certificate-data: " + EncodeBase64(certificate.certificate_pem) + ", client-key-data: " + EncodeBase64(key);
  };
  struct {
    std::string user, cluster, says;
  } const cases[] = {
      {"token: t", "server: https://api, certificate-authority-data: " + EncodeBase64("nonsense"), "no PEM certificate"},
      {"token: t", "server: https://api, certificate-authority: none.crt", "none.crt"},
      {user(one, other.key_pem), "server: https://api", "the client key is not that of the client certificate"},
      {user(one, "nonsense"), "server: https://api", "the client key is not PEM"},
      {"client-certificate: none.crt, client-key: none.key", "server: https://api", "none.crt"},
      {"token: t", "server: 'api:6443'", "no server with https://"},
  };
  for (const auto& c : cases) {
    const std::string said = LoadKubeconfig(WithUser(c.user, c.cluster)).status().message();
    EXPECT_NE(said.find(c.says), std::string::npos) << said;
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  const std::string broken = LoadKubeconfig(Write("broken", "a: b\n  - c: [\n")).status().message();
  EXPECT_NE(broken.find("line 2"), std::string::npos) << broken;
}

TEST_F(Kubeconfig, MergesAListOfFilesAndTheFirstWins) {
  std::string first = Write(
      "first", "current-context: c\ncontexts:\n- name: c\n  context: {cluster: k, user: u}\nusers:\n- name: u\n  user: {token: first}\n");
  std::string second =
      Write("second",
            "current-context: d\nclusters:\n- name: k\n  cluster: {server: 'https://api'}\nusers:\n- name: u\n  user: {token: second}\n");
  Result<ClientConfig> config = LoadKubeconfig(first + ":" + dir_ + "/missing:" + second);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->token, "first");
}

TEST(InClusterConfig, IsNotFoundOutsideAPod) {
  unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(LoadInClusterConfig().status().code(), Code::kNotFound);
}

TEST(Base64, GoesThereAndBack) {
  for (const char* text : {"", "a", "ab", "abc", "abcd", "\xff\x00\x7f!"}) EXPECT_EQ(DecodeBase64(EncodeBase64(text)), text);
  EXPECT_EQ(EncodeBase64("holdfast"), "aG9sZGZhc3Q=");
  EXPECT_EQ(DecodeBase64("aG9s\nZGZh\nc3Q=\n"), "holdfast");
  for (const char* bad : {"a", "ab", "abc", "a===", "====", "ab=c", "ab*="}) EXPECT_EQ(DecodeBase64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace holdfast::kube
