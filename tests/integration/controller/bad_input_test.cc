// holdfast-controller and holdfast-agent as processes, with what people get wrong: each says in one line what is wrong, where, and what to
// do; it goes on trying where that can help, and is ready once it was helped; it ends with an exit status other than 0 where it cannot.
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "kube/base64.h"
#include "tests/integration/controller/cluster.h"
#include "tests/places.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::testing {
namespace {

using std::chrono::seconds;

// A program whose log is looked into while it runs.
class Daemon {
 public:
  Daemon(std::vector<std::string> argv, std::string log) : log_(std::move(log)) {
    argv.insert(argv.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>" + log_});
    thread_ = std::jthread([this, argv](std::stop_token stop) {
      ProcessOptions options;
      options.timeout = std::chrono::minutes(5);
      // Not as a pod, whatever runs this test.
      options.env = {"KUBERNETES_SERVICE_HOST=", "KUBECONFIG=/nowhere", "HOME=/nowhere"};
      auto result = RunProcess(argv, options, stop);
      exit_code_ = result.ok() ? result->exit_code : -1;
      ended_ = true;
    });
  }
  ~Daemon() {
    thread_.request_stop();
    thread_.join();
    if (::testing::Test::HasFailure()) fprintf(stderr, "%s\n", Log().c_str());
  }
  // A line with all of `parts` comes.
  bool Says(const std::vector<std::string>& parts, Duration limit = seconds(30)) const {
    return Eventually([&] { return Find(parts); }, limit);
  }
  size_t Lines() const {
    const std::string log = Log();
    return static_cast<size_t>(std::count(log.begin(), log.end(), '\n'));
  }
  bool ended() const { return ended_; }
  int ExitCode() const {
    EXPECT_TRUE(Eventually([&] { return ended_.load(); }));
    return exit_code_;
  }
  std::string Log() const { return ReadFile(log_).value_or(""); }

 private:
  bool Find(const std::vector<std::string>& parts) const {
    const std::string log = Log();
    for (size_t at = 0, end = 0; (end = log.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = log.substr(at, end - at);
      if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return line.find(part) != std::string::npos; }))
        return true;
    }
    return false;
  }
  const std::string log_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> exit_code_ = -1;
  std::jthread thread_;
};

class BadInput : public ::testing::TestWithParam<const char*> {
 protected:
  BadInput() {
    char dir[] = "/tmp/holdfast-input-XXXXXX";
    EXPECT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  ~BadInput() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }

  bool controller() const { return std::string(GetParam()) == "controller"; }
  std::string Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(WriteFileAtomically(dir_ + "/" + name, text).ok());
    return dir_ + "/" + name;
  }
  std::string Kubeconfig(const kube::ClientConfig& config) const {
    Json cluster = {{"server", config.server}}, user = Json::object();
    if (!config.ca_file.empty()) cluster["certificate-authority"] = config.ca_file;
    if (!config.ca_pem.empty()) cluster["certificate-authority-data"] = kube::EncodeBase64(config.ca_pem);
    if (!config.token.empty()) user["token"] = config.token;
    if (!config.client_certificate_file.empty()) {
      user["client-certificate"] = config.client_certificate_file;
      user["client-key"] = config.client_key_file;
    }
    if (!config.client_certificate_pem.empty()) {
      user["client-certificate-data"] = kube::EncodeBase64(config.client_certificate_pem);
      user["client-key-data"] = kube::EncodeBase64(config.client_key_pem);
    }
    const Json file = {{"apiVersion", "v1"},
                       {"kind", "Config"},
                       {"current-context", "it"},
                       {"clusters", {{{"name", "it"}, {"cluster", cluster}}}},
                       {"users", {{{"name", "me"}, {"user", user}}}},
                       {"contexts", {{{"name", "it"}, {"context", {{"cluster", "it"}, {"user", "me"}}}}}}};
    return Write("kubeconfig", DumpJson(file));
  }
  std::unique_ptr<Daemon> Start(const std::string& kubeconfig) {
    std::vector<std::string> argv;
    if (controller()) {
      argv = {places::Program("holdfast-controller"),
              "--namespace=holdfast-system",
              "--wait-image=example/holdfast",
              "--listen=127.0.0.1",
              "--webhook-port=0",
              "--metrics-port=" + std::to_string(port_),
              "--mutating-webhook-configuration=",
              "--validating-webhook-configuration="};
    } else {
      argv = {places::Program("holdfast-agent"),
              "--node-name=node-a",
              "--store-url=https://127.0.0.1:1",
              "--no-install",
              "--host-pid=" + std::to_string(getpid()),
              "--run-dir=" + dir_ + "/run",
              "--state-dir=" + dir_ + "/state",
              "--runc-root=" + dir_ + "/runc",
              "--listen-address=127.0.0.1",
              "--listen-port=" + std::to_string(port_)};
    }
    argv.push_back("--kubeconfig=" + kubeconfig);
    return std::make_unique<Daemon>(argv, dir_ + "/log");
  }
  bool Ready() const {
    kube::ClientConfig config;
    config.server = "http://127.0.0.1:" + std::to_string(port_);
    const auto pages = kube::MakeCurlTransport(config);
    return Eventually(
        [&] {
          kube::HttpRequest request;
          request.path = "/readyz";
          request.timeout = seconds(1);
          auto answer = pages->Send(request, {});
          return answer.ok() && answer->status == 200;
        },
        seconds(60));
  }
  // It said what is wrong and still tries.
  void TriesOn(const Daemon& daemon) const {
    EXPECT_FALSE(daemon.ended());
    EXPECT_TRUE(Ready()) << "it was helped, and did not see it";
  }

  std::string dir_;
  const int port_ = FreePort();
  Cluster& cluster_ = Cluster::Shared();
};

