// Finds out which pods of this node are not used any more, for the controller to suspend (reconcilers/suspendedworkload/idle.h). Judged
// here, where the counters are; the API server hears of it only when the judgement changes.
//
// Idle is a pod of which every signal that it was asked for was measured all the time, and none showed use: its CPU use over a minute
// (a quarter of `after` where that is less) was below the limit, none of its GPUs was used as much as its limit, no kernel of its Jupyter
// server computed, and nothing was asked of kernels and terminals. What is not measured for some time is not idle, and the time begins
// anew. So it does with the agent itself.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "agent/cluster.h"
#include "agent/layout.h"
#include "agent/meter.h"
#include "api/idle.h"

namespace holdfast::agent {

// One look at a pod.
struct UseSample {
  MonoTime at;
  WallTime wall;
  Result<std::map<std::string, Duration>> cpu = Status(Code::kUnavailable, "not measured");  // CPU time by container id
  std::optional<Result<JupyterUse>> jupyter;                                                 // nothing: not asked this time
  std::optional<Result<GpuUse>> gpu;                                                         // nothing: it has none
};

// What is known of one pod. Pure; not thread-safe.
class IdleJudge {
 public:
  IdleJudge(api::IdleWatch watch, MonoTime now) : watch_(watch), begun_(now) {}
  const api::IdleWatch& watch() const { return watch_; }
  Duration look_every() const;
  Duration patience() const;  // with what is not measured
  bool WantsJupyter(MonoTime now) const;
  void See(const UseSample& sample);
  // What to tell the controller; nothing while nothing is known. Its last_transition_time is of the moment that it is about.
  std::optional<api::Condition> Judgement(MonoTime now, WallTime wall) const;
  // OK: idle for the whole of `after` (but for what clocks may differ), at this moment. Else why not.
  Status Idle(MonoTime now) const;

 private:
  struct Cpu {
    MonoTime at;
    std::map<std::string, Duration> by_container;
  };
  void SeeCpu(const UseSample& sample);
  void SeeJupyter(const UseSample& sample);
  void SeeGpu(const UseSample& sample);
  void Used(MonoTime at, MonoTime seen, std::string how);
  bool Measured(MonoTime now) const;
  MonoTime MeasuredLast() const;  // the moment up to which every signal was
  const std::string& trouble() const;

  api::IdleWatch watch_;
  MonoTime begun_;
  std::deque<Cpu> samples_;  // those of the window, and one before
  bool has_gpu_ = false;
  std::optional<MonoTime> cpu_at_, jupyter_at_, gpu_at_;  // measured last
  std::optional<MonoTime> quiet_since_;                   // nothing was used since; nothing: not known
  MonoTime asked_jupyter_{};
  std::optional<MonoTime> used_at_;  // seen in use last
  std::string used_how_;
  std::string cpu_trouble_, jupyter_trouble_, gpu_trouble_;  // why the last look could not measure it
};

struct IdleOptions {
  Duration retell_after = std::chrono::seconds(30);  // what could not be written
  // How far the API server's clock (kube/server_time.h) is ahead of the node's own: since when a pod is idle is compared with other times
  // there, and what a Jupyter server says of its times is by the node's. Unset: not at all.
  std::function<Duration()> ahead_of_node;
};

// Thread-safe; one Look for a pod at a time.
class IdleWatcher {
 public:
  IdleWatcher(IdleOptions options, Layout layout, Meter& meter, Cluster& cluster, Clock& clock)
      : options_(std::move(options)), layout_(std::move(layout)), meter_(meter), cluster_(cluster), clock_(clock) {}
  // Of a pod (namespace/name). Nothing: it is not to be watched. A duration: look again then.
  Result<std::optional<Duration>> Look(const std::string& key, std::stop_token stop);
  // Right before its freeze: measured once more, is it idle still?
  Status StillIdle(const kube::Pod& pod);

 private:
  struct Watched {
    std::mutex mutex;
    std::string uid;
    std::optional<IdleJudge> judge;
    std::string told;  // status and reason of the condition
  };
  std::shared_ptr<Watched> Of(const std::string& key, bool make);
  bool Held(const kube::Pod& pod) const;
  std::optional<Result<GpuUse>> GpuOf(const kube::Pod& pod);
  void Measure(Watched& watched, const kube::Pod& pod, bool at_once);
  Status Tell(Watched& watched, const kube::Pod& pod);
  WallTime ServerTime() const { return clock_.Wall() + (options_.ahead_of_node ? options_.ahead_of_node() : Duration(0)); }

  const IdleOptions options_;
  const Layout layout_;
  Meter& meter_;
  Cluster& cluster_;
  Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Watched>> watched_;
};

}  // namespace holdfast::agent
