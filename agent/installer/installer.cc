#include "agent/installer/installer.h"

#include <algorithm>

#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kCommand = std::chrono::seconds(20);

}  // namespace

Installer::Installer(Host& host, std::function<bool(std::string*)> busy, Clock& clock, InstallerOptions options)
    : host_(host), busy_(std::move(busy)), clock_(clock), options_(std::move(options)) {}

Status Installer::Install(std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(bool copied, host_.CopyPrograms());
  if (copied) LogInfo("programs were put on the node", {{"folder", "/opt/holdfast"}});
  Result<ContainerdProcess> containerd = host_.Containerd();
  if (containerd.status().code() == Code::kNotFound) {
    return Status(Code::kUnavailable, containerd.status().message() + " now: only containerd is supported as the node's runtime");
  }
  if (!containerd.ok()) return containerd.status();
  if (!containerd->config_file.empty() && containerd->config_file != kContainerdConfig) {
    return Status(Code::kFailedPrecondition, "containerd runs with --config " + containerd->config_file +
                                                 ", which is written by somebody else; add the runtime \"holdfast\" there by hand");
  }
  HF_RETURN_IF_ERROR(InstallCriuLink(*containerd));
  HF_RETURN_IF_ERROR(InstallConfig());
  if (HasRead(host_, *containerd)) return Status::Ok();
  return Restart(*containerd, stop);
}

// containerd looks for `criu` in its own PATH before it lets a checkpoint through.
Status Installer::InstallCriuLink(const ContainerdProcess& containerd) {
  if (!CriuInPath(host_, containerd).empty()) return Status::Ok();
  Status linked = host_.Link(kCriuLink, kCriu);
  return linked.code() == Code::kAlreadyExists ? Status::Ok() : linked;
}

Status Installer::InstallConfig() {
  HF_ASSIGN_OR_RETURN(ProcessResult version, host_.Run({"containerd", "--version"}, kCommand));
  HF_ASSIGN_OR_RETURN(std::string dump, ConfigDump(host_, kCommand));
  Result<std::string> text = host_.Read(kContainerdConfig);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  std::optional<std::string> config;
  if (text.ok()) config = *text;
  // Somebody else may have configured the runtime already, in their own way.
  Result<std::string> ours = host_.Read(kDropIn);
  if (!ours.ok() && HasRuntime(dump)) return Status::Ok();
  HF_ASSIGN_OR_RETURN(ContainerdPlan plan, PlanContainerdConfig(config, dump, ContainerdMajor(version.out)));
  if (plan.config) {
    const std::string backup = std::string(kContainerdConfig) + ".before-holdfast";
    if (config && !host_.Look(backup).exists) HF_RETURN_IF_ERROR(host_.Write(backup, *config, 0644));
    HF_RETURN_IF_ERROR(host_.Write(kContainerdConfig, *plan.config, 0644));
    LogInfo("an import was added to containerd's configuration", {{"file", kContainerdConfig}, {"backup", backup}});
  }
  // Written last, and again after a change to config.toml: its age tells whether the running containerd knows all of this.
  if (plan.config || !ours.ok() || *ours != plan.drop_in) {
    HF_RETURN_IF_ERROR(host_.Write(kDropIn, plan.drop_in, 0644));
    LogInfo("containerd's drop-in was written", {{"file", kDropIn}});
  }
  HF_ASSIGN_OR_RETURN(dump, ConfigDump(host_, kCommand));
  if (HasRuntime(dump)) return Status::Ok();
  if (plan.config && config) HF_RETURN_IF_ERROR(host_.Write(kContainerdConfig, *config, 0644));
  return Status(Code::kFailedPrecondition,
                "containerd does not take the runtime \"holdfast\" from " + std::string(kDropIn) + "; config.toml was put back as it was");
}

Status Installer::Restart(const ContainerdProcess& old, std::stop_token stop) {
  std::string why;
  if (busy_(&why)) return Status(Code::kUnavailable, "containerd must be restarted to know the runtime \"holdfast\", but not now: " + why);
  const bool systemd = host_.Look("/run/systemd/system").exists;
  LogWarning("restarting containerd", {{"pid", old.pid}, {"by", systemd ? "systemctl" : "SIGTERM"}});
  if (systemd) {
    HF_ASSIGN_OR_RETURN(ProcessResult result, host_.Run({"systemctl", "restart", "containerd"}, std::chrono::seconds(60)));
    if (result.exit_code != 0) return Status(Code::kUnavailable, "systemctl restart containerd failed: " + FirstLine(result.err));
  } else {
    HF_RETURN_IF_ERROR(host_.Terminate(old.pid));
  }
  const MonoTime until = clock_.Mono() + options_.restart_within;
  while (clock_.Mono() < until) {
    Result<ContainerdProcess> now = host_.Containerd();
    if (now.ok() && now->pid != old.pid && host_.ContainerdAnswers()) {
      LogInfo("containerd is back", {{"pid", now->pid}});
      return Status::Ok();
    }
    if (!clock_.Sleep(options_.poll, stop)) return Status(Code::kCancelled, "stopping while containerd restarts");
  }
  return Status(Code::kUnavailable, "containerd did not come back within " +
                                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.restart_within).count()) +
                                        " s");
}

}  // namespace holdfast::agent
