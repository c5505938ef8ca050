#include "agent/node_label.h"

#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr char kReason[] = "holdfast.dev/reason";
constexpr char kVersion[] = "holdfast.dev/version";
constexpr Duration kLookAgain = std::chrono::seconds(60);
constexpr Duration kTryAgain = std::chrono::seconds(2);

}  // namespace

Json ReadyIntent(const Json& versions) {
  Json annotations = versions;
  annotations[kVersion] = HOLDFAST_VERSION;
  return {{"metadata", {{"labels", {{api::kNodeReady, "ready"}}}, {"annotations", annotations}}}};
}

Json UnsupportedIntent(const std::string& reason) {
  return {
      {"metadata", {{"labels", {{api::kNodeReady, "unsupported"}}}, {"annotations", {{kReason, reason}, {kVersion, HOLDFAST_VERSION}}}}}};
}

Json UninstalledPatch() {
  Json annotations = Json::object();
  for (const char* key : {kReason, kVersion, "holdfast.dev/runtime-version", "holdfast.dev/runc-version", "holdfast.dev/criu-version",
                          "holdfast.dev/criu-check"}) {
    annotations[key] = nullptr;
  }
  return {{"metadata", {{"labels", {{api::kNodeReady, nullptr}}}, {"annotations", annotations}}}};
}

NodeKeeper::NodeKeeper(Installer& installer, KubeCluster& cluster, std::string node_name, Clock& clock)
    : installer_(installer), cluster_(cluster), node_name_(std::move(node_name)), clock_(clock) {}

void NodeKeeper::Run(std::stop_token stop) {
  while (clock_.Sleep(Once(stop), stop)) {
  }
}

Duration NodeKeeper::Once(std::stop_token stop) {
  Status installed = installer_.Install(stop);
  Result<Json> versions = installed.ok() ? installer_.Probe() : Result<Json>(installed);
  if (stop.stop_requested()) return kTryAgain;
  const bool later = versions.status().code() == Code::kUnavailable || versions.status().code() == Code::kDeadlineExceeded;
  if (!versions.ok() && told_ != versions.status().message()) {
    told_ = versions.status().message();
    LogWarning(later ? "the node is not ready yet" : "the node cannot be used", {{"reason", told_}});
    cluster_.NodeEvent(true, node_name_, later ? "HoldfastWaiting" : "HoldfastUnsupported", told_);
  }
  if (!versions.ok() && later) return kTryAgain;
  Status patched =
      cluster_.ApplyToNode(node_name_, versions.ok() ? ReadyIntent(*versions) : UnsupportedIntent(versions.status().message()));
  if (!patched.ok()) {
    LogWarning("cannot label the node", {{"node", node_name_}, {"error", patched.message()}});
    return kTryAgain;
  }
  if (versions.ok() && (!settled_ || !told_.empty())) {
    LogInfo("the node is ready", {{"node", node_name_}, {"versions", *versions}});
    told_.clear();
  }
  settled_ = true;
  return kLookAgain;
}

}  // namespace holdfast::agent
