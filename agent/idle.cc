#include "agent/idle.h"

#include <algorithm>

#include "api/gpu.h"
#include "base/file.h"
#include "base/log.h"
#include "kube/utf8.h"

namespace holdfast::agent {
namespace {

using std::chrono::seconds;

constexpr Duration kWindow = seconds(60), kPatience = seconds(60), kLookEvery = seconds(10), kJupyterEvery = seconds(30);
constexpr Duration kClocksDiffer = seconds(5);  // the controller's, which finds that it is due, and this node's
constexpr size_t kMaxMessage = 512;
constexpr char kContainerd[] = "containerd://";

constexpr char kActive[] = "Active", kQuiet[] = "Idle", kNotMeasured[] = "NotMeasured", kWatching[] = "Watching";

std::string Millis(int64_t millis) { return std::to_string(millis) + "m"; }

api::Condition Said(const char* status, const char* reason, const std::string& message, WallTime since) {
  api::Condition condition;
  condition.type = api::kIdle;
  condition.status = status;
  condition.reason = reason;
  condition.message = kube::Clip(message, kMaxMessage);
  condition.last_transition_time = FormatTime(since);
  return condition;
}

// The ids of all that run; an error where one does not, or what it does cannot be measured.
Result<std::vector<std::string>> Running(const kube::Pod& pod) {
  std::vector<std::string> ids;
  for (const kube::Container* container : pod.LastingContainers()) {
    const kube::ContainerStatus* status = pod.StatusOf(container->name);
    if (status == nullptr || !status->running) return Status(Code::kUnavailable, "container " + container->name + " does not run");
    const std::string id = status->container_id;
    if (!id.starts_with(kContainerd)) return Status(Code::kUnsupported, "container " + container->name + " is not run by containerd");
    ids.push_back(id.substr(sizeof kContainerd - 1));
  }
  return ids;
}

}  // namespace

Duration IdleJudge::look_every() const { return std::min(kLookEvery, watch_.after / 4); }
Duration IdleJudge::patience() const { return std::min(kPatience, watch_.after / 2); }

bool IdleJudge::WantsJupyter(MonoTime now) const {
  return watch_.jupyter && (!jupyter_at_ || now - asked_jupyter_ >= std::min(kJupyterEvery, watch_.after / 4));
}

bool IdleJudge::Measured(MonoTime now) const {
  const auto fresh = [&](const std::optional<MonoTime>& at) { return at && now - *at <= patience(); };
  return fresh(cpu_at_) && (!watch_.jupyter || fresh(jupyter_at_)) && (!has_gpu_ || fresh(gpu_at_));
}

MonoTime IdleJudge::MeasuredLast() const {
  MonoTime last = cpu_at_.value_or(begun_);
  if (watch_.jupyter) last = std::min(last, jupyter_at_.value_or(begun_));
  if (has_gpu_) last = std::min(last, gpu_at_.value_or(begun_));
  return last;
}

const std::string& IdleJudge::trouble() const {
  if (!cpu_trouble_.empty()) return cpu_trouble_;
  return jupyter_trouble_.empty() ? gpu_trouble_ : jupyter_trouble_;
}

void IdleJudge::Used(MonoTime at, MonoTime seen, std::string how) {
  if (!used_at_ || (quiet_since_ && seen - *quiet_since_ >= watch_.settle())) used_how_ = std::move(how);
  used_at_ = seen;
  // While nothing is known, not even what is older than `at` is: that begins with what is measured next.
  if (quiet_since_) quiet_since_ = std::max(*quiet_since_, at);
}

void IdleJudge::SeeCpu(const UseSample& sample) {
  if (!sample.cpu.ok()) {
    cpu_trouble_ = sample.cpu.status().message();
    return;
  }
  cpu_trouble_.clear();
  const auto& now = *sample.cpu;
  const auto same = [&](const Cpu& before) {
    return before.by_container.size() == now.size() && std::all_of(now.begin(), now.end(), [&](const auto& one) {
             const auto at = before.by_container.find(one.first);
             return at != before.by_container.end() && at->second <= one.second;
           });
  };
  if (!samples_.empty() && !same(samples_.back())) {
    samples_.clear();
    Used(sample.at, sample.at, "a container was started");
  }
  cpu_at_ = sample.at;
  samples_.push_back({sample.at, now});
  const Duration window = std::min(kWindow, watch_.after / 4);
  while (samples_.size() > 2 && sample.at - samples_[1].at >= window) samples_.pop_front();
  const Cpu& base = samples_.front();
  if (sample.at <= base.at) return;
  Duration used{0};
  for (const auto& [id, time] : now) used += time - base.by_container.at(id);
  const double millis = 1000.0 * std::chrono::duration<double>(used).count() / std::chrono::duration<double>(sample.at - base.at).count();
  if (millis >= static_cast<double>(watch_.cpu_below_millis)) {
    Used(
        sample.at, sample.at,
        "it uses " + Millis(static_cast<int64_t>(std::min(millis, 1e9))) + " of CPU, and not less than " + Millis(watch_.cpu_below_millis));
  }
}

void IdleJudge::SeeJupyter(const UseSample& sample) {
  if (!sample.jupyter) return;
  asked_jupyter_ = sample.at;
  const Result<JupyterUse>& use = *sample.jupyter;
  if (!use.ok()) {
    jupyter_trouble_ = use.status().message();
    return;
  }
  jupyter_trouble_.clear();
  jupyter_at_ = sample.at;
  if (!use->busy.empty()) return Used(sample.at, sample.at, use->busy);
  if (!use->last_activity) return;
  const Duration ago = std::max<Duration>(sample.wall - *use->last_activity, Duration(0));
  // Before this began it says nothing new: what was resumed has slept since.
  if (ago < sample.at - begun_) Used(sample.at - ago, sample.at, "its Jupyter server was used");
}

void IdleJudge::SeeGpu(const UseSample& sample) {
  has_gpu_ = sample.gpu.has_value();
  if (!has_gpu_ || !sample.gpu->ok()) {
    gpu_trouble_ = has_gpu_ ? sample.gpu->status().message() : "";
    return;
  }
  gpu_trouble_.clear();
  gpu_at_ = sample.at;
  const auto percent = static_cast<int>((*sample.gpu)->percent);
  if (percent < watch_.gpu_below_percent) return;
  Used(sample.at, sample.at,
       "its GPU is used at " + std::to_string(percent) + " %, and not below " + std::to_string(watch_.gpu_below_percent) + " %");
}

void IdleJudge::See(const UseSample& sample) {
  // Nothing was seen for longer than is tolerated: what happened meanwhile is not known.
  if (quiet_since_ && !Measured(sample.at)) {
    quiet_since_.reset();
    used_at_.reset();
    samples_.clear();
  }
  SeeCpu(sample);
  SeeJupyter(sample);
  SeeGpu(sample);
  if (!quiet_since_ && Measured(sample.at)) quiet_since_ = sample.at;
}

std::optional<api::Condition> IdleJudge::Judgement(MonoTime now, WallTime wall) const {
  if (!Measured(now)) {
    if (now - MeasuredLast() <= patience()) return std::nullopt;
    return Said("Unknown", kNotMeasured, trouble().empty() ? "it was not looked at" : trouble(), wall);
  }
  if (!quiet_since_) return std::nullopt;
  if (now - *quiet_since_ >= watch_.settle()) {
    if (!trouble().empty()) return std::nullopt;
    // A condition has whole seconds: the next one, or it would be due before its time is over.
    return Said("True", kQuiet, "nothing of it is used", wall - (now - *quiet_since_) + seconds(1) - Duration(1));
  }
  if (used_at_) return Said("False", kActive, used_how_, wall - (now - *used_at_));
  return Said("False", kWatching, "it is watched, and not yet for long enough", wall - (now - begun_));
}

Status IdleJudge::Idle(MonoTime now) const {
  auto no = [](const std::string& why) { return Status(Code::kFailedPrecondition, "it is not idle: " + why); };
  if (!trouble().empty()) return no("it cannot be measured: " + trouble());
  if (!Measured(now) || !quiet_since_) return no("it is not measured yet");
  if (now - *quiet_since_ >= watch_.after - std::min(kClocksDiffer, watch_.after / 10)) return Status::Ok();
  const std::string quiet = "nothing of it was used for " + FormatDuration(std::chrono::duration_cast<seconds>(now - *quiet_since_)) +
                            ", and not for " + FormatDuration(watch_.after);
  return no(used_at_ ? used_how_ + "; " + quiet : quiet + ", which is how long this agent has watched it");
}

std::shared_ptr<IdleWatcher::Watched> IdleWatcher::Of(const std::string& key, bool make) {
  std::lock_guard lock(mutex_);
  if (!make && !watched_.contains(key)) return nullptr;
  auto& entry = watched_[key];
  if (!entry) entry = std::make_shared<Watched>();
  return entry;
}

// Frozen, or about to be: it cannot answer, and does nothing.
bool IdleWatcher::Held(const kube::Pod& pod) const {
  return std::any_of(pod.container_statuses.begin(), pod.container_statuses.end(), [&](const kube::ContainerStatus& status) {
    const std::string id = status.container_id.starts_with(kContainerd) ? status.container_id.substr(sizeof kContainerd - 1) : "";
    return IsSafeName(id) && Exists(layout_.IntentFile(id));
  });
}

// Nothing: it has none.
std::optional<Result<GpuUse>> IdleWatcher::GpuOf(const kube::Pod& pod) {
  int gpus = 0;
  for (const kube::Container* container : pod.LastingContainers()) gpus += api::GpusOf(*container);
  if (gpus == 0) return std::nullopt;
  Result<GpuUse> use = meter_.Gpu(pod.meta.Key());
  if (!use.ok() || use->devices >= gpus) return use;
  return Status(Code::kUnavailable, "of its " + std::to_string(gpus) + " GPUs the metrics name " + std::to_string(use->devices));
}

void IdleWatcher::Measure(Watched& watched, const kube::Pod& pod, bool at_once) {
  UseSample sample{clock_.Mono(), clock_.Wall(), Status(Code::kUnavailable, "not measured"), std::nullopt, GpuOf(pod)};
  const Result<std::vector<std::string>> ids = Running(pod);
  if (!ids.ok()) {
    sample.cpu = ids.status();
  } else {
    std::map<std::string, Duration> times;
    for (const std::string& id : *ids) {
      const Result<Duration> time = meter_.CpuTime(id);
      if (!time.ok()) {
        sample.cpu = time.status();
        break;
      }
      times[id] = *time;
    }
    if (times.size() == ids->size()) sample.cpu = std::move(times);
    if (watched.judge->watch().jupyter && (at_once || watched.judge->WantsJupyter(sample.at))) {
      // Its loopback is the node's: what a tenant names there is not its own.
      sample.jupyter = pod.host_network
                           ? Result<JupyterUse>(Status(Code::kUnsupported, "a Jupyter server in the node's own network is not asked"))
                           : meter_.Jupyter(*ids, pod.pod_ip);
    }
  }
  watched.judge->See(sample);
}

Status IdleWatcher::Tell(Watched& watched, const kube::Pod& pod) {
  const api::Condition* stands = kube::FindCondition(pod.conditions, api::kIdle);
  std::optional<api::Condition> now = watched.judge->Judgement(clock_.Mono(), ServerTime());
  if (!now) {
    // What an agent before us said is not known any more.
    if (!watched.told.empty() || stands == nullptr || stands->reason == kWatching) return Status::Ok();
    now = Said("False", kWatching, "its node's agent has just started, and watches it from now on", ServerTime());
  }
  const std::string what = now->status + "/" + now->reason.str();
  if (watched.told == what) return Status::Ok();
  if (watched.told.empty() && stands == nullptr && now->reason == kWatching) return Status::Ok();  // no news
  HF_RETURN_IF_ERROR(
      cluster_.TellCondition(pod, api::kIdle, now).With("condition " + std::string(api::kIdle) + " of pod " + pod.meta.Key()));
  watched.told = what;
  LogInfo("pod", {{"pod", pod.meta.Key()}, {"idle", now->status}, {"why", now->message}});
  return Status::Ok();
}

Result<std::optional<Duration>> IdleWatcher::Look(const std::string& key, std::stop_token) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  const Result<kube::Pod> pod = cluster_.CachedPod(name.ns, name.name);
  if (!pod.ok() && pod.status().code() != Code::kNotFound) return pod.status();
  const auto watch = pod.ok() && pod->phase == "Running" && !pod->meta.terminating() ? api::IdleWatchOf(pod->meta) : std::nullopt;
  if (!watch) {
    {
      std::lock_guard lock(mutex_);
      watched_.erase(key);
    }
    const bool left = pod.ok() && !pod->meta.terminating() && kube::FindCondition(pod->conditions, api::kIdle) != nullptr;
    if (left && pod->meta.Annotation(api::kIdleWatch).empty()) HF_RETURN_IF_ERROR(cluster_.TellCondition(*pod, api::kIdle, std::nullopt));
    return std::optional<Duration>();
  }
  const std::shared_ptr<Watched> watched = Of(key, true);
  std::lock_guard lock(watched->mutex);
  if (watched->uid != pod->meta.uid || !watched->judge || !(watched->judge->watch() == *watch)) {
    watched->judge.emplace(*watch, clock_.Mono());
    if (watched->uid != pod->meta.uid) watched->told.clear();
    watched->uid = pod->meta.uid;
  }
  if (Held(*pod)) return std::optional(watched->judge->look_every());
  Measure(*watched, *pod, false);
  if (Status told = Tell(*watched, *pod); !told.ok() && told.code() != Code::kNotFound && told.code() != Code::kConflict) {
    LogWarning("cannot say whether a pod is idle", {{"error", told.message()}});
    return std::optional(std::min(options_.retell_after, watched->judge->look_every()));
  }
  return std::optional(watched->judge->look_every());
}

Status IdleWatcher::StillIdle(const kube::Pod& pod) {
  const auto watch = api::IdleWatchOf(pod.meta);
  const std::shared_ptr<Watched> watched = Of(pod.meta.Key(), false);
  Status unknown(Code::kFailedPrecondition, "it is not idle: its node's agent has just begun to watch it");
  if (!watch || !watched) return unknown;
  std::lock_guard lock(watched->mutex);
  if (watched->uid != pod.meta.uid || !watched->judge || !(watched->judge->watch() == *watch)) return unknown;
  Measure(*watched, pod, true);
  Status idle = watched->judge->Idle(clock_.Mono());
  if (!idle.ok()) {
    if (Status told = Tell(*watched, pod); !told.ok()) LogWarning("cannot say that a pod is not idle", {{"error", told.message()}});
  }
  return idle;
}

}  // namespace holdfast::agent
