#include "agent/host_node.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "agent/spawn.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/processor.h"

namespace holdfast::agent {
namespace {

constexpr char kRunc[] = "/opt/holdfast/bin/holdfast-runc";
// Where containerd keeps the bundles of what it runs for the kubelet.
constexpr char kTasks[] = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
constexpr size_t kMaxSpecBytes = 4 << 20;
constexpr Duration kThawWithin = std::chrono::seconds(70);  // it may give device memory back to a GPU
constexpr Duration kMeasureWithin = std::chrono::seconds(3);
constexpr Duration kImageWithin = std::chrono::seconds(2);  // of the ten that holdfast-runc waits for an answer
constexpr std::string_view kDigest = "sha256:";
constexpr Duration kDiesWithin = std::chrono::seconds(2);
constexpr char kCriu[] = "/opt/holdfast/criu/criu";
constexpr int kMaxWalks = 50;
constexpr Duration kBetweenWalks = std::chrono::milliseconds(5);
constexpr size_t kMaxAncestors = 64;

std::string MountNamespace(int pid) {
  char target[64];
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/mnt";
  ssize_t n = readlink(path.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

int ParentOf(int pid) {
  Result<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/status", 64 << 10);
  size_t at = text.ok() ? text->find("\nPPid:") : std::string::npos;
  return at == std::string::npos ? 0 : atoi(text->c_str() + at + 6);
}

// Is the file locked by another process? A short shared lock tells, and is gone at once.
bool Locked(const std::string& path, int* pid) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (pid != nullptr) {
    char text[16] = {};
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    *pid = 0;
    if (n > 0) std::from_chars(text, text + n, *pid);
  }
  close(fd);
  return locked;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// "runc version 1.3.6\n…" → "1.3.6"
std::string LastWord(const std::string& line) { return line.substr(line.rfind(' ') == std::string::npos ? 0 : line.rfind(' ') + 1); }

}  // namespace

Result<int> FindNodeProcess() {
  const std::string ours = MountNamespace(getpid());
  // What `kubectl exec` starts has a parent that ends at any moment (runc): the last ancestor counts, and only if it is there.
  for (int walk = 0; walk < kMaxWalks; ++walk, Clock::Real().Sleep(kBetweenWalks, {})) {
    std::vector<std::pair<int, std::string>> line;  // from us up, each with its namespace
    for (int pid = getpid(); pid > 0 && line.size() < kMaxAncestors; pid = ParentOf(pid)) line.emplace_back(pid, MountNamespace(pid));
    auto node = std::find_if(line.begin(), line.end(), [&](const auto& one) { return one.second != ours; });
    if (node == line.end() || node->second.empty()) continue;
    const std::string theirs = node->second;
    while (node + 1 != line.end() && (node + 1)->second == theirs) ++node;
    if (MountNamespace(node->first) == theirs) return node->first;
  }
  return Status(
      Code::kFailedPrecondition,
      "no process outside of this container is seen: the agent's pod needs hostPID: true and privileged: true (or give --host-pid)");
}

HostNode::HostNode(Layout layout, int host_pid, std::string runc_root)
    : layout_(std::move(layout)), host_pid_(host_pid), runc_root_(std::move(runc_root)) {}

Result<ProcessResult> HostNode::Run(const std::vector<std::string>& argv, Duration timeout) {
  ProcessOptions options;
  options.mount_namespace_of_pid = host_pid_;
  options.timeout = timeout;
  options.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  Result<ProcessResult> result = RunProcess(argv, options);
  if (result.ok() && result->timed_out) return Status(Code::kDeadlineExceeded, argv[0] + " did not end in time on the node");
  return result;
}

// Ended children stay zombies until somebody asks for them, and nobody asks for a dump whose result has been read.
void HostNode::Reap() {
  std::lock_guard lock(mutex_);
  std::erase_if(children_, [](int pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<uint64_t> HostNode::Estimate(const std::vector<std::string>& container_ids, const std::vector<std::string>& folders) {
  std::vector<std::string> argv = {kRunc, "measure", "--root", runc_root_, "--tasks", kTasks};
  argv.insert(argv.end(), container_ids.begin(), container_ids.end());
  argv.insert(argv.end(), folders.begin(), folders.end());
  HF_ASSIGN_OR_RETURN(ProcessResult result, Run(argv, kMeasureWithin));
  if (result.exit_code != 0) return Status(Code::kUnsupported, FirstLine(result.err));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(result.out));
  const int64_t bytes = GetInt(json, {"bytes"}, -1);
  if (bytes < 0) return Status(Code::kDataLoss, "`holdfast-runc measure` is not understood");
  return static_cast<uint64_t>(bytes);
}

Status HostNode::StartDump(const std::string& checkpoint_uid, const std::string& landing) {
  Reap();
  SpawnOptions options;
  options.mount_namespace_of_pid = host_pid_;
  options.cgroup_procs = RootCgroups("/proc/" + std::to_string(host_pid_) + "/root");
  options.lock_file = layout_.DumpLock(checkpoint_uid);
  options.output_file = layout_.DumpLog(checkpoint_uid);
  HF_ASSIGN_OR_RETURN(int pid, SpawnDetached({kRunc, "dump", landing}, options));
  std::lock_guard lock(mutex_);
  children_.insert(pid);
  return Status::Ok();
}

bool HostNode::DumpRunning(const std::string& checkpoint_uid, const std::string& pod_uid) {
  Reap();
  return Locked(layout_.DumpLock(checkpoint_uid), nullptr) || Locked(layout_.PodLock(pod_uid), nullptr);
}

Status HostNode::KillDump(const std::string& checkpoint_uid) {
  int pid = 0;
  // While the lock is held the pid inside cannot have been given to anybody else.
  for (int round = 0; round < 100 && Locked(layout_.DumpLock(checkpoint_uid), &pid); ++round) {
    if (pid > 1) kill(-pid, SIGKILL);
    Clock::Real().Sleep(std::chrono::milliseconds(20), {});
  }
  if (Locked(layout_.DumpLock(checkpoint_uid), &pid))
    return Status(Code::kUnavailable, "the dump process " + std::to_string(pid) + " does not end");
  return Status::Ok();
}

Status HostNode::Resume(const std::string& container_id) {
  Result<ProcessResult> result = Run({kRunc, "thaw", "--root", runc_root_, container_id}, kThawWithin);
  if (result.ok() && result->exit_code == 0) return Status::Ok();
  Result<ContainerState> state = StateOf(container_id);
  if (state.ok() && *state != ContainerState::kPaused) return Status::Ok();
  if (!result.ok()) return result.status();
  return Status(Code::kUnavailable, "cannot thaw: " + FirstLine(result->err.empty() ? result->out : result->err));
}

Result<ContainerState> HostNode::StateOf(const std::string& container_id) {
  Reap();
  if (!IsSafeName(container_id)) return Status(Code::kInvalidArgument, "unsafe container id");
  if (Exists(Path(runc_root_)) && !Exists(Path(runc_root_ + "/" + container_id))) return ContainerState::kGone;
  HF_ASSIGN_OR_RETURN(ProcessResult result, Run({kRunc, "--root", runc_root_, "state", container_id}));
  if (result.exit_code != 0) {
    if (result.err.find("does not exist") != std::string::npos) return ContainerState::kGone;
    return Status(Code::kUnavailable, "the state of container " + container_id + " is not known: " + FirstLine(result.err));
  }
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(result.out));
  const std::string status = GetString(json, {"status"});
  if (status == "paused") return ContainerState::kPaused;
  if (status == "stopped") return ContainerState::kStopped;
  return ContainerState::kRunning;  // also "created": it holds what a running one holds
}

Result<std::vector<NodeContainer>> HostNode::Containers() {
  std::vector<NodeContainer> containers;
  if (!Exists(Path(runc_root_))) return containers;  // none was ever made
  HF_ASSIGN_OR_RETURN(std::vector<std::string> ids, ListDir(Path(runc_root_)));
  for (const std::string& id : ids) {
    Result<std::string> text = ReadFile(Path(std::string(kTasks) + "/" + id + "/config.json"), kMaxSpecBytes);
    Result<Json> spec = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    if (!spec.ok()) continue;  // it is being made, or deleted
    const Json& notes = GetObject(*spec, {"annotations"});
    if (GetString(notes, {"io.kubernetes.cri.container-type"}) != "container") continue;
    NodeContainer container{id, GetString(notes, {"io.kubernetes.cri.sandbox-uid"}),
                            GetString(notes, {"io.kubernetes.cri.sandbox-namespace"}), GetString(notes, {"io.kubernetes.cri.sandbox-name"}),
                            GetString(notes, {"io.kubernetes.cri.container-name"})};
    if (!IsSafeName(id) || !IsSafeName(container.pod_uid)) continue;
    // holdfast-runc names CRIU's configuration: the node's, or a restore's own.
    const std::string criu = GetString(notes, {"org.criu.config"});
    container.ours = criu.starts_with(std::string(runtime::kInstallDir) + "/") || criu.starts_with(std::string(runtime::kStateDir) + "/");
    containers.push_back(std::move(container));
  }
  return containers;
}

Status HostNode::End(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (!IsSafeName(id)) return Status(Code::kInvalidArgument, "unsafe container id");
    Result<ProcessResult> paused = Run({kRunc, "--root", runc_root_, "pause", id});  // what does not run cannot be; the kill counts
    if (!paused.ok())
      LogWarning("cannot freeze a container before it is killed", {{"container", id}, {"error", paused.status().message()}});
  }
  Status first;
  for (const std::string& id : ids) {
    Result<ProcessResult> killed = Run({kRunc, "--root", runc_root_, "kill", "--all", id, "KILL"});
    Status thawed = Resume(id);  // a frozen process takes the signal only when it runs again
    Result<ContainerState> state = StateOf(id);
    const MonoTime until = Clock::Real().Mono() + kDiesWithin;
    while (state.ok() && (*state == ContainerState::kRunning || *state == ContainerState::kPaused) && Clock::Real().Mono() < until) {
      Clock::Real().Sleep(std::chrono::milliseconds(20), {});
      state = StateOf(id);
    }
    if (state.ok() && (*state == ContainerState::kGone || *state == ContainerState::kStopped)) continue;
    if (!first.ok()) continue;
    first = !killed.ok() ? killed.status() : !thawed.ok() ? thawed : Status(Code::kUnavailable, "container " + id + " does not end");
  }
  return first;
}

Status HostNode::RemoveContainer(const std::string& container_id) {
  HF_ASSIGN_OR_RETURN(ContainerState state, StateOf(container_id));
  if (state == ContainerState::kGone) return Status::Ok();
  HF_ASSIGN_OR_RETURN(ProcessResult result, Run({kRunc, "--root", runc_root_, "delete", "--force", container_id}));
  return result.exit_code == 0
             ? Status::Ok()
             : Status(Code::kUnavailable, "container " + container_id + " cannot be removed from runc: " + FirstLine(result.err));
}

std::vector<std::string> DigestsIn(const std::string& listed, const std::string& image) {
  struct Row {
    std::string name, digest;
  };
  std::vector<Row> rows;
  std::istringstream lines(listed);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Row row;
    std::string type;
    if (words >> row.name >> type >> row.digest && row.digest.starts_with(kDigest)) rows.push_back(std::move(row));
  }
  auto own = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == image; });
  if (own == rows.end()) return {};
  std::vector<std::string> digests = {own->digest};
  for (const Row& row : rows) {
    if (row.digest == own->digest && row.name.starts_with(kDigest)) digests.push_back(row.name);
  }
  return digests.size() > 1 ? digests : std::vector<std::string>{};
}

