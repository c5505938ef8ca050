#include "agent/installer/examine.h"

#include <sys/utsname.h>

#include <algorithm>

#include "agent/installer/containerd_config.h"
#include "api/platform.h"

namespace holdfast::agent {
namespace {

using runtime::NodeCheck;
using Verdict = NodeCheck::Verdict;

constexpr Duration kCommand = std::chrono::seconds(15);
constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr char kReinstall[] =
    "the agent puts its programs there itself: look whether /opt/holdfast can be written and executed (noexec, read-only), then restart "
    "the agent";

class Examination {
 public:
  Examination(Host& host, Clock& clock, const std::string& state_dir, Duration within)
      : host_(host), clock_(clock), state_dir_(state_dir), until_(clock.Mono() + within) {}

  NodeReport Go() && {
    Programs();
    Criu();
    Kernel();
    Containerd();
    return std::move(report_);
  }

 private:
  Duration Limit() const { return std::clamp<Duration>(until_ - clock_.Mono(), std::chrono::milliseconds(1), kCommand); }

  void Say(NodeCheck check) { report_.checks.push_back(std::move(check)); }
  void Ok(const std::string& name, const std::string& seen) { Say({name, Verdict::kOk, seen}); }
  void Fail(const std::string& name, const std::string& seen, const std::string& fix) { Say({name, Verdict::kFail, seen, fix}); }

  // The first line of what the program says, kept as an annotation. Nothing: it failed, which is then said.
  std::optional<std::string> Version(const std::string& name, const std::string& what, const std::vector<std::string>& argv,
                                     const std::string& fix, const char* annotation) {
    Result<ProcessResult> result = host_.Run(argv, Limit());
    if (!result.ok()) {
      Failed(name, what, result.status(), fix);
    } else if (result->exit_code != 0) {
      Fail(name, what + " does not run on this node: " + FirstLine(result->err), fix);
    } else {
      report_.versions[annotation] = FirstLine(result->out);
      return FirstLine(result->out);
    }
    return std::nullopt;
  }

  // Out of time is no verdict on the node.
  void Failed(const std::string& name, const std::string& what, const Status& status, const std::string& fix) {
    const bool passes = status.code() == Code::kDeadlineExceeded || status.code() == Code::kUnavailable;
    Say({name, Verdict::kFail, what + ": " + status.message(), fix, "", passes});
  }

  void Programs() {
    const auto own =
        Version("programs", "holdfast-runc", {kRuntimeBinary, "--holdfast-version"}, kReinstall, "holdfast.dev/runtime-version");
    if (own) Ok("programs", *own);
    const auto runc =
        Version("runc", "runc", {kRuntimeBinary, "--version"},
                "install runc in /usr/bin, /usr/sbin, /usr/local/bin or /usr/local/sbin of the node", "holdfast.dev/runc-version");
    if (runc) Ok("runc", *runc);
  }

  void Criu() {
    const auto version = Version("criu", "CRIU", {kCriu, "--version"}, kReinstall, "holdfast.dev/criu-version");
    if (!version) return;
    Ok("criu", *version);
    // `criu check` also complains of what no pod needs, so it informs and does not decide.
    report_.versions["holdfast.dev/criu-check"] = nullptr;
    Result<ProcessResult> check = host_.Run({kCriu, "check"}, Limit());
    if (check.ok() && check->exit_code == 0) return Ok("criu-check", "nothing is missing");
    const std::string seen = check.ok() ? FirstLine(check->err.empty() ? check->out : check->err) : check.status().message();
    if (check.ok()) report_.versions["holdfast.dev/criu-check"] = seen;
    Say({"criu-check", Verdict::kWarn, seen,
         "run `/opt/holdfast/criu/criu check` on the node: programs that use what it names cannot be dumped; most of it needs a newer "
         "kernel, or one with CONFIG_CHECKPOINT_RESTORE"});
  }

  // What holdfast-runc itself found by trying. The node's kernel is ours.
  void Kernel() {
    utsname names{};
    const std::string series = uname(&names) == 0 ? api::KernelSeries(names.release) : "";
    if (!series.empty()) report_.versions[api::kKernel] = series;
    Result<ProcessResult> result = host_.Run({kRuntimeBinary, "check", "--state", state_dir_}, Limit());
    if (!result.ok()) {
      return Failed("kernel", "what the kernel has is not known", result.status(),
                    "look for a file system that does not answer (" + state_dir_ + ")");
    }
    Result<Json> checks = ParseJson(result->out);
    if (result->exit_code != 0 || !checks.ok() || !checks->is_array()) {
      return Fail("kernel", "`holdfast-runc check` failed: " + FirstLine(result->err.empty() ? result->out : result->err), kReinstall);
    }
    for (const Json& one : *checks) {
      Result<NodeCheck> check = NodeCheck::FromJson(one);
      if (!check.ok()) {
        Fail("kernel", "`holdfast-runc check` is not understood: " + check.status().message(), kReinstall);
        continue;
      }
      if (check->name == "processor" && !check->value.empty()) report_.versions[api::kCpu] = check->value;
      if (check->name == "processor" && !check->features.empty()) report_.versions[api::kCpuFeatures] = check->features;
      Say(std::move(*check));
    }
  }

