// NVIDIA GPUs. CRIU's cuda plugin has the node's cuda-checkpoint take a process's device memory into the process before its dump (lock,
// checkpoint), and put it back after the dump or restore (restore, unlock). Here is what has to be looked at before, told to CRIU, and
// mended when it was cut off half way. For that CRIU thaws the container's cgroup, holds the processes by ptrace instead, and freezes it
// again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "runtime/node.h"
#include "runtime/protocol.h"

namespace holdfast::runtime {

inline constexpr char kGpuFile[] = "gpu.json";
inline constexpr Duration kGpuBackWithin = std::chrono::seconds(60);

// What a container's processes hold: <container>/gpu.json of a checkpoint.
struct GpuUse {
  std::string product, driver;     // "NVIDIA H100 80GB HBM3", "570.86.15"
  std::vector<std::string> uuids;  // in the order of the devices' numbers
  Json ToJson() const;
  static Result<GpuUse> FromJson(const Json& json);
};

class Gpu {
 public:
  explicit Gpu(const Node& node, std::string proc = "/proc") : node_(node), proc_(std::move(proc)) {}

  // Can they be dumped? Nothing: no process holds a GPU. kUnsupported: why not, and what to do.
  Result<std::optional<GpuUse>> Examine(const std::vector<int>& pids) const;
  // Lines for CRIU's configuration. `left`: how long a lock may wait for work that was already given to the GPU.
  std::string CriuOptions(Duration left) const;
  // Environment of a restore into the container of this OCI spec: which GPU takes the place of which (CUDA's words: OLD=NEW,OLD=NEW;
  // nothing when they are the same ones), and its device nodes, since /dev comes back as it was. kUnsupported when it or its node lacks
  // something.
  Result<std::vector<std::pair<std::string, std::string>>> RestoreEnvironment(const GpuUse& was, const Json& spec) const;
  // Whatever a killed dump left locked or checkpointed runs on its GPU again. The processes must not be frozen. OK where there is nothing
  // to do.
  Status Release(const std::vector<int>& pids, MonoTime deadline) const;
  // After a restore, whose plugin's failures CRIU passes over: kInternal when a process does not have its GPU back.
  Status AllRunning(const std::vector<int>& pids) const;
  // For `holdfast-runc check`. Nothing where the node has no NVIDIA driver.
  std::optional<NodeCheck> Check() const;

 private:
  struct Device {
    int number;
    std::string uuid, product;
  };
  struct Driver {
    std::string version;
    std::vector<Device> devices;
  };
  Result<Driver> ReadDriver() const;
  Result<std::string> Help() const;  // of cuda-checkpoint
  Result<std::string> Ask(const std::vector<std::string>& args, Duration timeout) const;
  std::optional<std::string> StateOf(int pid, Duration timeout) const;  // nothing: no CUDA process
  Status FitsIntoHost(const std::vector<int>& pids) const;

  const Node& node_;
  const std::string proc_;
};

}  // namespace holdfast::runtime
