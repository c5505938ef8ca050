// What a checkpoint's processes may have begun to use of their node's processor, and which other nodes have it. Features are the kernel's
// names of them (/proc/cpuinfo), sorted, with one space between.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::api {

inline constexpr char kCpu[] = "holdfast.dev/cpu";                   // node label: the level of the x86-64 psABI, for people
inline constexpr char kCpuSet[] = "holdfast.dev/cpu-set";            // node label: FeatureSet of the annotation
inline constexpr char kCpuFeatures[] = "holdfast.dev/cpu-features";  // node annotation

// Those of `needs` that `has` lacks.
std::string MissingFeatures(std::string_view needs, std::string_view has);
// 16 hex digits (FNV-1a, 64 bit): the same for the same features. Empty for none.
std::string FeatureSet(std::string_view features);

}  // namespace holdfast::api