  void Containerd() {
    Result<ContainerdProcess> containerd = host_.Containerd();
    if (!containerd.ok()) {
      Say({"containerd", Verdict::kFail, containerd.status().message(), "start containerd: no other runtime is supported", "", true});
    } else if (!containerd->config_file.empty() && containerd->config_file != kContainerdConfig) {
      Fail("containerd", "it runs with --config " + containerd->config_file + ", which is written by somebody else",
           "add the runtime \"holdfast\" there by hand");
    } else {
      Result<ProcessResult> version = host_.Run({"containerd", "--version"}, Limit());
      if (!version.ok()) {
        Failed("containerd", "its version is not known", version.status(), "look whether the node's disk answers");
      } else if (version->exit_code != 0) {
        Fail("containerd", "`containerd --version` failed: " + FirstLine(version->err), "install containerd 2.1 or later on the node");
      } else {
        Ok("containerd", FirstLine(version->out));
      }
    }
    Config();
    if (!containerd.ok()) return;
    if (!HasRead(host_, *containerd)) {
      Say({"containerd-restart", Verdict::kFail, "containerd runs since before it was configured",
           "nothing, if a checkpoint is being made: the agent restarts containerd after it; else `systemctl restart containerd` there", "",
           true});
    } else {
      Ok("containerd-restart", "containerd started after it was configured");
    }
    const std::string criu = CriuInPath(host_, *containerd);
    if (!criu.empty()) return Ok("criu-path", "containerd finds " + criu);
    const std::string fix = std::string("ln -s ") + kCriu + " " + kCriuLink + " on the node, then restart containerd";
    Say({"criu-path", Verdict::kWarn, "containerd finds no criu in its PATH, and refuses checkpoints of pods under plain runc", fix});
  }

  void Config() {
    const std::string fix =
        std::string("let ") + kContainerdConfig + " import " + kDropIn + ", which the agent writes; its log says why it does not";
    Result<std::string> dump = ConfigDump(host_, Limit());
    if (!dump.ok()) return Failed("config", "containerd's configuration", dump.status(), fix);
    if (!HasRuntime(*dump)) return Fail("config", "containerd's configuration lacks the runtime \"holdfast\"", fix);
    Ok("config", "containerd's configuration has the runtime \"holdfast\"");
  }

  Host& host_;
  Clock& clock_;
  const std::string& state_dir_;
  const MonoTime until_;
  NodeReport report_;
};

}  // namespace

bool NodeReport::usable() const { return status().ok(); }

Status NodeReport::status() const {
  const NodeCheck* first = nullptr;
  for (const NodeCheck& check : checks) {
    if (check.verdict != Verdict::kFail) continue;
    if (first == nullptr || (first->passes && !check.passes)) first = &check;
  }
  if (first == nullptr) return Status::Ok();
  return Status(first->passes ? Code::kUnavailable : Code::kUnsupported, first->name + ": " + first->seen + " (" + first->fix + ")");
}

NodeReport Examine(Host& host, Clock& clock, const std::string& state_dir, Duration within) {
  return Examination(host, clock, state_dir, within).Go();
}

std::string FirstLine(const std::string& text) {
  const size_t end = text.find('\n');
  return text.substr(0, std::min<size_t>(end, 500));
}

bool HasRead(Host& host, const ContainerdProcess& containerd) {
  for (const char* path : {kDropIn, kCriuLink}) {
    FileInfo info = host.Look(path);
    if (info.exists && info.changed >= containerd.started) return false;
  }
  return true;
}

Result<std::string> ConfigDump(Host& host, Duration timeout) {
  HF_ASSIGN_OR_RETURN(ProcessResult dump, host.Run({"containerd", "--config", kContainerdConfig, "config", "dump"}, timeout));
  if (dump.exit_code != 0) return Status(Code::kFailedPrecondition, "`containerd config dump` failed: " + FirstLine(dump.err));
  return dump.out;
}

std::string CriuInPath(Host& host, const ContainerdProcess& containerd) {
  const std::string path = containerd.path.empty() ? kDefaultPath : containerd.path;
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find(':', at), path.size());
    const std::string folder = path.substr(at, end - at);
    at = end + 1;
    if (!folder.empty() && folder[0] == '/' && host.Look(folder + "/criu").exists) return folder + "/criu";
  }
  return "";
}

}  // namespace holdfast::agent
