#include "agent/meter.h"

#include <charconv>

#include "agent/gpu_metrics.h"
#include "agent/host_node.h"
#include "agent/jupyter.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxStateBytes = 4 << 20, kMaxCounterBytes = 64 << 10;
constexpr size_t kMaxProcesses = 256;  // of a container, that are looked at for a Jupyter server

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Result<Duration> ReadCpuTime(const std::string& folder, bool unified) {
  const std::string path = folder + (unified ? "/cpu.stat" : "/cpuacct.usage");
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxCounterBytes));
  std::string_view value = text;
  if (unified) {
    constexpr std::string_view kKey = "usage_usec ";
    const size_t at = text.starts_with(kKey) ? 0 : text.find("\n" + std::string(kKey));
    if (at == std::string::npos) return Status(Code::kUnsupported, path + " has no usage_usec");
    value.remove_prefix(at + (at == 0 ? 0 : 1) + kKey.size());
  }
  const auto number = Number(value);
  if (!number) return Status(Code::kUnsupported, path + " holds no number");
  if (!unified) return Duration(std::chrono::nanoseconds(*number));
  return Duration(std::chrono::microseconds(std::min<int64_t>(*number, INT64_MAX / 1000)));
}

// As runc says, whichever driver made it.
Result<std::string> HostMeter::CgroupOf(const std::string& id, bool* unified) const {
  if (!IsSafeName(id)) return Status(Code::kInvalidArgument, "unsafe container id");
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(node_.Path(runc_root_ + "/" + id + "/state.json"), kMaxStateBytes));
  HF_ASSIGN_OR_RETURN(const Json state, ParseJson(text));
  const std::string v1 = GetString(state, {"cgroup_paths", "cpuacct"}), v2 = GetString(state, {"cgroup_paths", ""});
  *unified = v1.empty();
  if (v1.empty() && v2.empty()) return Status(Code::kUnsupported, "runc names no cgroup that counts CPU time");
  return node_.Path(v1.empty() ? v2 : v1);
}

Result<Duration> HostMeter::CpuTime(const std::string& id) {
  bool unified = false;
  HF_ASSIGN_OR_RETURN(const std::string folder, CgroupOf(id, &unified));
  return ReadCpuTime(folder, unified);
}

Result<JupyterUse> HostMeter::Jupyter(const std::vector<std::string>& ids, const std::string& pod_ip) {
  std::vector<int> pids;
  for (const std::string& id : ids) {
    bool unified = false;
    HF_ASSIGN_OR_RETURN(const std::string folder, CgroupOf(id, &unified));
    HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/cgroup.procs", kMaxStateBytes));
    for (size_t at = 0; at < text.size() && pids.size() < kMaxProcesses;) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (const auto pid = Number(std::string_view(text).substr(at, end - at)); pid && *pid > 0) pids.push_back(static_cast<int>(*pid));
      at = end + 1;
    }
  }
  return AskJupyter(pids, pod_ip);
}

Result<GpuUse> HostMeter::Gpu(const std::string& pod) {
  if (gpus_ == nullptr) {
    return Status(
        Code::kUnsupported,
        "this agent knows no metrics of GPUs: set the chart's value agent.gpuMetrics.url (--gpu-metrics-url) to the DCGM exporter");
  }
  return gpus_->Of(pod);
}

}  // namespace holdfast::agent
