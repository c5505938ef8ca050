#include "agent/gpu_metrics.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace holdfast::agent {
namespace {

// As the exporter 3.3 writes it.
constexpr char kPage[] = R"(# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="n1",container="c",namespace="lab",pod="nb-0"} 345
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pci_bus_id="00000000:04:00.0",device="nvidia0",modelName="NVIDIA H100",Hostname="n1",container="c",namespace="lab",pod="nb-0"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1",modelName="a \"name\", with a }",Hostname="n1",container="c",namespace="lab",pod="nb-0"} 37
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-c",device="nvidia2",modelName="NVIDIA H100",Hostname="n1",container="",namespace="",pod=""} 99
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="n1",container="c",namespace="lab",pod="nb-0"} 0.415
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3",UUID="GPU-d",device="nvidia3",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",namespace="lab",pod="mig"} 0.25 1700000000000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3",UUID="GPU-d",device="nvidia3",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8",namespace="lab",pod="mig"} 0.010
)";

TEST(GpuUseFrom, CountsEachDeviceOfAPodAndTakesTheOneThatIsUsedMost) {
  const auto uses = GpuUseFrom(kPage);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses.at("lab/nb-0").devices, 2);
  EXPECT_DOUBLE_EQ(uses.at("lab/nb-0").percent, 41.5);
  EXPECT_EQ(uses.at("lab/mig").devices, 2);
  EXPECT_DOUBLE_EQ(uses.at("lab/mig").percent, 25);
}

TEST(GpuUseFrom, WhatIsMalformedIsNotADeviceThatIsQuiet) {
  for (const char* line :
       {R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb"} NaN)", R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb"} -1)",
        R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb"} 101)", R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb"})",
        R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb"} 5x)", R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb)",
        R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",namespace="lab",pod="nb\)", R"(DCGM_FI_DEV_GPU_UTIL{namespace="lab",pod="nb"} 5)",
        R"(DCGM_FI_DEV_GPU_UTIL{UUID="a",pod="nb"} 5)", R"(DCGM_FI_DEV_GPU_UTIL_OTHER{UUID="a",namespace="lab",pod="nb"} 5)",
        "DCGM_FI_DEV_GPU_UTIL 5", "DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_GPU_UTIL{=\"", "\n\n", "<html>"}) {
    EXPECT_TRUE(GpuUseFrom(line).empty()) << line;
  }
}

class Exporter final : public kube::Transport {
 public:
  Result<kube::HttpResponse> answer = Status(Code::kUnavailable, "connection refused");
  int asked = 0;
  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token) override {
    EXPECT_EQ(request.path, "http://127.0.0.1:9400/metrics");
    ++asked;
    return answer;
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
    return Status(Code::kInternal, "a page is no stream");
  }
};

class GpuMetricsTest : public testing::Test {
 protected:
  FakeClock clock;
  Exporter* exporter = new Exporter;  // `metrics` owns it
  GpuMetrics metrics{std::unique_ptr<kube::Transport>(exporter), "http://127.0.0.1:9400/metrics", clock};
};

TEST_F(GpuMetricsTest, OnePageServesAllPodsForSomeSeconds) {
  exporter->answer = kube::HttpResponse{.status = 200, .body = kPage};
  ASSERT_TRUE(metrics.Of("lab/nb-0").ok());
  EXPECT_EQ(metrics.Of("lab/mig")->devices, 2);
  EXPECT_EQ(metrics.Of("lab/other").status().code(), Code::kNotFound);
  EXPECT_EQ(exporter->asked, 1);
  clock.Advance(std::chrono::seconds(6));
  exporter->answer->body.clear();
  EXPECT_EQ(metrics.Of("lab/nb-0").status().code(), Code::kNotFound) << "nothing of an earlier page is believed";
  EXPECT_EQ(exporter->asked, 2);
}

TEST_F(GpuMetricsTest, AnExporterThatDoesNotAnswerIsNamedAndNotAskedForEveryPod) {
  for (int i = 0; i < 3; ++i) {
    const auto use = metrics.Of("lab/nb-0");
    ASSERT_FALSE(use.ok());
    EXPECT_NE(use.status().message().find("http://127.0.0.1:9400/metrics: connection refused"), std::string::npos)
        << use.status().message();
  }
  EXPECT_EQ(exporter->asked, 1);
  clock.Advance(std::chrono::seconds(6));
  exporter->answer = kube::HttpResponse{.status = 503, .body = kPage};
  EXPECT_EQ(metrics.Of("lab/nb-0").status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace holdfast::agent
