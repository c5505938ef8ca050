// How much the GPUs of this node's pods are used, as NVIDIA's DCGM exporter says it: Prometheus' text format, with the labels `namespace`
// and `pod` that it adds where it is told to (DCGM_EXPORTER_KUBERNETES=true, as its chart and the GPU operator have it).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "agent/meter.h"
#include "kube/http.h"

namespace holdfast::agent {

// By pod (namespace/name), from DCGM_FI_DEV_GPU_UTIL (percent) and DCGM_FI_PROF_GR_ENGINE_ACTIVE (0 to 1, which MIG devices have, too). A
// device of which both are known counts with the greater. What is malformed is left out: its pod has a device less.
std::map<std::string, GpuUse> GpuUseFrom(std::string_view metrics);

// Thread-safe.
class GpuMetrics {
 public:
  // `url`: http(s)://host:port/path of the exporter of this node.
  GpuMetrics(std::unique_ptr<kube::Transport> transport, std::string url, Clock& clock);
  // The page is read at most every few seconds, however many pods are asked for. kNotFound: it does not name the pod.
  Result<GpuUse> Of(const std::string& pod);

 private:
  Result<std::map<std::string, GpuUse>> Read();

  const std::unique_ptr<kube::Transport> transport_;
  const std::string url_;
  Clock& clock_;
  std::mutex mutex_;
  std::optional<MonoTime> read_at_;
  Result<std::map<std::string, GpuUse>> read_ = Status(Code::kUnavailable, "not read yet");
};

}  // namespace holdfast::agent
