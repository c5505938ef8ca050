#include "runtime/dump.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/beside.h"
#include "runtime/criu_log.h"
#include "runtime/criu_timers.h"
#include "runtime/freezer.h"
#include "runtime/gpu.h"
#include "runtime/link_remap.h"
#include "runtime/mount_points.h"
#include "runtime/mounts.h"
#include "runtime/namespaces.h"
#include "runtime/network.h"
#include "runtime/network_lock.h"
#include "runtime/own_files.h"
#include "runtime/preflight.h"
#include "runtime/process_tree.h"
#include "runtime/projected.h"
#include "runtime/runc.h"
#include "runtime/spec.h"
#include "runtime/tree.h"
#include "runtime/unix_peers.h"
#include "runtime/watched_paths.h"

namespace holdfast::runtime {
namespace {

using std::chrono::milliseconds;

constexpr int kLooksForNothingSent = 50;
constexpr Duration kBesideFreezesWithin = std::chrono::seconds(2);
constexpr uint64_t kNoSpace = 256 << 10;  // left by whoever ran out of it: a page, or what its last write was short of

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

std::string NetworkOf(int pid) { return "/proc/" + std::to_string(pid) + "/ns/net"; }

const char* ReasonOf(Code code) {
  if (code == Code::kDeadlineExceeded) return "Deadline";
  return code == Code::kUnsupported ? "Unsupported" : "DumpFailed";
}

struct Target {
  DumpContainer name;
  std::string folder, bundle, upper;
  int pid = 0;
  std::vector<std::string> watched;
  Freezer freezer;
  Spec spec;
  std::optional<GpuUse> gpu;
};

class Run {
 public:
  Run(const Node& node, const std::string& runc, DumpRequest request, std::string landing)
      : node_(node),
        request_(std::move(request)),
        landing_(std::move(landing)),
        runc_(runc, {"--root=" + request_.runc_root}, node),
        gpu_(node) {
    const int64_t now = Millis(Clock::Real().Wall().time_since_epoch());
    deadline_ = Clock::Real().Mono() + milliseconds(request_.deadline_unix_ms == 0
                                                        ? kDefaultDeadlineMs
                                                        : std::clamp<int64_t>(request_.deadline_unix_ms - now, 0, 3600000));
  }

  DumpResult Go() {
    Status status = Prepare();
    if (status.ok()) status = Freeze();
    if (status.ok() && request_.barrier_ms > 0) status = AwaitFrozen();
    if (status.ok()) status = DumpAll();
    if (status.ok()) status = CopyAll();
    if (status.ok() && request_.hold_ms > 0) status = AwaitDumped();
    if (status.ok() && (request_.final || request_.barrier_ms > 0)) status = StillFrozen();
    result_.frozen_ms = frozen_at_ == MonoTime() ? 0 : Millis(Clock::Real().Mono() - frozen_at_);
    if (!status.ok() || !request_.final) {
      Status thawed = ThawAll();
      if (!thawed.ok() && status.ok()) status = thawed;
    }
    if (!status.ok()) GiveGpusBack(&status);
    result_.ok = status.ok();
    if (status.ok()) {
      result_.reason = "Completed";
      Measure(landing_, 0);
      return result_;
    }
    result_.reason = reason_.empty() ? ReasonOf(status.code()) : reason_;
    result_.message = status.message();
    struct statvfs space;
    result_.no_space = statvfs(landing_.c_str(), &space) == 0 && uint64_t{space.f_bavail} * space.f_frsize < kNoSpace;
    Discard();
    return result_;
  }

  MonoTime deadline() const { return deadline_; }

 private:
  Duration Left() const { return std::max<Duration>(deadline_ - Clock::Real().Mono(), Duration(0)); }

  Status Prepare() {
    if (Left() == Duration(0)) return Status(Code::kDeadlineExceeded, "the deadline passed before the dump began");
    for (const DumpVolume& volume : request_.volumes) HF_RETURN_IF_ERROR(CheckEmptyDir(volume.path, request_.pod_uid, volume.name));
    for (const DumpContainer& container : request_.containers) {
      Result<ContainerState> state = runc_.State(container.id);
      if (!state.ok()) return Gone(container, state.status().message());
      if (state->status != "running" && state->status != "paused") return Gone(container, "it is " + state->status);
      const std::string bundle = request_.task_dir + "/" + container.id;
      HF_ASSIGN_OR_RETURN(Freezer freezer, Freezer::Of(request_.runc_root, container.id));
      HF_ASSIGN_OR_RETURN(Spec spec, Spec::Load(bundle));
      HF_ASSIGN_OR_RETURN(std::string upper, OverlayUpper(spec.RootPath(bundle)));
      const std::vector<int> pids = freezer.Pids();
      Status fit = CheckDumpable(pids, freezer.unified());
      const std::string netns = NetworkOf(state->pid);
      if (fit.ok()) fit = CheckUnixPeers(pids, netns);
      if (fit.ok()) fit = AwaitNothingSent(pids, netns);
      ForgetLeftLinks(state->pid, pids);
      Result<std::vector<std::string>> watched = fit.ok() ? WatchedPaths(pids) : Result<std::vector<std::string>>(fit);
      Result<std::optional<GpuUse>> gpu = watched.ok() ? gpu_.Examine(pids) : Result<std::optional<GpuUse>>(watched.status());
      if (!gpu.ok()) return gpu.status().With("container " + container.name);
      targets_.push_back({container, landing_ + "/" + container.name, bundle, upper, state->pid, std::move(*watched), std::move(freezer),
                          std::move(spec), std::move(*gpu)});
    }
    return NoteNetwork();
  }

