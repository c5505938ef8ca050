// This node's kubelet over HTTPS, with our service account's token: it needs `create` on nodes/checkpoint and nothing else.
#pragma once

#include <memory>

#include "agent/node.h"
#include "kube/http.h"

namespace holdfast::agent {

class HttpKubelet final : public Kubelet {
 public:
  // `transport` verifies the kubelet's certificate and adds the token; `address` is https://<node's address>:<port>; `root`: how we reach
  // the node's root directory, put before the path of what it wrote.
  HttpKubelet(std::unique_ptr<kube::Transport> transport, std::string address, std::string root);
  Result<std::string> Checkpoint(const std::string& ns, const std::string& pod, const std::string& container, Duration timeout,
                                 std::stop_token stop) override;

 private:
  std::unique_ptr<kube::Transport> transport_;
  const std::string address_, root_;
};

// What the kubelet's answer means. The archive must lie in `<kubelet root>/checkpoints/`.
Result<std::string> ReadCheckpointAnswer(const kube::HttpResponse& response);

}  // namespace holdfast::agent