// By containerd's own client, which comes with it.
Result<std::vector<std::string>> HostNode::ImageDigests(const std::string& container_id) {
  if (!IsSafeName(container_id)) return Status(Code::kInvalidArgument, "unsafe container id");
  HF_ASSIGN_OR_RETURN(ProcessResult info, Run({"ctr", "-n", "k8s.io", "containers", "info", container_id}, kImageWithin));
  if (info.exit_code != 0) return Status(Code::kUnavailable, "ctr: " + FirstLine(info.err));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(info.out));
  HF_ASSIGN_OR_RETURN(ProcessResult images, Run({"ctr", "-n", "k8s.io", "images", "ls"}, kImageWithin));
  if (images.exit_code != 0) return Status(Code::kUnavailable, "ctr: " + FirstLine(images.err));
  return DigestsIn(images.out, GetString(json, {"Image"}));
}

std::string HostNode::DumpOutput(const std::string& checkpoint_uid) {
  Result<std::string> text = ReadFile(layout_.DumpLog(checkpoint_uid), 1 << 20);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  size_t from = text->rfind('\n');
  return text->substr(from == std::string::npos ? 0 : from + 1).substr(0, 1000);
}

Json HostNode::Platform() {
  std::lock_guard lock(mutex_);
  if (!platform_.is_null()) return platform_;
  utsname names{};
  uname(&names);
  Json platform = {{"arch", std::string(names.machine) == "x86_64"    ? "amd64"
                            : std::string(names.machine) == "aarch64" ? "arm64"
                                                                      : names.machine},
                   {"kernel", names.release}};
  if (const std::string features = runtime::FeaturesOf(runtime::ReadProcessor()); !features.empty()) platform["cpuFeatures"] = features;
  bool whole = true;
  auto version = [&](const char* key, const std::vector<std::string>& argv) {
    Result<ProcessResult> result = Run(argv);
    if (result.ok() && result->exit_code == 0)
      platform[key] = LastWord(FirstLine(result->out));
    else
      whole = false;
  };
  version("criu", {kCriu, "--version"});
  version("runtime", {kRunc, "--version"});
  if (platform.contains("runtime")) platform["runtime"] = "runc " + platform["runtime"].get<std::string>();
  if (!whole) return platform;
  return platform_ = platform;
}

}  // namespace holdfast::agent
