#include "agent/restore_node.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "agent/freezer.h"
#include "agent/host_node.h"
#include "agent/installer/installer.h"
#include "agent/installer/real_host.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kLookAgain = std::chrono::seconds(10);

bool Answers(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

std::string Or(const std::string& given, const char* otherwise) { return given.empty() ? otherwise : given; }

}  // namespace

Result<std::string> WhoNeedsTheRuntime(Node& node, const Layout& layout) {
  if (Answers(layout.Socket())) return std::string("holdfast-agent, which runs on this node: helm uninstall comes first");
  for (const std::string& file : ListDir(layout.JournalFolder()).value_or({})) {
    if (!file.ends_with(".json")) continue;
    return "a checkpoint that is not finished (" + layout.JournalFolder() + "/" + file +
           "): install Holdfast again until it is, or remove that file to give it up";
  }
  HF_ASSIGN_OR_RETURN(const std::vector<NodeContainer> containers, node.Containers());
  for (const NodeContainer& c : containers) {
    if (c.ours) return "pod " + c.ns + "/" + c.pod + ", which runs under it: restart its workload";
  }
  return std::string();
}

Status RestoreNode(const AgentOptions& options, std::stop_token stop) {
  int host_pid = options.host_pid;
  if (host_pid == 0) {
    HF_ASSIGN_OR_RETURN(host_pid, FindNodeProcess());
  }
  // As the node itself sees them: none of its folders is mounted here, so that they can be removed.
  const std::string root = "/proc/" + std::to_string(host_pid) + "/root";
  Layout layout;
  layout.run = root + Or(options.run_dir, runtime::kRunDir);
  layout.state = root + Or(options.state_dir, runtime::kStateDir);
  HostNode node(layout, host_pid, Or(options.runc_root, "/run/containerd/runc/k8s.io"));
  RealHost host(node, options.install_from);
  Clock& clock = Clock::Real();
  InstallerOptions installing;
  installing.state_dir = Or(options.state_dir, runtime::kStateDir);
  Installer installer(
      host, [&](std::string* why) { return NodeIsBusy(layout, why); }, clock, installing);
  std::string told;
  while (true) {
    const Status done = installer.Uninstall([&] { return WhoNeedsTheRuntime(node, layout); }, stop);
    if (done.ok()) break;
    if (stop.stop_requested()) return Status::Ok();
    if (done.message() != told) LogWarning("the node is not as it was before Holdfast yet", {{"reason", done.message()}});
    told = done.message();
    if (!clock.Sleep(kLookAgain, stop)) return Status::Ok();
  }
  LogInfo("nothing of Holdfast is left on the node");
  while (clock.Sleep(std::chrono::hours(1), stop)) {  // a DaemonSet would start it again
  }
  return Status::Ok();
}

}  // namespace holdfast::agent
