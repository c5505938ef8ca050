#include "runtime/lifecycle.h"

#include <algorithm>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/agent_client.h"
#include "runtime/beside.h"
#include "runtime/dump.h"
#include "runtime/freezer.h"
#include "runtime/gpu.h"
#include "runtime/mounts.h"
#include "runtime/network_lock.h"
#include "runtime/spec.h"

namespace holdfast::runtime {
namespace {

using std::chrono::milliseconds;

constexpr Duration kQuick = std::chrono::seconds(20);
// The agent answers within 10 s (agent/stopper.h), unless it has many to answer.
constexpr Duration kStopAnswerWithin = std::chrono::seconds(12);

int BecomeRunc(const Runc& runc, const CommandLine& line) { return ReportError(line, runc.Become(line.argv).message()); }

// A damaged intent counts as none: the caller's verb must work.
std::optional<Intent> IntentOf(const Node& node, const std::string& id) {
  Result<Intent> intent = node.ReadIntent(id);
  if (!intent.ok()) return std::nullopt;
  return *intent;
}

// Also gives the pod its packets back, should a CRIU have died in the middle.
Status ThawContainer(const std::string& runc_root, const std::string& id) {
  Result<Freezer> freezer = Freezer::Of(runc_root, id);
  if (!freezer.ok()) return freezer.status().code() == Code::kNotFound ? Status::Ok() : freezer.status();
  EndSocketRepair(freezer->Pids());
  if (freezer->init_pid() > 0) {
    Result<int> unlocked = RemoveNetworkLock("/proc/" + std::to_string(freezer->init_pid()) + "/ns/net");
    (void)unlocked;  // the process may be gone; the thaw is what matters
  }
  return freezer->Thaw();
}

// Waits until the dump of `intent` is complete. kFailedPrecondition when the agent takes the intent back, kDeadlineExceeded when the dump
// is not complete by its deadline and 5 s more.
Result<DumpResult> AwaitDump(const Node& node, const std::string& id, const Intent& intent) {
  const auto now = [] { return std::chrono::duration_cast<milliseconds>(Clock::Real().Wall().time_since_epoch()).count(); };
  Result<DumpRequest> request = ReadDumpRequest(intent.landing);
  const int64_t deadline = !request.ok() ? now() : request->deadline_unix_ms == 0 ? now() + kDefaultDeadlineMs : request->deadline_unix_ms;
  const int64_t until = std::clamp<int64_t>(deadline + 5000, now(), now() + 3605000);
  while (true) {
    const bool asked_for = IntentOf(node, id).has_value();  // looked for first: it goes after the result has come
    Result<DumpResult> result = ReadDumpResult(intent.landing);
    if (result.ok() || result.status().code() != Code::kNotFound) return result;
    if (!asked_for) return Status(Code::kFailedPrecondition, "the agent took the checkpoint back");
    if (now() >= until) return Status(Code::kDeadlineExceeded, "the dump did not end by its deadline");
    std::this_thread::sleep_for(milliseconds(10));
  }
}

// The signal that a pod's end begins with, not the one that ends it.
bool AsksToQuit(const CommandLine& line) {
  if (line.Value({"all", "a"})) return false;
  const std::string signal = line.arguments.size() < 2 ? "TERM" : line.arguments[1];
  return signal != "9" && signal != "KILL" && signal != "SIGKILL" && signal != "0";
}

// A pod that something else than a drain stops may be dumped in place of its signal: the agent knows, and says so by a final Intent.
void AskAboutStop(const Node& node, const Runc& runc, const CommandLine& line) {
  if (!IsSafeName(line.Id()) || !Exists(node.Socket())) return;
  Result<ContainerState> state = runc.State(line.Id());
  if (!state.ok() || state->status != "running") return;
  Result<Spec> spec = Spec::Load(state->bundle);
  if (!spec.ok()) return;
  const Identity who = spec->identity();
  if (!who.is_container) return;
  const StopQuestion question{who.pod_uid, who.ns, who.pod, who.container, line.Id()};
  Result<Json> answer = AskAgent(node.Socket(), question.ToJson(), kStopAnswerWithin);
  if (!answer.ok()) LogWarning("holdfast-agent was not heard about a stop", {{"error", answer.status().message()}});
}

// From here on the agent begins no dump in place of the signal; one that it began before shows its Intent now.
void WillSignal(const Node& node, const CommandLine& line) {
  Status marked = node.MarkSignalled(line.Id());
  if (!marked.ok()) LogWarning("a signal is passed on that holdfast-agent will not know of", {{"error", marked.message()}});
}

// The agent was faster. Should it have seen the mark, it takes its Intent back.
void WillNotSignal(const Node& node, const CommandLine& line) {
  Status unmarked = node.ForgetSignalled(line.Id());
  if (!unmarked.ok()) LogWarning("holdfast-agent may take a signal for passed on", {{"error", unmarked.message()}});
}

}  // namespace

int Start(const Node& node, const Runc& runc, const CommandLine& line) {
  if (node.IsRestored(line.Id())) {
    Result<ContainerState> state = runc.State(line.Id());
    if (state.ok() && state->status == "running") return 0;
  }
  return BecomeRunc(runc, line);
}

int Delete(const Node& node, const Runc& runc, const CommandLine& line) {
  // Left behind they would name a container that no longer exists; ids are never used twice.
  Status removed = node.ForgetRestored(line.Id());
  if (removed.ok()) removed = node.ForgetSignalled(line.Id());
  if (removed.ok()) removed = node.RemoveIntent(line.Id());
  if (removed.ok()) removed = ForgetBeside(node, line.Id());
  if (removed.ok() && IsSafeName(line.Id())) removed = UnmountCriuRoot(runc.Root(), line.Id());
  // Whatever it is, runc says in its own words whether the container goes.
  if (!removed.ok()) LogWarning("a container leaves something behind", {{"error", removed.message()}});
  return BecomeRunc(runc, line);
}

int PauseOrResume(const Node& node, const Runc& runc, const CommandLine& line) {
  return IntentOf(node, line.Id()) ? 0 : BecomeRunc(runc, line);
}

int Kill(const Node& node, const Runc& runc, const CommandLine& line) {
  if (IsHeldBeside(node, line.Id())) {
    Status thawed = ThawLeft(node);  // unless a dump is at work, which thaws it soon
    if (!thawed.ok()) LogWarning("told to quit while it is frozen", {{"error", thawed.message()}});
  }
  std::optional<Intent> intent = IntentOf(node, line.Id());
  if ((!intent || !intent->final) && AsksToQuit(line)) {
    AskAboutStop(node, runc, line);
    WillSignal(node, line);
    intent = IntentOf(node, line.Id());
    if (intent && intent->final) WillNotSignal(node, line);
  }
  if (!intent || !intent->final) return BecomeRunc(runc, line);
  Result<DumpResult> dump = AwaitDump(node, line.Id(), *intent);
  if (!dump.ok() || !dump->ok) {
    // Its state is not kept: it gets the signal that it was sent, and time to act on it.
    if (AsksToQuit(line)) WillSignal(node, line);
    Status thawed = ThawContainer(runc.Root(), line.Id());
    return thawed.ok() ? BecomeRunc(runc, line) : ReportError(line, thawed.message());
  }
  HF_FAULT_POINT("runtime.before_kill");
  std::vector<std::string> args{"kill"};
  if (line.Value({"all", "a"})) args.emplace_back("--all");
  args.insert(args.end(), {line.Id(), "KILL"});
  Result<ProcessResult> killed = runc.Run(args, kQuick);
  HF_FAULT_POINT("runtime.before_thaw");
  // A frozen process takes the signal only when it runs again; runc does not always see to that on cgroup v1.
  Status thawed = ThawContainer(runc.Root(), line.Id());
  if (!killed.ok() || killed->exit_code != 0) return BecomeRunc(runc, line);  // runc says in its own words what it is
  return thawed.ok() ? 0 : ReportError(line, thawed.message());
}

int Exec(const Node& node, const Runc& runc, const CommandLine& line) {
  std::optional<Intent> intent = IntentOf(node, line.Id());
  if (intent && intent->final)
    return ReportError(line, "container " + intent->container + " is being checkpointed: nothing can be executed in it");
  return BecomeRunc(runc, line);
}

int Checkpoint(const Node& node, const Runc& runc, const CommandLine& line) {
  std::optional<Intent> intent = IntentOf(node, line.Id());
  if (!intent) {
    // A pod that nobody prepared: the archive of the stock path, with the options without which most programs cannot be dumped.
    std::vector<std::string> argv = line.argv;
    auto verb = std::find(argv.begin(), argv.end(), "checkpoint");
    for (const char* flag : {"file-locks", "tcp-established"}) {
      if (!line.Value({flag}) && verb != argv.end()) verb = argv.insert(verb + 1, std::string("--") + flag) - 1;
    }
    return ReportError(line, runc.Become(argv).message());
  }
  if (!intent->kubelet) return ReportError(line, "container " + intent->container + " is being checkpointed by holdfast already");
  LeaveCaller();
  Result<DumpResult> result = Dumper(node, runc.path()).Run(intent->landing);
  if (!result.ok()) return ReportError(line, "checkpoint of container " + intent->container + ": " + result.status().message());
  if (!result->ok)
    return ReportError(line, "checkpoint of container " + intent->container + ": " + result->reason + ": " + result->message);
  // containerd wants something to archive.
  const std::string images = line.Value({"image-path"}).value_or("");
  Status written = images.empty() ? Status::Ok() : MakeDirs(images);
  if (written.ok() && !images.empty())
    written = WriteFileAtomically(images + "/holdfast.json", DumpJson({{"checkpoint", intent->checkpoint_uid}}));
  return written.ok() ? 0 : ReportError(line, written.message());
}

int Dump(const Node& node, const Runc& runc, const CommandLine& line) {
  if (line.arguments.size() != 1 || !line.Id().starts_with('/')) return ReportError(line, "usage: holdfast-runc dump LANDING_DIRECTORY");
  LeaveCaller();
  Result<DumpResult> result = Dumper(node, runc.path()).Run(line.Id());
  if (!result.ok()) return ReportError(line, "dump into " + line.Id() + ": " + result.status().message());
  return result->ok ? 0 : ReportError(line, "dump into " + line.Id() + ": " + result->reason + ": " + result->message);
}

int Thaw(const Node& node, const CommandLine& line) {
  if (line.arguments.size() != 1) return ReportError(line, "usage: holdfast-runc thaw [--root RUNC_ROOT] CONTAINER_ID");
  const std::string root = line.Value({"root"}).value_or(line.Global("root").value_or("/run/containerd/runc/k8s.io"));
  Status thawed = ThawContainer(root, line.Id());
  Status others = ThawLeft(node);
  if (thawed.ok()) thawed = others;
  Result<Freezer> freezer = Freezer::Of(root, line.Id());
  // A dump that was killed may have left it without its GPU.
  if (thawed.ok() && freezer.ok()) thawed = Gpu(node).Release(freezer->Pids(), Clock::Real().Mono() + kGpuBackWithin);
  return thawed.ok() ? 0 : ReportError(line, thawed.message());
}

}  // namespace holdfast::runtime
