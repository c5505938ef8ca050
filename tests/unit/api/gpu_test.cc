#include "api/gpu.h"

#include <gtest/gtest.h>

namespace holdfast::api {
namespace {

TEST(Gpu, IsKnownByItsVendorsResources) {
  for (const char* gpu : {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915",
                          "intel.com/gpu", "aliyun.com/gpu-mem"}) {
    EXPECT_TRUE(IsGpu(gpu)) << gpu;
  }
  for (const char* other : {"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "rdma/hca", "intel.com/sriov"}) {
    EXPECT_FALSE(IsGpu(other)) << other;
  }
}

TEST(Gpu, OfAContainerIsWhatItAsksForAtAll) {
  kube::Container container;
  container.limits = {{"cpu", "1"}, {"nvidia.com/gpu", "0"}};
  EXPECT_EQ(GpuOf(container), "");
  container.requests = {{"amd.com/gpu", "2"}};
  EXPECT_EQ(GpuOf(container), "amd.com/gpu");
  EXPECT_EQ(UnsupportedGpuOf(container), "amd.com/gpu");
  container.requests = {{"nvidia.com/gpu", "2"}};
  EXPECT_EQ(GpuOf(container), "nvidia.com/gpu");
  EXPECT_EQ(UnsupportedGpuOf(container), "");
  container.limits = {{"nvidia.com/gpu", "2"}, {"nvidia.com/mig-1g.10gb", "1"}};
  EXPECT_EQ(UnsupportedGpuOf(container), "nvidia.com/mig-1g.10gb") << "a part of one";
  EXPECT_EQ(GpusOf(container), 3) << "a limit is a request";
  container.limits.clear();
  EXPECT_EQ(GpusOf(container), 2);
  container.requests = {{"cpu", "4"}, {"nvidia.com/gpu", "many"}};
  EXPECT_EQ(GpusOf(container), 0);
}

}  // namespace
}  // namespace holdfast::api
