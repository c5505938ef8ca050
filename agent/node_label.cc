#include "agent/node_label.h"

#include "api/platform.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr char kReason[] = "holdfast.dev/reason";
constexpr char kVersion[] = "holdfast.dev/version";
constexpr Duration kLookAgain = std::chrono::seconds(60);
constexpr Duration kTryAgain = std::chrono::seconds(2);

}  // namespace

Json ReadyIntent(const Json& versions) {
  Json labels = {{api::kNodeReady, "ready"}}, annotations = versions;
  annotations[kVersion] = HOLDFAST_VERSION;
  // Labels, so that pods can ask for a processor, or a checkpoint's successor can avoid one.
  for (const char* key : {api::kCpu, api::kKernel}) {
    if (annotations.contains(key)) labels[key] = annotations[key];
    annotations.erase(key);
  }
  if (annotations.contains(api::kCpuFeatures)) labels[api::kCpuSet] = api::FeatureSet(GetString(annotations, {api::kCpuFeatures}));
  return {{"metadata", {{"labels", labels}, {"annotations", annotations}}}};
}

Json UnsupportedIntent(const std::string& reason) {
  return {
      {"metadata", {{"labels", {{api::kNodeReady, "unsupported"}}}, {"annotations", {{kReason, reason}, {kVersion, HOLDFAST_VERSION}}}}}};
}

Json UninstalledPatch() {
  Json annotations = Json::object();
  for (const char* key : {kReason, kVersion, "holdfast.dev/runtime-version", "holdfast.dev/runc-version", "holdfast.dev/criu-version",
                          "holdfast.dev/criu-check", api::kCpuFeatures}) {
    annotations[key] = nullptr;
  }
  return {{"metadata",
           {{"labels", {{api::kNodeReady, nullptr}, {api::kCpu, nullptr}, {api::kCpuSet, nullptr}, {api::kKernel, nullptr}}},
            {"annotations", annotations}}}};
}

NodeKeeper::NodeKeeper(Installer& installer, KubeCluster& cluster, std::string node_name, Clock& clock)
    : installer_(installer), cluster_(cluster), node_name_(std::move(node_name)), clock_(clock) {}

void NodeKeeper::Run(std::stop_token stop) {
  while (clock_.Sleep(Once(stop), stop)) {
  }
}

Duration NodeKeeper::Once(std::stop_token stop) {
  Status installed = installer_.Install(stop);
  const NodeReport report = installed.ok() ? installer_.Examine() : NodeReport();
  const Status usable = installed.ok() ? report.status() : installed;
  if (stop.stop_requested()) return kTryAgain;
  const bool later = usable.code() == Code::kUnavailable || usable.code() == Code::kDeadlineExceeded;
  if (!usable.ok() && told_ != usable.message()) {
    told_ = usable.message();
    LogWarning(later ? "the node is not ready yet" : "the node cannot be used", {{"reason", told_}});
    cluster_.NodeEvent(true, node_name_, later ? "HoldfastWaiting" : "HoldfastUnsupported", told_);
  }
  if (!usable.ok() && later) return kTryAgain;
  Status patched = cluster_.ApplyToNode(node_name_, usable.ok() ? ReadyIntent(report.versions) : UnsupportedIntent(usable.message()));
  if (!patched.ok()) {
    LogWarning("cannot label the node", {{"node", node_name_}, {"error", patched.message()}});
    return kTryAgain;
  }
  if (usable.ok() && (!settled_ || !told_.empty())) {
    LogInfo("the node is ready", {{"node", node_name_}, {"versions", report.versions}});
    told_.clear();
  }
  settled_ = true;
  return kLookAgain;
}

}  // namespace holdfast::agent
