#include "runtime/create.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "runtime/agent_client.h"
#include "runtime/loopback_hold.h"
#include "runtime/namespaces.h"
#include "runtime/network.h"
#include "runtime/network_lock.h"
#include "runtime/restore.h"

namespace holdfast::runtime {
namespace {

constexpr Duration kAnswerWithin = std::chrono::seconds(10);
constexpr char kMountPoint[] = "/.holdfast", kSkipMountPoint[] = "/.holdfast-skip";

int BecomeRunc(const Runc& runc, const CommandLine& line) { return ReportError(line, runc.Become(line.argv).message()); }

Result<CreateAnswer> Ask(const Node& node, const Json& question) {
  HF_ASSIGN_OR_RETURN(Json answer, AskAgent(node.Socket(), question, kAnswerWithin));
  return CreateAnswer::FromJson(answer);
}

class Creation {
 public:
  Creation(const Node& node, const Runc& runc, const CommandLine& line, std::string bundle, Spec spec)
      : node_(node), runc_(runc), line_(line), bundle_(std::move(bundle)), spec_(std::move(spec)), who_(spec_.identity()) {}

  int Go() {
    if (node_.HasFinalCheckpoint(who_.pod_uid)) {
      return ReportError(line_, "pod " + who_.ns + "/" + who_.pod + " has a final checkpoint: no container is started in it any more");
    }
    if (HasTimeNamespaces(node_, runc_, runc_.path())) spec_.AddTimeNamespace();
    if (Exists(node_.CriuConfig())) spec_.SetAnnotation("org.criu.config", node_.CriuConfig());
    KeepToPlainTcp();
    if (who_.container == kWaitContainer) return CreateWaiter();
    if (spec_.Annotation(kRestoreAnnotation).empty()) return Cold();
    CreateQuestion question{who_.pod_uid, who_.ns, who_.pod, who_.container, line_.Id(), who_.sandbox_id, false};
    Result<CreateAnswer> answer = Ask(node_, question.ToJson());
    // A pod that waits for its state must not lose it to a restart of the agent: the kubelet tries again.
    if (!answer.ok()) return ReportError(line_, "not created, will be tried again: " + answer.status().message());
    if (answer->action == "restore") return FromCheckpoint(*answer);
    if (answer->action == "skip") return Skip();
    if (answer->action == "cold") {
      Status filled = FillFirst(node_, runc_, spec_, *answer);
      // The restore that comes after this one fills them, or says what is wrong with them.
      if (!filled.ok())
        LogWarning("starts before its pod's volumes are filled", {{"container", who_.container}, {"error", filled.message()}});
      return ColdAfterTries();
    }
    return ReportError(line_, answer->reason.empty() ? "the agent refuses container " + who_.container : answer->reason);
  }

 private:
  // Before the first program of the pod opens a socket; the host's network is not ours to change.
  void KeepToPlainTcp() {
    const std::optional<std::string> netns = spec_.NamespacePath("network");
    if (!netns || SameNamespace(*netns, "/proc/1/ns/net")) return;
    Status off = TurnOffMultipathTcp(*netns);
    if (!off.ok()) LogWarning("programs of this pod may open Multipath TCP sockets, which CRIU cannot dump", {{"error", off.message()}});
  }

  int Cold() {
    Status saved = spec_.Save(bundle_);
    return saved.ok() ? BecomeRunc(runc_, line_) : ReportError(line_, saved.message());
  }

  // A restore that was killed leaves CRIU's network lock in the pod, and what starts cold would be cut off.
  int ColdAfterTries() {
    if (const std::optional<std::string> netns = spec_.NamespacePath("network")) {
      Result<int> unlocked = RemoveNetworkLock(*netns);
      if (!unlocked.ok()) return ReportError(line_, unlocked.status().message());
      Status released = ReleaseLoopback(*netns);
      if (!released.ok()) return ReportError(line_, released.message());
    }
    return Cold();
  }

  int CreateWaiter() {
    const std::string dir = node_.WaitDir(who_.pod_uid);
    Status made = MakeDirs(node_.run);
    if (made.ok()) made = MakeDirs(dir, 0755);
    if (!made.ok()) return ReportError(line_, made.message());
    chmod(dir.c_str(), 0755);  // pods of any user read it; a umask may have cut it
    spec_.AddReadOnlyBind(dir, kMountPoint);
    return Cold();
  }

  // An init container whose work is in the checkpoint already.
  int Skip() {
    spec_.AddReadOnlyBind(node_.Helper(), kSkipMountPoint);
    spec_.SetArgs({kSkipMountPoint, "--exit"});
    return Cold();
  }

  int FromCheckpoint(const CreateAnswer& answer) {
    const Spec original = spec_;
    const MonoTime from = Clock::Real().Mono();
    bool ran = false;
    Status status = RestoreContainer(node_, runc_, line_, bundle_, spec_, answer, &ran);
    RestoreOutcome outcome;
    outcome.pod_uid = who_.pod_uid;
    outcome.container = who_.container;
    outcome.container_id = line_.Id();
    outcome.ok = status.ok();
    outcome.ran = ran && !status.ok();
    outcome.seconds = std::chrono::duration<double>(Clock::Real().Mono() - from).count();
    outcome.message = status.message();
    Result<CreateAnswer> next = Ask(node_, outcome.ToJson());
    if (status.ok()) return 0;  // it runs: an agent that does not hear it finds it
    const std::string what = "container " + who_.container + " was not restored: " + status.message();
    if (!next.ok() || next->action != "cold") return ReportError(line_, what);
    Status undone = UndoFiles(node_, runc_, bundle_, original, answer);
    if (!undone.ok()) return ReportError(line_, what + "; a cold start needs a new container: " + undone.message());
    spec_ = original;
    return Cold();
  }

  const Node& node_;
  const Runc& runc_;
  const CommandLine& line_;
  const std::string bundle_;
  Spec spec_;
  const Identity who_;
};

}  // namespace

bool HasTimeNamespaces(const Node& node, const Runc& runc, const std::string& runc_path) {
  struct stat info;
  if (!Exists("/proc/self/ns/time") || stat(runc_path.c_str(), &info) != 0) return false;
  const std::string dir = node.run + "/runc";
  const std::string path =
      dir + "/" + std::to_string(info.st_ino) + "-" + std::to_string(info.st_size) + "-" + std::to_string(info.st_mtim.tv_sec);
  if (Result<std::string> known = ReadFile(path, 16); known.ok()) return *known == "time";
  Result<ProcessResult> features = runc.Run({"features"}, kAnswerWithin);
  if (!features.ok() || features->timed_out) return false;
  bool time = false;
  if (Result<Json> json = ParseJson(features->out); features->exit_code == 0 && json.ok()) {
    for (const Json& name : GetArray(*json, {"linux", "namespaces"})) time = time || name == "time";
  }
  Status kept = MakeDirs(dir);
  if (kept.ok()) kept = WriteFileAtomically(path, time ? "time" : "none");
  return time;  // not kept: asked again next time
}

int Create(const Node& node, const Runc& runc, const CommandLine& line) {
  std::string bundle = line.Value({"bundle", "b"}).value_or(".");
  Result<Spec> spec = Spec::Load(bundle);
  if (!spec.ok() || !spec->identity().is_container) return BecomeRunc(runc, line);
  return Creation(node, runc, line, std::move(bundle), std::move(*spec)).Go();
}

}  // namespace holdfast::runtime
