// A client of the shared API server, in a namespace of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include "kube/client.h"
#include "kube/objects.h"
#include "tests/eventually.h"
#include "tests/integration/api_server.h"

namespace holdfast::kube {

using testing::Eventually;

class KubeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static std::atomic<int> count{0};
    ns_ = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    Result<Json> made =
        client_.Create(Namespace::kResource, "", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns_}}}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }

  static Json ConfigMap(const std::string& name, const std::string& value) {
    return {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", {{"key", value}}}};
  }

  static Json PodObject(const std::string& name) {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name}, {"labels", {{"app", "web"}}}}},
            {"spec", {{"containers", {{{"name", "main"}, {"image", "registry.invalid/none"}}}}, {"nodeName", "node-a"}}}};
  }

  Client client_{MakeCurlTransport(testing::ApiServer::Shared().config())};
  std::string ns_;
};

}  // namespace holdfast::kube
