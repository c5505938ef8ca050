#include "runtime/dump.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/criu_log.h"
#include "runtime/freezer.h"
#include "runtime/mounts.h"
#include "runtime/namespaces.h"
#include "runtime/network.h"
#include "runtime/network_lock.h"
#include "runtime/preflight.h"
#include "runtime/process_tree.h"
#include "runtime/projected.h"
#include "runtime/runc.h"
#include "runtime/spec.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

using std::chrono::milliseconds;

int64_t Millis(Duration duration) { return std::chrono::duration_cast<milliseconds>(duration).count(); }

// CRIU is a grandchild: without its parent it becomes ours (PR_SET_CHILD_SUBREAPER) and is found here. Killed half way, it leaves the
// processes to their own injected code, which undoes itself when its socket closes.
void KillOrphans() {
  for (int round = 0; round < 200; ++round) {
    Result<std::string> text = ReadFile("/proc/thread-self/children", 65536);
    if (!text.ok() || text->empty()) return;
    for (const char* at = text->c_str(); *at != '\0';) {
      char* end;
      long pid = strtol(at, &end, 10);
      if (end == at) break;
      kill(static_cast<pid_t>(pid), SIGKILL);
      at = *end == ' ' ? end + 1 : end;
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  LogWarning("CRIU does not end after SIGKILL");
}

const char* ReasonOf(Code code) {
  if (code == Code::kDeadlineExceeded) return "Deadline";
  return code == Code::kUnsupported ? "Unsupported" : "DumpFailed";
}

struct Target {
  DumpContainer name;
  std::string folder, bundle, upper;
  int pid = 0;
  Freezer freezer;
  Spec spec;
};

class Run {
 public:
  Run(const Node& node, const std::string& runc, DumpRequest request, std::string landing)
      : request_(std::move(request)), landing_(std::move(landing)), runc_(runc, {"--root=" + request_.runc_root}, node) {
    const int64_t now = Millis(Clock::Real().Wall().time_since_epoch());
    deadline_ = Clock::Real().Mono() + milliseconds(request_.deadline_unix_ms == 0
                                                        ? kDefaultDeadlineMs
                                                        : std::clamp<int64_t>(request_.deadline_unix_ms - now, 0, 3600000));
  }

  DumpResult Go() {
    Status status = Prepare();
    if (status.ok()) status = Freeze();
    if (status.ok()) status = DumpAll();
    if (status.ok()) status = CopyAll();
    if (status.ok() && request_.final) status = StillFrozen();
    result_.frozen_ms = frozen_at_ == MonoTime() ? 0 : Millis(Clock::Real().Mono() - frozen_at_);
    if (!status.ok() || !request_.final) {
      Status thawed = ThawAll();
      if (!thawed.ok() && status.ok()) status = thawed;
    }
    result_.ok = status.ok();
    if (status.ok()) {
      result_.reason = "Completed";
      Measure(landing_, 0);
      return result_;
    }
    result_.reason = reason_.empty() ? ReasonOf(status.code()) : reason_;
    result_.message = status.message();
    Discard();
    return result_;
  }

  MonoTime deadline() const { return deadline_; }

 private:
  Duration Left() const { return std::max<Duration>(deadline_ - Clock::Real().Mono(), Duration(0)); }

  Status Prepare() {
    if (Left() == Duration(0)) return Status(Code::kDeadlineExceeded, "the deadline passed before the dump began");
    for (const DumpContainer& container : request_.containers) {
      Result<ContainerState> state = runc_.State(container.id);
      if (!state.ok()) return Gone(container, state.status().message());
      if (state->status != "running" && state->status != "paused") return Gone(container, "it is " + state->status);
      const std::string bundle = request_.task_dir + "/" + container.id;
      HF_ASSIGN_OR_RETURN(Freezer freezer, Freezer::Of(request_.runc_root, container.id));
      HF_ASSIGN_OR_RETURN(Spec spec, Spec::Load(bundle));
      HF_ASSIGN_OR_RETURN(std::string upper, OverlayUpper(spec.RootPath(bundle)));
      Status fit = CheckDumpable(freezer.Pids(), freezer.unified());
      if (!fit.ok()) return Status(fit.code(), "container " + container.name + ": " + fit.message());
      targets_.push_back({container, landing_ + "/" + container.name, bundle, upper, state->pid, std::move(freezer), std::move(spec)});
    }
    return NoteNetwork();
  }

  Status Gone(const DumpContainer& container, const std::string& why) {
    reason_ = "PodGone";
    return Status(Code::kNotFound, "container " + container.name + " does not run: " + why);
  }

  // Pods in the host's network have no address of their own to bring back.
  Status NoteNetwork() {
    const std::string dir = "/proc/" + std::to_string(targets_[0].pid) + "/ns/";
    if (!SameNamespace(dir + "net", "/proc/1/ns/net")) {
      HF_ASSIGN_OR_RETURN(result_.pod_ips, GlobalAddresses(dir + "net"));
    }
    HF_ASSIGN_OR_RETURN(result_.hostname, HostnameIn(dir + "uts"));
    return Status::Ok();
  }

  Status Freeze() {
    frozen_at_ = Clock::Real().Mono();
    result_.frozen_at_unix_ms = Millis(Clock::Real().Wall().time_since_epoch());
    const MonoTime until = std::min(deadline_, frozen_at_ + std::chrono::seconds(5));
    for (const Target& target : targets_) {
      Status status = target.freezer.Freeze(until);
      if (!status.ok()) return status.With("container " + target.name.name);
    }
    HF_FAULT_POINT("runtime.frozen");
    return Status::Ok();
  }

  Status DumpAll() {
    for (const Target& target : targets_) {
      HF_RETURN_IF_ERROR(DumpOne(target));
      HF_FAULT_POINT("runtime.dumped_one");
    }
    return Status::Ok();
  }

  // Before CRIU is killed: it stands still itself, so that its log tells where it is and it cannot thaw what we freeze; and the processes
  // are frozen, because CRIU would let them run with sockets that it left unusable. Where it must not be killed, it goes on for a moment.
  static void HoldStill(const Target& target, pid_t runc) {
    constexpr int kRounds = 400;  // 2 s
    for (int round = 0;; ++round) {
      Status stopped = StopDescendants(runc, std::chrono::seconds(1));
      if (!stopped.ok()) LogWarning("not stopped before it is killed", {{"error", stopped.message()}});
      Result<std::string> log = ReadFile(target.folder + "/dump.log");
      const bool inside = log.ok() && InsideAProcess(*log);
      if (inside && round >= kRounds) {
        LogWarning("CRIU is killed while it runs code inside a process, which may not survive it", {{"container", target.name.name}});
      }
      if (!inside || round >= kRounds) {
        Status held = target.freezer.FreezeSoon();
        if (!held.ok()) LogWarning("not frozen before CRIU is killed", {{"error", held.message()}});
        for (pid_t pid : Descendants(runc)) kill(pid, SIGKILL);
        return;
      }
      ContinueDescendants(runc);
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  Status DumpOne(const Target& target) {
    const std::string images = target.folder + "/images";
    HF_RETURN_IF_ERROR(RemoveAll(target.folder));
    HF_RETURN_IF_ERROR(MakeDirs(images));
    const MonoTime from = Clock::Real().Mono();
    auto hold = [&target](pid_t runc) { HoldStill(target, runc); };
    Result<int> code =
        runc_.RunAttached({"--log=" + target.folder + "/runc.log", "--log-format=json", "checkpoint", "--leave-running", "--image-path",
                           images, "--work-path", target.folder, "--tcp-established", "--file-locks", target.name.id},
                          Left(), hold);
    KillOrphans();
    result_.dump_ms += Millis(Clock::Real().Mono() - from);
    if (code.ok() && *code == 0 && Exists(images + "/inventory.img")) return Status::Ok();
    // A pod that goes on without its packets would be worse than no checkpoint.
    EndSocketRepair(target.freezer.Pids());
    Result<int> unlocked = RemoveNetworkLock("/proc/" + std::to_string(target.pid) + "/ns/net");
    if (!unlocked.ok()) LogWarning("CRIU's network lock may be left in the pod", {{"error", unlocked.status().message()}});
    std::string why = TellingLines(target.folder + "/dump.log");
    if (!code.ok())
      return Status(code.status().code(),
                    "container " + target.name.name + ": CRIU was killed at the deadline" + (why.empty() ? "" : ": " + why));
    if (why.empty()) why = LastLogError(target.folder + "/runc.log");
    if (why.empty()) why = "runc checkpoint ended with " + std::to_string(*code) + " and no reason";
    return Status(Code::kInternal, "container " + target.name.name + ": CRIU: " + why);
  }

  Status CopyAll() {
    for (const Target& target : targets_) {
      HF_RETURN_IF_ERROR(InTime());
      if (!target.upper.empty()) HF_RETURN_IF_ERROR(ArchiveTree(target.upper, target.folder + "/upper.tar"));
      HF_RETURN_IF_ERROR(KeepOpenProjectedFiles(target.freezer.Pids(), target.spec, target.folder + "/projected"));
      HF_RETURN_IF_ERROR(WriteFileAtomically(target.folder + "/config.json", DumpJson(target.spec.json())));
    }
    if (!request_.volumes.empty()) HF_RETURN_IF_ERROR(MakeDirs(landing_ + "/volumes"));
    for (const DumpVolume& volume : request_.volumes) {
      HF_RETURN_IF_ERROR(InTime());
      HF_RETURN_IF_ERROR(ArchiveTree(volume.path, landing_ + "/volumes/" + volume.name + ".tar"));
    }
    for (const Spec::Mount& mount : targets_[0].spec.Mounts()) {
      // The sandbox's; a pod that shares the host's IPC has the node's own /dev/shm, which is not the pod's to keep.
      if (mount.destination != "/dev/shm" || !mount.source.starts_with('/') || mount.source == "/dev/shm") continue;
      HF_RETURN_IF_ERROR(ArchiveTree(mount.source, landing_ + "/shm.tar"));
    }
    return InTime();
  }

  Status InTime() const {
    return Left() > Duration(0) ? Status::Ok() : Status(Code::kDeadlineExceeded, "the deadline passed while files were copied");
  }

  // A process that ran on between its dump and its end would run twice.
  Status StillFrozen() const {
    for (const Target& target : targets_) {
      if (!target.freezer.IsFrozen())
        return Status(Code::kFailedPrecondition, "container " + target.name.name + " was thawed by somebody else during the dump");
    }
    return Status::Ok();
  }

  Status ThawAll() {
    Status first = Status::Ok();
    for (const Target& target : targets_) {
      Status status = target.freezer.Thaw();
      if (!status.ok() && first.ok()) first = status.With("container " + target.name.name);
    }
    return first;
  }

  void Measure(const std::string& dir, int depth) {
    Result<std::vector<std::string>> names = ListDir(dir);
    if (!names.ok() || depth > 8) return;
    for (const std::string& name : *names) {
      struct stat info;
      if (lstat((dir + "/" + name).c_str(), &info) != 0) continue;
      if (S_ISDIR(info.st_mode)) Measure(dir + "/" + name, depth + 1);
      if (S_ISREG(info.st_mode)) (name.starts_with("pages-") ? result_.memory_bytes : result_.files_bytes) += info.st_size;
    }
  }

  void Discard() {
    for (const DumpContainer& container : request_.containers) {
      for (const char* part : {"/images", "/upper.tar", "/projected", "/config.json"}) {
        Status removed = RemoveAll(landing_ + "/" + container.name + part);
        if (!removed.ok()) LogWarning("partial dump not removed", {{"error", removed.message()}});
      }
    }
    for (const char* part : {"/volumes", "/shm.tar"}) {
      Status removed = RemoveAll(landing_ + part);
      if (!removed.ok()) LogWarning("partial dump not removed", {{"error", removed.message()}});
    }
  }

  const DumpRequest request_;
  const std::string landing_;
  const Runc runc_;
  MonoTime deadline_, frozen_at_;
  std::vector<Target> targets_;
  DumpResult result_;
  std::string reason_;
};

template <class T>
Result<T> ReadAs(const std::string& path) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  Result<Json> json = ParseJson(text);
  if (!json.ok()) return json.status().With(path);
  Result<T> value = T::FromJson(*json);
  if (!value.ok()) return value.status().With(path);
  return value;
}

}  // namespace

Result<DumpRequest> ReadDumpRequest(const std::string& landing) { return ReadAs<DumpRequest>(landing + "/request.json"); }
Result<DumpResult> ReadDumpResult(const std::string& landing) { return ReadAs<DumpResult>(landing + "/result.json"); }

Result<DumpResult> Dumper::Run(const std::string& landing) const {
  HF_ASSIGN_OR_RETURN(DumpRequest request, ReadDumpRequest(landing));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string pod_uid = request.pod_uid;
  runtime::Run run(node_, runc_, std::move(request), landing);
  HF_ASSIGN_OR_RETURN(PodLock lock, PodLock::Take(node_, pod_uid, run.deadline()));
  Result<DumpResult> before = ReadDumpResult(landing);
  if (before.ok() || before.status().code() != Code::kNotFound) return before;
  DumpResult result = run.Go();
  HF_FAULT_POINT("runtime.before_result");
  HF_RETURN_IF_ERROR(WriteFileAtomically(landing + "/result.json", DumpJson(result.ToJson())));
  return result;
}

void LeaveCaller() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  setsid();  // fails when we lead a group already, which is as good
  // On cgroup v2 with nsdelegate one moves only within the cgroup namespace one stands in.
  int host = open("/proc/1/ns/cgroup", O_RDONLY | O_CLOEXEC);
  if (host >= 0) {
    if (setns(host, CLONE_NEWCGROUP) != 0) LogWarning("stays in its cgroup namespace");
    close(host);
  }
  std::vector<std::string> roots{"/sys/fs/cgroup"};
  Result<std::vector<std::string>> names = ListDir("/sys/fs/cgroup");
  if (!Exists("/sys/fs/cgroup/cgroup.procs") && names.ok()) {
    roots.clear();
    for (const std::string& name : *names) roots.push_back("/sys/fs/cgroup/" + name);
  }
  for (const std::string& root : roots) {
    int fd = open((root + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    if (write(fd, "0", 1) != 1) LogWarning("stays in the caller's cgroup", {{"hierarchy", root}});
    close(fd);
  }
}

}  // namespace holdfast::runtime
