// The installer's way back.
#include "agent/installer/installer.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kCommand = std::chrono::seconds(20);
constexpr char kPrograms[] = "/opt/holdfast", kRun[] = "/run/holdfast", kMemory[] = "/run/holdfast/memory";
// There until containerd has forgotten the runtime: an uninstall that was cut off restarts it all the same.
constexpr char kUnderWay[] = "/opt/holdfast/uninstalling";

Status Unmount(Host& host, const std::string& path) {
  HF_ASSIGN_OR_RETURN(const ProcessResult mounted, host.Run({"mountpoint", "-q", path}, kCommand));
  if (mounted.exit_code != 0) return Status::Ok();
  HF_ASSIGN_OR_RETURN(const ProcessResult done, host.Run({"umount", path}, kCommand));
  if (done.exit_code == 0) return Status::Ok();
  return Status(Code::kUnavailable, "cannot unmount " + path + ": " + FirstLine(done.err));
}

}  // namespace

Result<bool> Installer::TakeConfigBack() {
  bool found = false;
  const std::string backup = std::string(kContainerdConfig) + ".before-holdfast";
  const Result<std::string> config = host_.Read(kContainerdConfig), before = host_.Read(backup);
  if (config.ok()) {
    auto text = WithoutImport(*config, before.ok() ? std::optional(*before) : std::nullopt);
    if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
    if (text.ok()) {
      found = true;
      HF_RETURN_IF_ERROR(host_.Write(kUnderWay, "", 0644));
      HF_RETURN_IF_ERROR(*text ? host_.Write(kContainerdConfig, **text, 0644) : host_.Remove(kContainerdConfig));
      LogInfo("the import was taken out of containerd's configuration", {{"file", kContainerdConfig}});
    }
    // What somebody has changed since is theirs, and so is what they may want to compare it with.
    const Result<std::string> now = host_.Read(kContainerdConfig);
    if (before.ok() && now.ok() && *now == *before) HF_RETURN_IF_ERROR(host_.Remove(backup));
  } else if (config.status().code() != Code::kNotFound) {
    return config.status();
  }
  const Result<std::string> ours = host_.Read(kDropIn);
  if (ours.ok() && IsOurDropIn(*ours)) {
    found = true;
    HF_RETURN_IF_ERROR(host_.Write(kUnderWay, "", 0644));
    HF_RETURN_IF_ERROR(host_.Remove(kDropIn));
    LogInfo("containerd's drop-in was removed", {{"file", kDropIn}});
  } else if (!ours.ok() && ours.status().code() != Code::kNotFound) {
    return ours.status();
  }
  return found;
}

Status Installer::Uninstall(const std::function<Result<std::string>()>& needed_by, std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(std::string who, needed_by());
  if (!who.empty()) return Status(Code::kUnavailable, "the runtime \"holdfast\" is still needed, by " + who);
  if (busy_(&who)) return Status(Code::kUnavailable, "not now: " + who);
  const Result<ContainerdProcess> containerd = host_.Containerd();
  if (!containerd.ok() && containerd.status().code() != Code::kNotFound) return containerd.status();
  HF_RETURN_IF_ERROR(TakeConfigBack().status());
  if (containerd.ok()) {
    // Somebody else's configuration may name it, too: a runtime whose program is gone would keep their pods from starting.
    std::string theirs = containerd->config_file == kContainerdConfig ? "" : containerd->config_file;
    if (theirs.empty()) {
      HF_ASSIGN_OR_RETURN(const std::string dump, ConfigDump(host_, kCommand));
      if (HasRuntime(dump)) theirs = kContainerdConfig;
    } else if (host_.Read(theirs).value_or("").find(kRuntimeBinary) == std::string::npos) {
      theirs.clear();
    }
    if (!theirs.empty()) {
      return Status(Code::kFailedPrecondition, "containerd's configuration (" + theirs +
                                                   ") has the runtime \"holdfast\", which was written by "
                                                   "somebody else: take it out by hand, and restart containerd");
    }
    if (host_.Look(kUnderWay).exists) HF_RETURN_IF_ERROR(Restart(*containerd, stop));
  }
  if (const FileInfo link = host_.Look(kCriuLink); link.link && link.target == kCriu) HF_RETURN_IF_ERROR(host_.Remove(kCriuLink));
  HF_RETURN_IF_ERROR(Unmount(host_, kMemory));
  for (const std::string& folder : {std::string(kRun), options_.state_dir, std::string(kPrograms)}) {
    if (!host_.Look(folder).exists) continue;
    HF_RETURN_IF_ERROR(host_.Remove(folder));
    LogInfo("removed", {{"folder", folder}});
  }
  return Status::Ok();
}

}  // namespace holdfast::agent
