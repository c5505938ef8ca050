// What is decided about GPUs before CRIU is asked; tests/integration/runtime/gpu_test.py has the rest.
#include "runtime/gpu.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "temp_dir.h"

namespace holdfast::runtime {
namespace {

using testing::HasSubstr;

class GpuTest : public testing::Test {
 protected:
  GpuTest() {
    node.install = dir.path();
    Driver("570.86.15");
    Put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-a\nDevice Minor: \t 0\n");
    Put("proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-b\nDevice Minor: \t 1\n");
    Program("--action lock | checkpoint");
    Put("criu/plugins/cuda_plugin.so", "");
  }
  void Put(const std::string& name, const std::string& text) {
    const std::string path = dir.path() + "/" + name;
    ASSERT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  void Driver(const std::string& version) {
    Put("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Tue\nGCC version:  gcc version 12.2.0\n");
  }
  void Program(const std::string& help) {
    Put("criu/cuda-checkpoint", "#!/bin/sh\necho '" + help + "'\n");
    ASSERT_EQ(chmod((dir.path() + "/criu/cuda-checkpoint").c_str(), 0755), 0);
  }
  void Holds(const std::string& target) {
    ASSERT_TRUE(MakeDirs(dir.path() + "/proc/7/fd").ok());
    ASSERT_EQ(symlink(target.c_str(), (dir.path() + "/proc/7/fd/" + std::to_string(next_++)).c_str()), 0);
  }
  static Json Spec(std::initializer_list<int> numbers) {
    Json devices = Json::array();
    for (int number : numbers) {
      devices.push_back({{"path", "/dev/nvidia" + std::to_string(number)}, {"type", "c"}, {"major", 195}, {"minor", number}});
    }
    devices.push_back({{"path", "/dev/nvidiactl"}, {"type", "c"}, {"major", 195}, {"minor", 255}});
    devices.push_back({{"path", "/dev/nvidia0;reboot"}, {"type", "c"}});
    return {{"linux", {{"devices", devices}}}};
  }
  std::string Why(const GpuUse& was, const Json& spec) { return gpu.RestoreEnvironment(was, spec).status().message(); }

  TempDir dir;
  Node node;
  Gpu gpu{node, dir.path() + "/proc"};
  const GpuUse was{"NVIDIA H100", "570.86.15", {"GPU-a"}};
  int next_ = 3;
};

TEST_F(GpuTest, AProcessThatHoldsNoneIsNoneOfItsBusiness) {
  Holds("/dev/null");
  Holds("socket:[1]");
  Result<std::optional<GpuUse>> use = gpu.Examine({7, 8});
  ASSERT_TRUE(use.ok());
  EXPECT_FALSE(use->has_value());
}

TEST_F(GpuTest, WhatTheNodeLacksIsSaidBeforeAnythingIsFrozen) {
  Holds("/dev/nvidiactl");
  EXPECT_THAT(gpu.Examine({7}).status().message(), HasSubstr("does not name the GPUs"));
  Holds("/dev/nvidia0");
  Driver("565.57.01");
  EXPECT_THAT(gpu.Examine({7}).status().message(), HasSubstr("checkpoints need 570"));
  Driver("570.86.15");
  Program("--toggle");
  EXPECT_THAT(gpu.Examine({7}).status().message(), HasSubstr("it has no --action"));
  ASSERT_EQ(unlink((dir.path() + "/criu/plugins/cuda_plugin.so").c_str()), 0);
  EXPECT_THAT(gpu.Examine({7}).status().message(), HasSubstr("no CRIU plugin"));
  Put("proc/driver/nvidia/version", "\xff garbage ..... -1");
  EXPECT_THAT(gpu.Examine({7}).status().message(), HasSubstr("no NVIDIA driver"));
  EXPECT_EQ(gpu.Examine({7}).status().code(), Code::kUnsupported);
}

TEST_F(GpuTest, ARestoreNeedsTheSameDriverAndAsManyGpusOfTheSameKind) {
  EXPECT_THAT(Why(was, Spec({})), HasSubstr("needs 1 GPUs, and the new container was given 0"));
  EXPECT_THAT(Why(was, Spec({0, 1})), HasSubstr("given 2"));
  EXPECT_THAT(Why({"NVIDIA A100", "570.86.15", {"GPU-a"}}, Spec({0})), HasSubstr("\"NVIDIA A100\""));
  EXPECT_THAT(Why({"NVIDIA H100", "580.65.06", {"GPU-a"}}, Spec({0})), HasSubstr("driver 580.65.06"));
  EXPECT_THAT(Why(was, Spec({1})), HasSubstr("driver 580 or later"));
  EXPECT_THAT(Why(was, Json("hostile")), HasSubstr("given 0"));
}

TEST_F(GpuTest, TheNewGpusAreNamedInOrder) {
  using Environment = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(*gpu.RestoreEnvironment(was, Spec({0})), (Environment{{"HOLDFAST_CUDA_DEVICES", "nvidia0:195:0 nvidiactl:195:255 "}}));
  Program("--action restore [--device-map <map>]");
  EXPECT_EQ(*gpu.RestoreEnvironment({"NVIDIA H100", "570.86.15", {"GPU-x", "GPU-y"}}, Spec({1, 0})),
            (Environment{{"HOLDFAST_CUDA_DEVICES", "nvidia1:195:1 nvidia0:195:0 nvidiactl:195:255 "},
                         {"HOLDFAST_CUDA_DEVICE_MAP", "GPU-x=GPU-a,GPU-y=GPU-b"}}));
}

TEST_F(GpuTest, AHostileListOfGpusIsNoArgumentOfAProgram) {
  EXPECT_EQ(GpuUse::FromJson(was.ToJson())->uuids, was.uuids);
  const Json hostile[] = {Json::array(),           "GPU-a",         Json::array({"GPU-a,b=c"}), Json::array({"GPU-$(id)"}),
                          Json::array({"--help"}), Json::array({7})};
  for (const Json& uuids : hostile) {
    Json json = was.ToJson();
    json["uuids"] = uuids;
    EXPECT_EQ(GpuUse::FromJson(json).status().code(), Code::kDataLoss) << uuids;
  }
  Json many = was.ToJson();
  many["uuids"] = std::vector<std::string>(65, "GPU-a");
  EXPECT_FALSE(GpuUse::FromJson(many).ok());
  EXPECT_FALSE(GpuUse::FromJson("no object").ok());
}

TEST_F(GpuTest, ANodeWithoutADriverHasNothingToSayAndNothingToGiveBack) {
  EXPECT_EQ(gpu.Check()->seen, "2 NVIDIA GPUs, driver 570.86.15, which restores only onto the same GPUs");
  Driver("550.1");
  EXPECT_EQ(gpu.Check()->verdict, NodeCheck::Verdict::kWarn);
  ASSERT_TRUE(RemoveAll(dir.path() + "/proc/driver").ok());
  EXPECT_FALSE(gpu.Check().has_value());
  EXPECT_TRUE(gpu.Release({7}, Clock::Real().Mono()).ok());
}

}  // namespace
}  // namespace holdfast::runtime
