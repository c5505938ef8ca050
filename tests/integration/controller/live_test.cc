// Hole 14: what a real API server is asked, and answers, before a pod starts cold in a namespace that has many Checkpoints.
#include "reconcilers/claim/live.h"

#include "tests/integration/controller/cluster.h"

namespace holdfast::testing {
namespace {

// Counts the bytes of lists. As of a CRD of an earlier release, fields but nodeName are not known to the API server.
class Counting final : public kube::Transport {
 public:
  explicit Counting(std::shared_ptr<kube::Transport> api_server) : api_server_(std::move(api_server)) {}
  size_t bytes = 0, lists = 0;
  bool earlier_crd = false;

  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override {
    return api_server_->Send(request, stop);
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override {
    ++lists;
    kube::HttpRequest asked = request;
    const std::string fields = "fieldSelector=status.";
    if (const size_t at = asked.path.find(fields); earlier_crd && at != std::string::npos)
      asked.path.replace(at, fields.size(), "fieldSelector=status.no");
    auto count = [&](std::string_view chunk) {
      bytes += chunk.size();
      return on_chunk(chunk);
    };
    return api_server_->Stream(asked, count, stop);
  }

 private:
  const std::shared_ptr<kube::Transport> api_server_;
};

class LiveTest : public ::testing::Test {
 protected:
  // The leaders of other tests would take over what is left.
  void TearDown() override {
    for (const api::Checkpoint& c : cluster_.Checkpoints(ns_))
      EXPECT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, c.meta.name).ok());
  }
  // Assigned, where it has an owner.
  void Make(const std::string& name, const std::string& pod_uid, const std::string& owner) {
    auto made =
        cluster_.client().Create(api::Checkpoint::kResource, ns_,
                                 {{"apiVersion", "holdfast.dev/v1alpha1"},
                                  {"kind", "Checkpoint"},
                                  {"metadata", {{"name", name}}},
                                  {"spec", {{"podRef", {{"name", "p"}, {"uid", pod_uid}}}, {"final", true}, {"trigger", "Drain"}}}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    if (owner.empty()) return;
    const Status written =
        cluster_.PatchCheckpoint(api::Checkpoint::FromJson(*made),
                                 {{"status",
                                   {{"phase", "Assigned"},
                                    {"nodeName", "node-a"},
                                    {"podUID", pod_uid},
                                    {"owner", {{"kind", "Deployment"}, {"name", "web"}, {"uid", owner}, {"templateHash", "1"}}}}}});
    ASSERT_TRUE(written.ok()) << written.ToString();
  }
  static std::string Uid(int i) {
    char text[64];
    snprintf(text, sizeof text, "00000000-0000-4000-8000-%012d", i);
    return text;
  }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
};

TEST_F(LiveTest, WhatAColdStartReadsGrowsWithItsWorkloadAloneAndNotWithItsNamespace) {
  for (int i = 100; i < 160; ++i) Make("other-" + std::to_string(i), Uid(i), Uid(1000 + i));
  Make("own", Uid(1), Uid(2));
  Make("stop", Uid(3), "");
  const auto transport = std::make_shared<Counting>(kube::MakeCurlTransport(ApiServer::Shared().config()));
  kube::Client client(transport);
  reconcilers::claim::World world;
  kube::Pod pod, stopping;
  pod.meta.ns = stopping.meta.ns = ns_;
  pod.meta.uid = Uid(9);
  stopping.meta.uid = Uid(3);
  world.pod = std::make_shared<const kube::Pod>(pod);
  world.stopping = {std::make_shared<const kube::Pod>(stopping)};
  world.lineage.owner.uid = Uid(2);
  auto names = [&] {
    auto found = reconcilers::claim::LiveCheckpoints(client, world, {});
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    std::vector<std::string> list;
    for (const auto& c : found.value_or({})) list.push_back(c->meta.name);
    return list;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"own", "stop"}));
  const size_t selected = transport->bytes;
  EXPECT_EQ(transport->lists, 3U);
  transport->bytes = 0;
  transport->earlier_crd = true;
  EXPECT_EQ(names(), (std::vector<std::string>{"own", "stop"})) << "nothing is lost while the CRD is of an earlier release";
  EXPECT_LT(selected, transport->bytes / 8) << "2 Checkpoints of 62";
}

}  // namespace
}  // namespace holdfast::testing
