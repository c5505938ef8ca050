// The checkpoint stores of an installation: holdfast-store servers, each with a volume of its own. A checkpoint is in one of them, which
// status.manifest.store names; the flag --store-url says where each of them is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast::api {

inline constexpr char kDefaultStore[] = "default";  // the one that there always was; others may have come beside it
inline constexpr char kAdoptedStore[] = "store";    // what Checkpoints made anew once said in its place
inline constexpr size_t kMaxStores = 32;

struct StoreAddress {
  std::string name;  // a DNS label
  std::string url;   // https://host:port
  bool operator==(const StoreAddress&) const = default;
};

// From values of --store-url: each NAME=URL, or a URL alone, whose name is "default". kInvalidArgument: which one cannot be used, and why.
Result<std::vector<StoreAddress>> ParseStores(const std::vector<std::string>& flags);

// Where the checkpoints of a workload ("Deployment/web") go: all of `stores`, the first choice first. By rendezvous hashing of the names
// alone, so every agent says the same: a further store takes over its share of the workloads from all others, and one that goes leaves
// the order of the rest as it is.
std::vector<std::string> StoresFor(std::vector<std::string> stores, std::string_view ns, std::string_view workload);

}  // namespace holdfast::api
