// Makes this node able to checkpoint and restore: programs, CRIU, containerd's runtime entry, a containerd that has read it, a probe. Every
// step is idempotent and does nothing when it is done already.
#pragma once

#include <functional>

#include "agent/installer/containerd_config.h"
#include "agent/installer/host.h"
#include "base/json.h"

namespace holdfast::agent {

struct InstallerOptions {
  Duration restart_within = std::chrono::seconds(30);
  Duration poll = std::chrono::milliseconds(200);
};

class Installer {
 public:
  // `busy`: true, with the reason, while containerd must not be restarted.
  Installer(Host& host, std::function<bool(std::string* why)> busy, Clock& clock, InstallerOptions options = {});

  // kUnavailable: not now (busy, containerd not up yet), try again. Any other error: this node cannot be used, and why.
  Status Install(std::stop_token stop);
  // Programs answer, and the entry is in effect. Returns versions for annotations.
  Result<Json> Probe();

 private:
  Status InstallCriuLink(const ContainerdProcess& containerd);
  Status InstallConfig();
  Result<std::string> ConfigDump();
  Status Restart(const ContainerdProcess& containerd, std::stop_token stop);
  bool HasRead(const ContainerdProcess& containerd);

  Host& host_;
  const std::function<bool(std::string*)> busy_;
  Clock& clock_;
  const InstallerOptions options_;
};

}  // namespace holdfast::agent
