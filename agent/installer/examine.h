// Whether this node can checkpoint and restore, looked at one thing at a time. The node's label and annotations and `holdfast-agent doctor`
// come from here and nowhere else.
#pragma once

#include <vector>

#include "agent/installer/host.h"
#include "base/json.h"
#include "runtime/protocol.h"

namespace holdfast::agent {

struct NodeReport {
  std::vector<runtime::NodeCheck> checks;
  Json versions = Json::object();  // for the node's annotations; null: to be removed

  bool usable() const;
  // Of the first that fails: kUnsupported, or kUnavailable when all that fail may end by themselves.
  Status status() const;
};

// Changes nothing on the node. Every program that it runs has a time limit of its own, and all of them together `within`.
NodeReport Examine(Host& host, Clock& clock, const std::string& state_dir, Duration within = std::chrono::seconds(60));

// Did this containerd start after what was written for it? Changes to config.toml by others are theirs to bring into effect.
bool HasRead(Host& host, const ContainerdProcess& containerd);
Result<std::string> ConfigDump(Host& host, Duration timeout);
// Where the node's containerd finds `criu`; empty: nowhere, so it refuses checkpoints that the kubelet asks for.
std::string CriuInPath(Host& host, const ContainerdProcess& containerd);

std::string FirstLine(const std::string& text);  // of what a program says, at most 500 bytes

inline constexpr char kCriuLink[] = "/usr/local/bin/criu";
inline constexpr char kCriu[] = "/opt/holdfast/criu/criu";

}  // namespace holdfast::agent
