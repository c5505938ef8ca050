#include "api/gpu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "api/restore_policy.h"

namespace holdfast::api {
namespace {

constexpr std::array<std::string_view, 3> kVendors = {"nvidia.com/", "amd.com/", "gpu.intel.com/"};

std::string First(const kube::Container& container, std::string_view but) {
  for (const auto* amounts : {&container.limits, &container.requests}) {
    for (const auto& [resource, amount] : *amounts) {
      if (amount != "0" && IsGpu(resource) && resource != but) return resource;
    }
  }
  return "";
}

}  // namespace

bool IsGpu(std::string_view resource) {
  return std::any_of(kVendors.begin(), kVendors.end(), [&](std::string_view vendor) { return resource.starts_with(vendor); }) ||
         resource.find("gpu") != std::string_view::npos;
}

std::string GpuOf(const kube::Container& container) { return First(container, ""); }

int GpusOf(const kube::Container& container) {
  double gpus = 0;
  // An extended resource's request is its limit.
  for (const auto& [resource, amount] : container.limits.empty() ? container.requests : container.limits) {
    if (IsGpu(resource)) gpus += ParseAmount(amount).value_or(0);
  }
  return static_cast<int>(std::clamp(std::ceil(gpus), 0.0, 1e6));
}

std::string UnsupportedGpuOf(const kube::Container& container) { return First(container, "nvidia.com/gpu"); }

}  // namespace holdfast::api