  // What is sent is received in a moment, unless nobody means to.
  static Status AwaitNothingSent(const std::vector<int>& pids, const std::string& netns) {
    Status none;
    for (int look = 0; look < kLooksForNothingSent; ++look) {
      none = CheckNothingSent(pids, netns);
      if (none.code() != Code::kUnavailable) return none;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return Status(Code::kUnsupported, none.message());
  }

  // Also before a dump: the last one may have died with its node.
  static void ForgetLeftLinks(int init_pid, const std::vector<int>& pids) {
    const int left = RemoveLeftLinks("/proc/" + std::to_string(init_pid) + "/root", pids);
    if (left > 0) LogInfo("removed names that a killed CRIU left", {{"files", std::to_string(left)}});
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

  // At a moment when no descriptor is on its way.
  Status Freeze() {
    for (int look = 1;; ++look) {
      HF_RETURN_IF_ERROR(FreezeNow());
      Status none;
      for (const Target& target : targets_) {
        if (none.ok()) none = CheckNothingSent(target.freezer.Pids(), NetworkOf(target.pid));
      }
      if (none.ok()) break;
      if (none.code() != Code::kUnavailable || look == kLooksForNothingSent || Left() == Duration(0)) return none;
      HF_RETURN_IF_ERROR(ThawAll());
      std::this_thread::sleep_for(milliseconds(10));
    }
    HF_FAULT_POINT("runtime.frozen");
    return Status::Ok();
  }

  Status FreezeNow() {
    frozen_at_ = Clock::Real().Mono();
    result_.frozen_at_unix_ms = Millis(Clock::Real().Wall().time_since_epoch());
    const MonoTime until = std::min(deadline_, frozen_at_ + std::chrono::seconds(5));
    for (const Target& target : targets_) {
      Status status = target.freezer.Freeze(until);
      if (!status.ok()) return status.With("container " + target.name.name);
    }
    return Status::Ok();
  }

  Status AwaitFrozen() { return Await(kFrozenFile, kGoFile, frozen_at_, request_.barrier_ms, "do"); }

  // Who goes on sooner speaks to members whose sockets and files are still to be read.
  Status AwaitDumped() { return Await(kDumpedFile, kThawFile, Clock::Real().Mono(), request_.hold_ms, "are dumped"); }

  // Says how far it is, and stands still until it hears that all members of its group are. Nobody may be needed for the thaw: neither the
  // agent nor whom it asks.
  Status Await(const char* said, const char* word, MonoTime from, int64_t limit_ms, const char* what) {
    const std::string here = landing_ + "/" + said, all = landing_ + "/" + word;
    const MonoTime began = Clock::Real().Mono(), until = std::min(deadline_, from + milliseconds(limit_ms));
    HF_RETURN_IF_ERROR(WriteFileAtomically(here, "{}"));
    while (!Exists(all) && Clock::Real().Mono() < until) std::this_thread::sleep_for(milliseconds(5));
    result_.barrier_ms += Millis(Clock::Real().Mono() - began);
    const bool told = Exists(all);
    for (const std::string& file : {here, all}) HF_RETURN_IF_ERROR(RemoveAll(file));
    if (told) return StillFrozen();
    reason_ = "GroupMemberFailed";
    return Status(Code::kDeadlineExceeded, "it stood still for " + std::to_string(std::max<int64_t>(Millis(until - from), 0) / 1000) +
                                               " s, and nobody said that all members of its group " + what + ": it was thawed");
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

  // runc gives CRIU the one file of options that the container was created with; CRIU reads a second one that its environment names.
  Status TellCriu(const Target& target) const {
    const std::string path = target.folder + "/criu.conf";
    std::string options;
    for (const std::string& watched : target.watched) {
      if (watched.find_first_of("\"\\\n") == std::string::npos) options += "irmap-scan-path \"" + watched + "\"\n";
    }
    if (target.gpu) options += gpu_.CriuOptions(Left());
    if (options.empty()) {
      unsetenv("CRIU_CONFIG_FILE");  // NOLINT(concurrency-mt-unsafe)
      return Status::Ok();
    }
    setenv("CRIU_CONFIG_FILE", path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    return WriteFileAtomically(path, options);
  }

  Status DumpOne(const Target& target) {
    const std::string images = target.folder + "/images";
    HF_RETURN_IF_ERROR(UnmountAndRemove(target.folder));
    HF_RETURN_IF_ERROR(MakeDirs(images));
    HF_RETURN_IF_ERROR(TellCriu(target));
    const MonoTime from = Clock::Real().Mono();
    auto hold = [&target](pid_t runc) { HoldStill(target, runc); };
    Result<int> code =
        runc_.RunAttached({"--log=" + target.folder + "/runc.log", "--log-format=json", "checkpoint", "--leave-running", "--image-path",
                           images, "--work-path", target.folder, "--tcp-established", "--file-locks", target.name.id},
                          Left(), hold);
    KillOrphans();
    result_.dump_ms += Millis(Clock::Real().Mono() - from);
    if (code.ok() && *code == 0 && Exists(images + "/inventory.img")) {
      // CRIU thawed it for its GPU and asked for it to be frozen again, but did not wait for it.
      if (target.gpu) HF_RETURN_IF_ERROR(target.freezer.Freeze(deadline_).With("container " + target.name.name));
      return MendTimers(images).With("container " + target.name.name);
    }
    // A pod that goes on without its packets would be worse than no checkpoint.
    EndSocketRepair(target.freezer.Pids());
    ForgetLeftLinks(target.pid, target.freezer.Pids());
    Result<int> unlocked = RemoveNetworkLock(NetworkOf(target.pid));
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
    std::vector<std::string> ours;
    for (const Target& target : targets_) ours.push_back(target.name.id);
    HeldBeside beside(node_, request_.runc_root, request_.pod_uid);
    result_.message = beside.Freeze(ours, std::min(deadline_, Clock::Real().Mono() + kBesideFreezesWithin));
    HF_FAULT_POINT("runtime.beside_held");
    std::list<LinkRemaps> names;  // of all containers: they may share a volume
    for (const Target& target : targets_) {
      names.emplace_back();
      Status kept = names.back().Make(target.folder + "/images", "/proc/" + std::to_string(target.pid) + "/root", target.freezer.Pids());
      if (!kept.ok()) return kept.With("container " + target.name.name);
    }
    for (const Target& target : targets_) {
      HF_RETURN_IF_ERROR(InTime());
      if (!target.upper.empty()) HF_RETURN_IF_ERROR(ArchiveTree(target.upper, target.folder + "/upper.tar", deadline_));
      HF_RETURN_IF_ERROR(KeepOpenProjectedFiles(target.freezer.Pids(), target.spec, target.folder + "/projected"));
      HF_RETURN_IF_ERROR(WriteFileAtomically(target.folder + "/config.json", DumpJson(target.spec.json())));
      if (target.gpu) HF_RETURN_IF_ERROR(WriteFileAtomically(target.folder + "/" + kGpuFile, DumpJson(target.gpu->ToJson())));
    }
    if (!request_.volumes.empty()) HF_RETURN_IF_ERROR(MakeDirs(landing_ + "/volumes"));
    for (const DumpVolume& volume : request_.volumes) {
      HF_RETURN_IF_ERROR(ArchiveTree(volume.path, landing_ + "/volumes/" + volume.name + ".tar", deadline_));
    }
    HF_ASSIGN_OR_RETURN(const std::string shm, SandboxShm(targets_[0].spec.identity().sandbox_id));
    if (!shm.empty()) HF_RETURN_IF_ERROR(ArchiveTree(shm, landing_ + "/shm.tar", deadline_));
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

  // CRIU's plugin does it, unless it was killed.
  void GiveGpusBack(Status* status) {
    for (const Target& target : targets_) {
      if (!target.gpu) continue;
      Status released = gpu_.Release(target.freezer.Pids(), Clock::Real().Mono() + kGpuBackWithin);
      if (!released.ok())
        *status = Status(status->code(), status->message() + "; container " + target.name.name + ": " + released.message());
    }
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
      for (const char* part : {"/images", "/upper.tar", "/projected", "/config.json", "/gpu.json"}) {
        Status removed = RemoveAll(landing_ + "/" + container.name + part);
        if (!removed.ok()) LogWarning("partial dump not removed", {{"error", removed.message()}});
      }
    }
    for (const char* part : {"/volumes", "/shm.tar"}) {
      Status removed = RemoveAll(landing_ + part);
      if (!removed.ok()) LogWarning("partial dump not removed", {{"error", removed.message()}});
    }
  }

  const Node& node_;
  const DumpRequest request_;
  const std::string landing_;
  const Runc runc_;
  const Gpu gpu_;
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
