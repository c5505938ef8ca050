// The hub API over its own HTTPS port, with tokens that a real API server made, reviews, and takes back.
#define CPPHTTPLIB_OPENSSL_SUPPORT  // as the library was built
#include <httplib.h>

#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/sieve_transport.h"

namespace holdfast::testing {
namespace {

using std::chrono::seconds;

const kube::Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount"};
const kube::Resource kRoles{"rbac.authorization.k8s.io", "v1", "roles", "Role"};
const kube::Resource kRoleBindings{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"};

struct Answer {
  int status = 0;
  Json body;
};

class HubTest : public ::testing::Test {
 protected:
  // A controller that sees this test's namespace alone.
  void SetUp() override {
    auto options = Replica::Options("hub-of-" + ns_, cluster_.webhook_port(), ns_);
    options.leader_elect = false;
    options.hub_port = 0;
    replica_ = std::make_unique<Replica>(std::make_shared<SieveTransport>(Replica::Connect(), ns_, Disturbance{}), options);
    ASSERT_TRUE(replica_->WaitReady());
    agent_ = std::make_unique<FakeAgent>(cluster_, ns_);
    owner_ = cluster_.MakeWorkload(ns_, "web", {{api::kProtect, "true"}});
    kube::CallOptions dry;
    dry.dry_run = true;
    ASSERT_TRUE(Eventually([&] {
      auto made = cluster_.MakePod(ns_, "probe", "web", owner_, Json::object(), dry);
      return made.ok() && GetString(*made, {"spec", "runtimeClassName"}) == "holdfast";
    }));
    hands_ = std::make_unique<FakeDeployment>(cluster_, ns_, owner_);
    Make(api::SuspendedWorkload::kResource, "holdfast.dev/v1alpha1", ns_, "nb",
         {{"spec", {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", "Running"}}}});
  }
  void Make(const kube::Resource& resource, const std::string& version, const std::string& ns, const std::string& name, Json object) {
    object.update({{"apiVersion", version}, {"kind", resource.kind}, {"metadata", {{"name", name}}}});
    const auto made = client().Create(resource, ns, object);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  // A ServiceAccount of `ns` that may do `verbs` there.
  void MakeAccount(const std::string& ns, const std::string& name, const Json& verbs) {
    Make(kServiceAccounts, "v1", ns, name, Json::object());
    const std::string rbac = "rbac.authorization.k8s.io/v1";
    Make(kRoles, rbac, ns, name, {{"rules", {{{"apiGroups", {"holdfast.dev"}}, {"resources", {"suspendedworkloads"}}, {"verbs", verbs}}}}});
    Make(kRoleBindings, rbac, ns, name,
         {{"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", name}}},
          {"subjects", {{{"kind", "ServiceAccount"}, {"name", name}, {"namespace", ns}}}}});
  }
  std::string Token(const std::string& ns, const std::string& name, const std::string& audience = "holdfast-hub") {
    Json spec = {{"expirationSeconds", 600}};
    if (!audience.empty()) spec["audiences"] = {audience};
    const auto made =
        client().Raw({.method = "POST",
                      .path = kServiceAccounts.Path(ns, name, "token"),
                      .headers = {{"content-type", "application/json"}},
                      .body = DumpJson({{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}, {"spec", spec}})});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return GetString(made.value_or(Json()), {"status", "token"});
  }
  Answer Call(const std::string& method, const std::string& path, const std::string& token, std::string body = "") {
    httplib::SSLClient http("127.0.0.1", replica_->app().hub_port());
    http.enable_server_certificate_verification(false);
    http.set_read_timeout(100);
    httplib::Request request;
    request.method = method;
    request.path = "/v1/namespaces/" + path;
    request.headers = {{"Authorization", "Bearer " + token}};
    request.body = std::move(body);
    const auto result = http.send(request);
    EXPECT_TRUE(result) << httplib::to_string(result.error());
    return result ? Answer{result->status, ParseJson(result->body).value_or(Json())} : Answer{};
  }
  std::string Of(const std::string& ns, const std::string& name = "") {
    return ns + "/suspendedworkloads" + (name.empty() ? "" : "/" + name);
  }
  kube::Client& client() { return cluster_.client(); }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  Json owner_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeDeployment> hands_;
};

TEST_F(HubTest, SuspendsAndResumesAndWaitsForIt) {
  MakeAccount(ns_, "hub", {"get", "list", "patch"});
  const std::string token = Token(ns_, "hub");
  const std::string nb = Of(ns_, "nb");
  ASSERT_TRUE(Eventually([&] { return Call("GET", nb, token).body.value("observed", false); }));
  Answer answer = Call("POST", nb + "/suspend?wait=60", token);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(GetString(answer.body, {"phase"}), "Suspended");
  EXPECT_EQ(GetInt(client().Get(kube::Deployment::kResource, ns_, "web").value_or(Json()), {"spec", "replicas"}, -1), 0);
  EXPECT_EQ(Call("POST", nb + "/suspend", token).status, 200) << "again";
  answer = Call("GET", Of(ns_), token);
  EXPECT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(GetArray(answer.body, {"items"}).size(), 1U);
  const std::string version = GetString(GetArray(answer.body, {"items"})[0], {"version"});
  Answer seen;
  {
    std::jthread waits([&] { seen = Call("GET", nb + "?wait=60&since=" + version, token); });
    answer = Call("POST", nb + "/resume?wait=60", token);
  }
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(GetString(answer.body, {"phase"}), "Running");
  EXPECT_EQ(seen.status, 200) << seen.body;
  EXPECT_NE(GetString(seen.body, {"version"}), version);
  EXPECT_EQ(Call("POST", nb + "/resume", token).status, 200) << "again";
}

TEST_F(HubTest, NobodyDoesWhatRbacDoesNotLetThemDo) {
  const std::string elsewhere = cluster_.MakeNamespace(), nb = Of(ns_, "nb");
  MakeAccount(elsewhere, "hub", {"get", "list", "patch"});  // all, but there
  MakeAccount(ns_, "viewer", {"get"});
  MakeAccount(ns_, "hub", {"get", "list", "patch"});
  MakeAccount(ns_, "gone", {"get", "list", "patch"});
  const std::string viewer = Token(ns_, "viewer"), stranger = Token(elsewhere, "hub"), gone = Token(ns_, "gone");
  ASSERT_TRUE(client().Delete(kServiceAccounts, ns_, "gone").ok());
  struct {
    const char *who, *method;
    std::string path, token;
    int status;
  } const table[] = {
      {"who may look", "GET", nb, viewer, 200},
      {"who may look", "GET", Of(ns_), viewer, 403},
      {"who may look", "POST", nb + "/suspend", viewer, 403},
      {"who may do all elsewhere", "GET", nb, stranger, 403},
      {"who may do all elsewhere", "POST", nb + "/suspend", stranger, 403},
      {"who may do all elsewhere", "GET", Of(ns_, "none"), stranger, 403},
      {"who may do all elsewhere", "GET", Of(elsewhere), stranger, 200},
      {"an account that was deleted", "POST", nb + "/suspend", gone, 401},
      {"a token for the API server", "POST", nb + "/suspend", Token(ns_, "hub", ""), 401},
      {"a token for another", "POST", nb + "/suspend", Token(ns_, "hub", "holdfast-store"), 401},
      {"garbage", "POST", nb + "/suspend", "garbage", 401},
      {"a token that was changed", "POST", nb + "/suspend", viewer + "x", 401},
      {"no token", "POST", nb + "/suspend", "", 401},
      {"who may", "GET", Of(ns_, "none"), Token(ns_, "hub"), 404},
      {"who may", "GET", nb + "?wait=61", Token(ns_, "hub"), 400},
      {"who may", "DELETE", nb, Token(ns_, "hub"), 405},
  };
  for (const auto& row : table) {
    const Answer answer = Call(row.method, row.path, row.token);
    EXPECT_EQ(answer.status, row.status) << row.who << ": " << row.method << " " << row.path << ": " << answer.body;
    EXPECT_EQ(GetString(answer.body, {"detail"}).empty(), row.status < 400) << row.who;
  }
  EXPECT_EQ(GetString(client().Get(api::SuspendedWorkload::kResource, ns_, "nb").value_or(Json()), {"spec", "state"}), "Running");
}

TEST_F(HubTest, ReadsNoLongRequestsAndServesWhatItUnderstands) {
  EXPECT_EQ(Call("POST", Of(ns_, "nb") + "/suspend", "t", std::string(20 << 10, 'x')).status, 413);
  httplib::SSLClient http("127.0.0.1", replica_->app().hub_port());
  http.enable_server_certificate_verification(false);
  const auto contract = http.Get("/openapi.yaml");
  ASSERT_TRUE(contract);
  EXPECT_EQ(contract->status, 200);
  EXPECT_TRUE(contract->body.starts_with("openapi: 3.")) << contract->body.substr(0, 40);
}

}  // namespace
}  // namespace holdfast::testing
