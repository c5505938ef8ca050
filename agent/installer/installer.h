// Makes this node able to checkpoint and restore: programs, CRIU, containerd's runtime entry, a containerd that has read it, a probe. Every
// step is idempotent and does nothing when it is done already.
#pragma once

#include <functional>
#include <string>

#include "agent/installer/containerd_config.h"
#include "agent/installer/examine.h"
#include "agent/installer/host.h"

namespace holdfast::agent {

struct InstallerOptions {
  Duration restart_within = std::chrono::seconds(30);
  Duration poll = std::chrono::milliseconds(200);
  std::string state_dir = runtime::kStateDir;
};

class Installer {
 public:
  // `busy`: true, with the reason, while containerd must not be restarted.
  Installer(Host& host, std::function<bool(std::string* why)> busy, Clock& clock, InstallerOptions options = {});

  // kUnavailable: not now (busy, containerd not up yet), try again. Any other error: this node cannot be used, and why.
  Status Install(std::stop_token stop);
  // The way back (uninstall.cc): the node is as if Install had never been. kUnavailable, and nothing is touched, while somebody still needs
  // what would be removed, whom `needed_by` names. Each step is idempotent, and leaves what is not ours.
  Status Uninstall(const std::function<Result<std::string>()>& needed_by, std::stop_token stop);
  // What was made, and all else that the node must have.
  NodeReport Examine() { return agent::Examine(host_, clock_, options_.state_dir); }

 private:
  Status InstallCriuLink(const ContainerdProcess& containerd);
  Status InstallConfig();
  Result<bool> TakeConfigBack();  // whether anything of it was there
  Status Restart(const ContainerdProcess& containerd, std::stop_token stop);

  Host& host_;
  const std::function<bool(std::string*)> busy_;
  Clock& clock_;
  const InstallerOptions options_;
};

}  // namespace holdfast::agent
