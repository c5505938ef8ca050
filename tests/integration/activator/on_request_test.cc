// Controller and activator at a real API server: what a Service leads to while its workload sleeps, and who wakes it. The endpoints are on
// paper only, as the pods are; that what comes is forwarded is seen by unit tests and on the real cluster.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "activator/app.h"
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/sieve_transport.h"

namespace holdfast::testing {
namespace {

using std::chrono::seconds;

constexpr Duration kLimit = seconds(150);  // for what must come, on a machine that is busy with others

constexpr char kPodAddress[] = "10.98.7.7";  // of the activator's pod, as its object has it

// Says `text` to a port of this machine and hears all of the answer, for at most a minute between two parts of it.
std::string Ask(int port, const std::string& text) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  std::string heard;
  char part[4096];
  if (connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0) {
    for (ssize_t got; (got = recv(fd, part, sizeof part, 0)) > 0;) heard.append(part, static_cast<size_t>(got));
  }
  close(fd);
  return heard;
}

class OnRequestTest : public ::testing::Test {
 protected:
  void Start() {
    auto options = Replica::Options("on-request-of-" + ns_, cluster_.webhook_port(), ns_);
    options.leader_elect = false;
    options.activator_ports = {kFirst, kPorts};
    options.prices = {.cpu = 0.04, .currency = "EUR"};
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
  }
  std::jthread RunActivator() {
    activator::AppOptions options;
    options.identity = "activator-of-" + ns_;
    options.listen = "127.0.0.1";
    options.metrics_port = 0;
    options.first_port = kFirst;
    options.last_port = kFirst + kPorts - 1;
    options.drain = Duration(0);  // and so no linger
    activators_.push_back(std::make_unique<activator::App>(Replica::Connect(), options));
    return std::jthread([app = activators_.back().get()](std::stop_token stop) { (void)app->Run(stop).ok(); });
  }
  // As the kubelet would show it in the release namespace.
  void MakeActivatorPod(bool ready) {
    const Json pod = {
        {"metadata",
         {{"name", "activator"}, {"labels", {{"app.kubernetes.io/name", "holdfast"}, {"app.kubernetes.io/component", "activator"}}}}},
        {"spec", {{"containers", {{{"name", "main"}, {"image", "example/holdfast"}}}}}}};
    auto made = client().Create(kube::Pod::kResource, ns_, pod);
    ASSERT_TRUE(made.ok() || made.status().code() == Code::kAlreadyExists) << made.status().ToString();
    kube::CallOptions status;
    status.subresource = "status";
    const Json now = {{"phase", "Running"},
                      {"podIP", kPodAddress},
                      {"podIPs", {{{"ip", kPodAddress}}}},
                      {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}};
    ASSERT_TRUE(client().Patch(kube::Pod::kResource, ns_, "activator", kube::PatchType::kMerge, {{"status", now}}, status).ok());
  }
  void MakeService(const std::string& app = "web") {
    auto made = client().Create(
        kube::Service::kResource, ns_,
        {{"metadata", {{"name", "web"}}},
         {"spec", {{"selector", {{"app", app}}}, {"ports", {{{"name", "http"}, {"port", 80}}, {{"name", "raw"}, {"port", 81}}}}}}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  void MakeSleeper(const std::string& name = "nb", const std::string& state = "Suspended") {
    const Json spec = {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}},
                       {"state", state},
                       {"resume", {{"onRequest", {{"service", "web"}, {"holdFor", "2s"}}}}}};
    auto made = client().Create(
        api::SuspendedWorkload::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", name}}}, {"spec", spec}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  api::SuspendedWorkload Sleeper(const std::string& name = "nb") {
    auto read = client().Get<api::SuspendedWorkload>(ns_, name);
    return read.ok() ? std::move(*read) : api::SuspendedWorkload();
  }
  std::string Reason(const std::string& name = "nb") {
    const auto sleeper = Sleeper(name);
    const auto* condition = kube::FindCondition(sleeper.status.conditions, "OnRequest");
    return condition == nullptr ? "" : condition->reason.str();
  }
  std::optional<kube::EndpointSlice> Slice() {
    auto read = client().Get<kube::EndpointSlice>(ns_, "web-holdfast");
    return read.ok() ? std::optional(std::move(*read)) : std::nullopt;
  }
  bool Leads() {
    const auto slice = Slice();
    return slice && slice->endpoints.size() == 1 && slice->endpoints[0].address == kPodAddress;
  }
  // The pods' own slice, as the endpoint controller would write it.
  void MakeOwnEndpoint() {
    auto made = client().Create(
        kube::EndpointSlice::kResource, ns_,
        {{"metadata",
          {{"name", "web-1"},
           {"labels",
            {{"kubernetes.io/service-name", "web"}, {"endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"}}}}},
         {"addressType", "IPv4"},
         {"endpoints", {{{"addresses", {"10.98.8.8"}}, {"conditions", {{"ready", true}}}}}},
         {"ports", {{{"name", "http"}, {"port", 8080}, {"protocol", "TCP"}}}}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  kube::Client& client() { return cluster_.client(); }

  static constexpr int32_t kFirst = 20100, kPorts = 40;
  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  Json owner_;
  std::vector<std::unique_ptr<activator::App>> activators_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeDeployment> hands_;
};

TEST_F(OnRequestTest, ARequestWakesItOnceWhicheverActivatorItComesTo) {
  Start();
  MakeActivatorPod(true);
  MakeService();
  const std::jthread first = RunActivator();
  MakeSleeper();
  ASSERT_TRUE(Eventually([&] { return Sleeper().status.phase == api::SuspendPhase::kSuspended && Leads(); }, kLimit));
  const auto sleeper = Sleeper();
  ASSERT_EQ(sleeper.status.on_request.ports.size(), 2u);
  const auto slice = *Slice();
  EXPECT_EQ(slice.ports[0].port, sleeper.status.on_request.ports[0].number);
  ASSERT_TRUE(slice.meta.Controller() != nullptr && slice.meta.Controller()->uid == sleeper.meta.uid);
  const int port = sleeper.status.on_request.ports[0].number;
  std::string looked;
  ASSERT_TRUE(Eventually([&] {
    looked = Ask(port, "GET /.holdfast/status HTTP/1.1\r\n\r\n");
    return looked.find("\"phase\":\"Suspended\"") != std::string::npos;
  })) << looked;
  EXPECT_TRUE(Sleeper().spec.suspended) << "to look wakes nobody";
  hands_->no_room = true;
  std::vector<std::jthread> asking;
  std::atomic<int> told = 0;
  for (int i = 0; i < 10; ++i) {
    asking.emplace_back([&] {
      const std::string answer = Ask(port, "GET /api HTTP/1.1\r\n\r\n");
      told += answer.starts_with("HTTP/1.1 503 ") && answer.find("web: not awake in time: ") != std::string::npos ? 1 : 0;
    });
  }
  asking.clear();
  EXPECT_EQ(told, 10) << "there is no room, and they are told so";
  EXPECT_TRUE(Eventually([&] { return Ask(port, "GET /api HTTP/1.1\r\n\r\n").find("is Pending") != std::string::npos; }, kLimit));
  EXPECT_FALSE(Sleeper().spec.suspended);
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "ResumedOnRequest").size() == 1; }, kLimit));
  hands_->no_room = false;
  ASSERT_TRUE(Eventually([&] { return Sleeper().status.phase == api::SuspendPhase::kRunning; }, kLimit));
  EXPECT_TRUE(Leads()) << "no endpoint of its own is ready yet";
  MakeOwnEndpoint();
  EXPECT_TRUE(Eventually([&] { return !Slice(); }, kLimit));
  EXPECT_EQ(Sleeper().status.on_request.ports, sleeper.status.on_request.ports) << "the numbers stay its own";
}

TEST_F(OnRequestTest, ALastWordThatItSleepIsNotOverriddenByAnEarlierRequest) {
  Start();
  MakeActivatorPod(true);
  MakeService();
  MakeSleeper();
  const std::jthread running = RunActivator();
  ASSERT_TRUE(Eventually([&] { return Sleeper().status.phase == api::SuspendPhase::kSuspended && Leads(); }, kLimit));
  hands_->no_room = true;
  const int port = Sleeper().status.on_request.ports[0].number;
  ASSERT_TRUE(Eventually([&] { return !Ask(port, "GET /.holdfast/status HTTP/1.1\r\n\r\n").empty(); }, kLimit));
  EXPECT_TRUE(Ask(port, "GET /api HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
  ASSERT_FALSE(Sleeper().spec.suspended);
  ASSERT_TRUE(
      client().Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"spec", {{"state", "Suspended"}}}}).ok());
  // Time enough for who would say it again: nothing comes any more that asks for it.
  const MonoTime until = Clock::Real().Mono() + seconds(2);
  EXPECT_FALSE(Eventually([&] { return !Sleeper().spec.suspended || Clock::Real().Mono() > until; }) && !Sleeper().spec.suspended);
}

TEST_F(OnRequestTest, WhoeverIsReadyIsWhereItLeads) {
  Start();
  MakeService();
  MakeSleeper();
  ASSERT_TRUE(Eventually([&] { return Reason() == "NoActivator"; }, kLimit));
  EXPECT_FALSE(Slice());
  MakeActivatorPod(true);
  ASSERT_TRUE(Eventually([&] { return Reason() == "Ready" && Leads(); }, kLimit));
  MakeActivatorPod(false);
  EXPECT_TRUE(Eventually([&] { return Reason() == "NoActivator" && !Slice(); }, kLimit));
}

TEST_F(OnRequestTest, ASliceThatSomebodyDeletedIsMadeAgain) {
  Start();
  MakeActivatorPod(true);
  MakeService();
  MakeSleeper();
  ASSERT_TRUE(Eventually([&] { return Leads(); }, kLimit));
  const std::string uid = Slice()->meta.uid;
  ASSERT_TRUE(client().Delete(kube::EndpointSlice::kResource, ns_, "web-holdfast").ok());
  EXPECT_TRUE(Eventually([&] { return Leads() && Slice()->meta.uid != uid; }, kLimit));
}

TEST_F(OnRequestTest, OfTwoThatNameOneServiceTheFirstHasIt) {
  Start();
  MakeActivatorPod(true);
  MakeService();
  MakeSleeper("nb", "Running");
  ASSERT_TRUE(Eventually([&] { return Reason() == "Ready"; }, kLimit));
  // Creation times have seconds.
  ASSERT_TRUE(Eventually([&, since = Clock::Real().Mono()] { return Clock::Real().Mono() - since > seconds(1); }));
  MakeSleeper("other", "Running");
  EXPECT_TRUE(Eventually([&] { return Reason("other") == "Conflict"; }, kLimit));
  EXPECT_TRUE(Sleeper("other").status.on_request.ports.empty());
  ASSERT_TRUE(client().Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
  EXPECT_TRUE(Eventually([&] { return Reason("other") == "Ready"; }, kLimit));
}

TEST_F(OnRequestTest, WhatASleeperSavesIsToldByThePrices) {
  Start();
  MakeSleeper();
  ASSERT_TRUE(Eventually([&] { return Sleeper().status.phase == api::SuspendPhase::kSuspended; }, kLimit));
  auto read = client().Get(api::SuspendedWorkload::kResource, ns_, "nb");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(GetString(*read, {"status", "freed", "costPerHour"}).ends_with(" EUR")) << *read;
}

}  // namespace
}  // namespace holdfast::testing
