#include "agent/http_kubelet.h"

#include "base/file.h"

namespace holdfast::agent {

HttpKubelet::HttpKubelet(std::unique_ptr<kube::Transport> transport, std::string address, std::string root)
    : transport_(std::move(transport)), address_(std::move(address)), root_(std::move(root)) {}

Result<std::string> HttpKubelet::Checkpoint(const std::string& ns, const std::string& pod, const std::string& container, Duration timeout,
                                            std::stop_token stop) {
  if (!IsSafeName(ns) || !IsSafeName(pod) || !IsSafeName(container)) return Status(Code::kInvalidArgument, "a name is no path component");
  kube::HttpRequest request;
  request.method = "POST";
  request.path = address_ + "/checkpoint/" + ns + "/" + pod + "/" + container;
  request.timeout = timeout;
  request.max_body_bytes = 1 << 20;
  Result<kube::HttpResponse> response = transport_->Send(request, stop);
  if (!response.ok()) return response.status().With("the kubelet at " + address_);
  HF_ASSIGN_OR_RETURN(std::string path, ReadCheckpointAnswer(*response));
  return root_ + path;
}

Result<std::string> ReadCheckpointAnswer(const kube::HttpResponse& response) {
  const std::string said = response.body.substr(0, 1000);
  switch (response.status) {
    case 200:
      break;
    case 401:
    case 403:
      return Status(Code::kPermissionDenied, "the kubelet refuses us: is create on nodes/checkpoint allowed? " + said);
    case 404:
      // Also its answer for a pod that it does not know, with a text; without the feature there is none of ours.
      if (said.find("404 page not found") != std::string::npos) {
        return Status(Code::kUnsupported, "this kubelet has no checkpoint call (feature gate ContainerCheckpoint)");
      }
      return Status(Code::kNotFound, "the kubelet does not know the container: " + said);
    default:
      return Status(Code::kInternal, "the kubelet answered " + std::to_string(response.status) + ": " + said);
  }
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(response.body));
  const Json& items = GetArray(json, {"items"});
  if (!items.is_array() || items.size() != 1 || !items[0].is_string())
    return Status(Code::kInternal, "the kubelet's answer names no archive: " + said);
  const std::string path = items[0].get<std::string>();
  const size_t slash = path.rfind('/');
  if (!path.starts_with('/') || !path.substr(0, slash).ends_with("/checkpoints") || path.find("/../") != std::string::npos ||
      !IsSafeName(path.substr(slash + 1))) {
    return Status(Code::kInternal, "the kubelet names an archive in an unexpected place: " + path);
  }
  return path;
}

}  // namespace holdfast::agent
