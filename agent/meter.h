// How much a container is used. HostMeter looks at the node; tests have a fake. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::agent {

class GpuMetrics;
class HostNode;

struct JupyterUse {
  std::string busy;  // what computes now, for people; empty: nothing does
  std::optional<WallTime> last_activity;
};

struct GpuUse {
  int devices = 0;     // that are measured
  double percent = 0;  // of the one that is used most
};

class Meter {
 public:
  virtual ~Meter() = default;
  // CPU time that all processes of the container have used since it was made.
  virtual Result<Duration> CpuTime(const std::string& container_id) = 0;
  // Of the Jupyter server that runs in one of these containers of a pod. Takes a few seconds at most.
  virtual Result<JupyterUse> Jupyter(const std::vector<std::string>& container_ids, const std::string& pod_ip) = 0;
  // Of all GPUs of a pod (namespace/name). Takes a few seconds at most.
  virtual Result<GpuUse> Gpu(const std::string& pod) = 0;
};

class HostMeter final : public Meter {
 public:
  // `gpus` null: nothing here tells how GPUs are used.
  HostMeter(const HostNode& node, std::string runc_root, GpuMetrics* gpus) : node_(node), runc_root_(std::move(runc_root)), gpus_(gpus) {}
  Result<Duration> CpuTime(const std::string& container_id) override;
  Result<JupyterUse> Jupyter(const std::vector<std::string>& container_ids, const std::string& pod_ip) override;
  Result<GpuUse> Gpu(const std::string& pod) override;

 private:
  Result<std::string> CgroupOf(const std::string& container_id, bool* unified) const;
  const HostNode& node_;
  const std::string runc_root_;
  GpuMetrics* const gpus_;
};

// The CPU time in a cgroup's folder: cpuacct.usage of v1, or cpu.stat of v2 (`unified`).
Result<Duration> ReadCpuTime(const std::string& folder, bool unified);

}  // namespace holdfast::agent
