// Extended resources that stand for a GPU or a part of one, as the vendors' device plugins name them.
#pragma once

#include <string>
#include <string_view>

#include "kube/objects.h"

namespace holdfast::api {

bool IsGpu(std::string_view resource);
// The first such resource that the container asks for; empty: none.
std::string GpuOf(const kube::Container& container);
// How many of them it asks for, of all kinds.
int GpusOf(const kube::Container& container);
// The first one whose memory cannot be checkpointed: all but whole NVIDIA GPUs (runtime/gpu.h). Empty: none.
std::string UnsupportedGpuOf(const kube::Container& container);

}  // namespace holdfast::api
