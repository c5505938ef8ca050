// What a checkpoint's processes may have begun to use of their node's processor and kernel, and which other nodes have it. Features are the
// kernel's names of them (/proc/cpuinfo), sorted, with one space between.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::api {

inline constexpr char kCpu[] = "holdfast.dev/cpu";                   // node label: the level of the x86-64 psABI, for people
inline constexpr char kCpuSet[] = "holdfast.dev/cpu-set";            // node label: FeatureSet of the annotation
inline constexpr char kCpuFeatures[] = "holdfast.dev/cpu-features";  // node annotation
inline constexpr char kKernel[] = "holdfast.dev/kernel";             // node label: KernelSeries of its kernel

// Those of `needs` that `has` lacks.
std::string MissingFeatures(std::string_view needs, std::string_view has);
// 16 hex digits (FNV-1a, 64 bit): the same for the same features. Empty for none.
std::string FeatureSet(std::string_view features);

// "6.18.3-1-generic" → "6.18". Empty where it does not begin like that.
std::string KernelSeries(std::string_view release);
// Whether what ran under the kernel `then` may go on under `now`: under the same series or a later one. Programs ask once, when they start,
// what their kernel has, and an older one may lack it; within a series nothing is added. One of them unknown: it may.
bool KernelFits(std::string_view then, std::string_view now);

}  // namespace holdfast::api