TEST_P(BadInput, AMalformedKubeconfigEndsIt) {
  const std::string path = Write("kubeconfig", "clusters: [\n");
  auto daemon = Start(path);
  EXPECT_NE(daemon->ExitCode(), 0);
  EXPECT_TRUE(daemon->Says({"kubeconfig " + path + " is not YAML"}));
  EXPECT_EQ(daemon->Lines(), 1u) << daemon->Log();
}

TEST_P(BadInput, AKubeconfigThatIsNotThereEndsIt) {
  auto daemon = Start(dir_ + "/missing");
  EXPECT_NE(daemon->ExitCode(), 0);
  EXPECT_TRUE(daemon->Says({"kubeconfig", dir_ + "/missing", "No such file"}));
  EXPECT_EQ(daemon->Lines(), 1u) << daemon->Log();
}

TEST_P(BadInput, AnExpiredCertificateInTheKubeconfigItselfEndsIt) {
  kube::ClientConfig config = ApiServer::Shared().config();
  config.token.clear();
  const auto expired = kube::TestCertificate::Make("expired", 3, -60);
  config.client_certificate_pem = expired.certificate_pem;
  config.client_key_pem = expired.key_pem;
  const std::string path = Kubeconfig(config);
  auto daemon = Start(path);
  EXPECT_NE(daemon->ExitCode(), 0);
  EXPECT_TRUE(daemon->Says({path, "client certificate", "expired at", "renew it"}));
  EXPECT_EQ(daemon->Lines(), 1u) << daemon->Log();
}

TEST_P(BadInput, AnUnreachableServerIsAskedUntilItAnswers) {
  ApiServer& server = ApiServer::Shared();
  ASSERT_TRUE(server.KillApiServer().ok());
  auto daemon = Start(Kubeconfig(server.config()));
  EXPECT_TRUE(daemon->Says({server.config().server, "is the server running, and is this its address?"}));
  EXPECT_FALSE(daemon->ended());
  ASSERT_TRUE(server.StartApiServer().ok());
  TriesOn(*daemon);
}

TEST_P(BadInput, AnExpiredClientCertificateIsWaitedFor) {
  kube::ClientConfig config = ApiServer::Shared().config();
  config.token.clear();
  const auto expired = kube::TestCertificate::Make("expired", 3, -60);
  config.client_certificate_file = Write("tls.crt", expired.certificate_pem);
  config.client_key_file = Write("tls.key", expired.key_pem);
  auto daemon = Start(Kubeconfig(config));
  EXPECT_TRUE(daemon->Says({"our client certificate " + config.client_certificate_file + " expired at", "renew it"}));
  EXPECT_FALSE(daemon->ended());
  auto renewed = ApiServer::Shared().ConfigOf("renewed", "system:masters");
  ASSERT_TRUE(renewed.ok());
  Write("tls.key", renewed->client_key_pem);
  Write("tls.crt", renewed->client_certificate_pem);
  TriesOn(*daemon);
}

TEST_P(BadInput, AForbiddenVerbIsTriedUntilItIsAllowed) {
  const std::string user = std::string("powerless-") + GetParam();
  auto config = ApiServer::Shared().ConfigOf(user);
  ASSERT_TRUE(config.ok());
  auto daemon = Start(Kubeconfig(*config));
  const std::string kind = controller() ? "pods" : "nodes";
  EXPECT_TRUE(daemon->Says({"User \\\"" + user + "\\\" cannot", "resource \\\"" + kind + "\\\"", "allow it with a Role or ClusterRole"}));
  EXPECT_FALSE(daemon->ended());
  const kube::Resource bindings{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false};
  const Json binding = {{"metadata", {{"name", user}}},
                        {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", "cluster-admin"}}},
                        {"subjects", {{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "User"}, {"name", user}}}}};
  ASSERT_TRUE(cluster_.client().Create(bindings, "", binding).ok());
  TriesOn(*daemon);
}

TEST_P(BadInput, AMissingCrdIsWaitedFor) {
  auto bare = ApiServer::Start({});
  ASSERT_TRUE(bare.ok()) << bare.status().ToString();
  kube::Client client(kube::MakeCurlTransport((*bare)->config()));
  const kube::Resource namespaces{"", "v1", "namespaces", "Namespace", false};
  ASSERT_TRUE(client.Create(namespaces, "", {{"metadata", {{"name", "holdfast-system"}}}}).ok());
  ASSERT_TRUE(client.Create(kube::Node::kResource, "", {{"metadata", {{"name", "node-a"}}}}).ok());
  auto daemon = Start((*bare)->kubeconfig());
  EXPECT_TRUE(daemon->Says({"the API server does not serve checkpoints.holdfast.dev", "kubectl get crd checkpoints.holdfast.dev"}));
  EXPECT_FALSE(daemon->ended());
  ASSERT_TRUE(ApplyCrds((*bare)->kubeconfig()).ok());
  TriesOn(*daemon);
}

INSTANTIATE_TEST_SUITE_P(Programs, BadInput, ::testing::Values("controller", "agent"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace holdfast::testing
