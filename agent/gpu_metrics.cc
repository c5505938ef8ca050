#include "agent/gpu_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace holdfast::agent {
namespace {

using std::chrono::seconds;

constexpr Duration kReadEvery = seconds(5), kPatience = seconds(4);  // the exporter itself looks every 30 s unless told otherwise
constexpr size_t kMaxPage = 16 << 20;
constexpr std::string_view kUtil = "DCGM_FI_DEV_GPU_UTIL", kEngine = "DCGM_FI_PROF_GR_ENGINE_ACTIVE";

// NAME{label="value",…} VALUE, as https://prometheus.io/docs/instrumenting/exposition_formats has it; none of the labels that are asked for
// here can have an escape in its value.
struct Sample {
  std::string_view name, value;
  std::map<std::string_view, std::string_view> labels;
  std::string_view Label(std::string_view label) const {
    const auto at = labels.find(label);
    return at == labels.end() ? std::string_view() : at->second;
  }
};

std::optional<Sample> SampleFrom(std::string_view line) {
  Sample sample;
  const size_t brace = line.find('{');
  if (brace == std::string_view::npos) return std::nullopt;
  sample.name = line.substr(0, brace);
  line.remove_prefix(brace + 1);
  while (!line.starts_with('}')) {
    const size_t equals = line.find("=\"");
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view label = line.substr(0, equals);
    line.remove_prefix(equals + 2);
    size_t end = 0;
    while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
    if (end >= line.size()) return std::nullopt;
    sample.labels.emplace(label, line.substr(0, end));
    line.remove_prefix(end + 1);
    if (line.starts_with(',')) line.remove_prefix(1);
  }
  line.remove_prefix(1);
  while (line.starts_with(' ')) line.remove_prefix(1);
  sample.value = line.substr(0, line.find_first_of(" \r"));
  return sample;
}

// Percent; nothing: no such number.
std::optional<double> PercentOf(const Sample& sample) {
  double value = 0;
  const auto [end, error] = std::from_chars(sample.value.data(), sample.value.data() + sample.value.size(), value);
  if (error != std::errc() || end != sample.value.data() + sample.value.size()) return std::nullopt;
  if (sample.name == kEngine) value *= 100;
  if (!(value >= 0 && value <= 100)) return std::nullopt;  // NaN, too
  return value;
}

}  // namespace

std::map<std::string, GpuUse> GpuUseFrom(std::string_view metrics) {
  std::map<std::string, GpuUse> uses;
  std::set<std::pair<std::string, std::string>> devices;  // of which pods
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    if (!line.starts_with(kUtil) && !line.starts_with(kEngine)) continue;
    const auto sample = SampleFrom(line);
    if (!sample || (sample->name != kUtil && sample->name != kEngine)) continue;
    const std::string_view ns = sample->Label("namespace"), pod = sample->Label("pod"), uuid = sample->Label("UUID");
    const auto percent = PercentOf(*sample);
    if (!percent || ns.empty() || pod.empty() || uuid.empty()) continue;
    const std::string key = std::string(ns) + "/" + std::string(pod);
    GpuUse& use = uses[key];
    use.percent = std::max(use.percent, *percent);
    use.devices += devices.emplace(key, std::string(uuid) + "/" + std::string(sample->Label("GPU_I_ID"))).second ? 1 : 0;
  }
  return uses;
}

GpuMetrics::GpuMetrics(std::unique_ptr<kube::Transport> transport, std::string url, Clock& clock)
    : transport_(std::move(transport)), url_(std::move(url)), clock_(clock) {}

Result<std::map<std::string, GpuUse>> GpuMetrics::Read() {
  kube::HttpRequest request;
  request.path = url_;
  request.timeout = kPatience;
  request.max_body_bytes = kMaxPage;
  const Result<kube::HttpResponse> response = transport_->Send(request, {});
  if (!response.ok()) return response.status().With("the GPUs' metrics at " + url_);
  if (response->status != 200)
    return Status(Code::kUnavailable, "the GPUs' metrics at " + url_ + ": the answer is " + std::to_string(response->status));
  return GpuUseFrom(response->body);
}

Result<GpuUse> GpuMetrics::Of(const std::string& pod) {
  std::lock_guard lock(mutex_);
  if (const MonoTime now = clock_.Mono(); !read_at_ || now - *read_at_ >= kReadEvery) {
    read_ = Read();
    read_at_ = now;
  }
  if (!read_.ok()) return read_.status();
  const auto at = read_->find(pod);
  if (at == read_->end())
    return Status(Code::kNotFound,
                  "the metrics at " + url_ + " name no GPU of it: are they those of its node, with the labels namespace and pod?");
  return at->second;
}

}  // namespace holdfast::agent
