#include "agent/idle.h"

#include <random>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// What the containers of one pod did: CPU time that grows as the test says.
class FakeMeter final : public Meter {
 public:
  std::map<std::string, Duration> cpu{{"c1", seconds(5)}};
  Result<JupyterUse> jupyter = JupyterUse{};
  bool broken = false;
  int jupyter_asked = 0;
  Result<Duration> CpuTime(const std::string& id) override {
    if (broken || !cpu.contains(id)) return Status(Code::kNotFound, "no cgroup");
    return cpu.at(id);
  }
  Result<GpuUse> gpu = Status(Code::kUnsupported, "no metrics of GPUs");
  Result<GpuUse> Gpu(const std::string& pod) override {
    EXPECT_EQ(pod, "default/web-0");
    return gpu;
  }
  Result<JupyterUse> Jupyter(const std::vector<std::string>&, const std::string&) override {
    ++jupyter_asked;
    return jupyter;
  }
};

class IdleTest : public testing::Test {
 protected:
  IdleTest() {
    EXPECT_TRUE(layout.Make().ok());
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    Watch({minutes(20)});
  }
  void Watch(const api::IdleWatch& watch) {
    cluster.pods["default/web-0"]["metadata"]["annotations"][api::kIdleWatch] = watch.ToAnnotation();
  }
  // Time passes while the pod uses so much CPU, and is looked at as often as is asked for.
  void Pass(Duration time, int64_t millis = 1) {
    const MonoTime until = clock.Mono() + time;
    while (clock.Mono() < until) {
      const auto again = watcher->Look("default/web-0", {});
      ASSERT_TRUE(again.ok()) << again.status().message();
      const Duration step = std::min<Duration>(again->value_or(seconds(10)), until - clock.Mono());
      for (auto& [id, used] : meter.cpu) used += step * millis / 1000;
      clock.Advance(step);
    }
    ASSERT_TRUE(watcher->Look("default/web-0", {}).ok());
  }
  void GiveGpus(const char* count) {
    cluster.pods["default/web-0"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = count;
  }
  std::string Said() const {
    if (cluster.told.empty() || !cluster.told.back().second) return "";
    return cluster.told.back().second->status + "/" + cluster.told.back().second->reason.str();
  }
  std::string Message() const { return cluster.told.back().second->message; }
  WallTime Since() const { return ParseTime(cluster.told.back().second->last_transition_time).value(); }
  Status StillIdle() { return watcher->StillIdle(kube::Pod::FromJson(cluster.pods["default/web-0"])); }
  void RestartAgent() { watcher = std::make_unique<IdleWatcher>(IdleOptions{}, layout, meter, cluster, clock); }

  TempDir dir;
  Layout layout{.run = dir.path() + "/run", .state = dir.path() + "/state", .kubelet = dir.path() + "/kubelet"};
  FakeMeter meter;
  FakeCluster cluster;
  FakeClock clock;
  std::unique_ptr<IdleWatcher> watcher = std::make_unique<IdleWatcher>(IdleOptions{}, layout, meter, cluster, clock);
};

TEST_F(IdleTest, APodOfWhichNothingIsUsedIsIdleAndThatIsWrittenOnce) {
  const WallTime begun = clock.Wall();
  Pass(minutes(4));
  EXPECT_TRUE(cluster.told.empty());
  Pass(minutes(2));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_EQ(Since(), begun);
  Pass(minutes(60));
  EXPECT_EQ(cluster.told.size(), 1u);
}

// Compared by the controller with times of its own.
TEST_F(IdleTest, SinceWhenItIsIdleIsByTheApiServersClock) {
  IdleOptions options;
  options.ahead_of_node = [] { return minutes(15); };
  watcher = std::make_unique<IdleWatcher>(options, layout, meter, cluster, clock);
  const WallTime begun = clock.Wall();
  Pass(minutes(6));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_EQ(Since(), begun + minutes(15));
}

TEST_F(IdleTest, ABusyProcessIsNeverIdleAndSaysHowMuchItUses) {
  Pass(minutes(60), 300);
  EXPECT_EQ(Said(), "False/Active");
  EXPECT_NE(Message().find("300m"), std::string::npos) << Message();
  EXPECT_EQ(cluster.told.size(), 1u);
  EXPECT_FALSE(StillIdle().ok());
}

TEST_F(IdleTest, WhatUsesTheLimitIsNotBelowIt) {
  Watch({minutes(20), 50});
  Pass(minutes(30), 49);
  EXPECT_EQ(Said(), "True/Idle");
  Pass(minutes(3), 50);
  EXPECT_EQ(Said(), "False/Active");
}

TEST_F(IdleTest, IdleMeansForTheWholeTime) {
  Pass(minutes(19));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_FALSE(StillIdle().ok());
  Pass(minutes(2));
  EXPECT_TRUE(StillIdle().ok()) << StillIdle().message();
}

TEST_F(IdleTest, ItIsNotRefusedWhenTheTimeThatWasWrittenIsOver) {
  clock.Advance(milliseconds(400));
  Pass(minutes(6));
  ASSERT_EQ(Said(), "True/Idle");
  Pass(Since() + minutes(20) - clock.Wall());
  EXPECT_TRUE(StillIdle().ok()) << StillIdle().message();
}

TEST_F(IdleTest, WorkThatBeginsAfterItWasJudgedIsSeenRightBeforeTheFreeze) {
  Pass(minutes(30));
  ASSERT_TRUE(StillIdle().ok());
  clock.Advance(seconds(9));
  meter.cpu["c1"] += seconds(5);
  const Status idle = StillIdle();
  EXPECT_FALSE(idle.ok());
  EXPECT_EQ(Said(), "False/Active") << "the controller hears of it at once";
}

TEST_F(IdleTest, ACellThatSleepsIsARunningCell) {
  Watch({minutes(20), 20, true});
  meter.jupyter = JupyterUse{"kernel python3 is busy", clock.Wall()};
  Pass(minutes(60));
  EXPECT_EQ(Said(), "False/Active");
  EXPECT_EQ(Message(), "kernel python3 is busy");
  meter.jupyter = JupyterUse{"", clock.Wall()};
  const WallTime ended = clock.Wall();
  Pass(minutes(30));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_LE(Since() - ended, seconds(40));
}

TEST_F(IdleTest, AnAnswerOfATerminalCountsFromWhenItWasGiven) {
  Watch({minutes(20), 20, true});
  meter.jupyter = JupyterUse{"", clock.Wall() + minutes(10)};
  Pass(minutes(10));
  const WallTime used = clock.Wall();
  Pass(minutes(16));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_EQ(Since(), used);
}

TEST_F(IdleTest, WhatWasUsedBeforeItWasResumedDoesNotCountAsUseNow) {
  Watch({minutes(20), 20, true});
  meter.jupyter = JupyterUse{"", clock.Wall() - std::chrono::hours(60)};
  const WallTime begun = clock.Wall();
  Pass(minutes(6));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_EQ(Since(), begun) << "nor as idleness of two days";
}

TEST_F(IdleTest, AServerThatDoesNotAnswerIsNotIdleAndTheReasonIsSaid) {
  Watch({minutes(20), 20, true});
  meter.jupyter = Status(Code::kUnavailable, "the Jupyter server at port 8888 does not answer");
  Pass(minutes(60));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  EXPECT_NE(Message().find("port 8888"), std::string::npos);
  meter.jupyter = JupyterUse{};
  Pass(minutes(4));
  EXPECT_FALSE(StillIdle().ok());
  Pass(minutes(20));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_TRUE(StillIdle().ok());
}

TEST_F(IdleTest, AMomentWithoutAnAnswerChangesNothingAndALongOneBeginsAnew) {
  Pass(minutes(30));
  meter.broken = true;
  Pass(seconds(30));
  EXPECT_FALSE(StillIdle().ok()) << "but nothing is frozen on a guess";
  meter.broken = false;
  Pass(seconds(20));
  EXPECT_TRUE(StillIdle().ok());
  EXPECT_EQ(cluster.told.size(), 1u);
  meter.broken = true;
  Pass(minutes(3));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  meter.broken = false;
  Pass(minutes(1));
  EXPECT_FALSE(StillIdle().ok());
}

TEST_F(IdleTest, AnEarlierUseSaysNothingOfATimeThatWasNotMeasured) {
  Watch({minutes(20), 20, true});
  Pass(minutes(1));
  meter.jupyter = JupyterUse{"", clock.Wall()};
  Pass(minutes(30));
  meter.broken = true;
  Pass(minutes(3));
  meter.broken = false;
  EXPECT_FALSE(StillIdle().ok());
}

TEST_F(IdleTest, AnAgentThatStartsTakesBackWhatTheLastOneSaid) {
  Pass(minutes(30));
  ASSERT_EQ(Said(), "True/Idle");
  RestartAgent();
  EXPECT_FALSE(StillIdle().ok());
  Pass(seconds(10));
  EXPECT_EQ(Said(), "False/Watching");
  EXPECT_FALSE(StillIdle().ok());
  Pass(minutes(20));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_TRUE(StillIdle().ok());
}

TEST_F(IdleTest, ARestartedContainerIsUse) {
  Pass(minutes(30));
  meter.cpu = {{"c2", Duration(0)}};
  cluster.pods["default/web-0"]["status"]["containerStatuses"][0]["containerID"] = "containerd://c2";
  Pass(seconds(20));
  EXPECT_EQ(Said(), "False/Active");
}

TEST_F(IdleTest, APodWhoseGpuIsNotMeasuredIsNotIdle) {
  GiveGpus("1");
  Pass(minutes(60));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  EXPECT_EQ(Message(), "no metrics of GPUs");
}

TEST_F(IdleTest, APodIsIdleWhenItsGpuIsNotUsedEither) {
  GiveGpus("1");
  meter.gpu = GpuUse{1, 1.9};
  Pass(minutes(30));
  EXPECT_EQ(Said(), "True/Idle");
  EXPECT_TRUE(StillIdle().ok());
  meter.gpu = GpuUse{1, 2.0};
  EXPECT_EQ(StillIdle().message(),
            "it is not idle: its GPU is used at 2 %, and not below 2 %; nothing of it was used for 0ms, and not for 20m");
  EXPECT_EQ(Said(), "False/Active");
}

TEST_F(IdleTest, AGpuThatComputesKeepsItsPodAwakeWhileTheCpuIsQuiet) {
  Watch({.after = minutes(20), .gpu_below_percent = 30});
  GiveGpus("1");
  meter.gpu = GpuUse{1, 98};
  Pass(minutes(60));
  EXPECT_EQ(Said(), "False/Active");
  meter.gpu = GpuUse{1, 29};
  Pass(minutes(30));
  EXPECT_EQ(Said(), "True/Idle");
}

TEST_F(IdleTest, AGpuThatTheMetricsDoNotNameMayBeInUse) {
  GiveGpus("2");
  meter.gpu = GpuUse{1, 0};
  Pass(minutes(60));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  EXPECT_EQ(Message(), "of its 2 GPUs the metrics name 1");
  meter.gpu = GpuUse{2, 0};
  Pass(minutes(30));
  EXPECT_EQ(Said(), "True/Idle");
}

TEST_F(IdleTest, AnExporterThatIsGoneForLongMakesItsTimeBeginAnew) {
  GiveGpus("1");
  meter.gpu = GpuUse{1, 0};
  Pass(minutes(30));
  meter.gpu = Status(Code::kUnavailable, "the exporter does not answer");
  EXPECT_FALSE(StillIdle().ok());
  Pass(minutes(3));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  meter.gpu = GpuUse{1, 0};
  Pass(minutes(10));
  EXPECT_FALSE(StillIdle().ok());
  Pass(minutes(20));
  EXPECT_TRUE(StillIdle().ok());
}

TEST_F(IdleTest, AServerInTheNodesOwnNetworkIsNotAsked) {
  Watch({minutes(20), 20, true});
  cluster.pods["default/web-0"]["spec"]["hostNetwork"] = true;
  Pass(minutes(60));
  EXPECT_EQ(Said(), "Unknown/NotMeasured");
  EXPECT_EQ(meter.jupyter_asked, 0);
}

TEST_F(IdleTest, AFrozenPodIsLeftAlone) {
  Watch({minutes(20), 20, true});
  Pass(minutes(1));
  const int asked = meter.jupyter_asked;
  ASSERT_TRUE(WriteFileAtomically(layout.IntentFile("c1"), "{}").ok());
  Pass(seconds(40));
  EXPECT_EQ(meter.jupyter_asked, asked);
}

TEST_F(IdleTest, WhatIsNotWatchedAnyMoreSaysNothingAnyMore) {
  Pass(minutes(30));
  cluster.pods["default/web-0"]["metadata"].erase("annotations");
  const auto again = watcher->Look("default/web-0", {});
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(*again);
  ASSERT_EQ(cluster.told.size(), 2u);
  EXPECT_FALSE(cluster.told.back().second);
}

TEST_F(IdleTest, WhatCouldNotBeWrittenIsWrittenLater) {
  cluster.reachable = false;
  Pass(minutes(6));
  EXPECT_TRUE(cluster.told.empty());
  cluster.reachable = true;
  Pass(seconds(20));
  EXPECT_EQ(Said(), "True/Idle");
}

// Random days of a notebook: cells, CPU, terminals, servers that hang, agents that die, containers that restart. Whatever happens, what is
// let through to the freeze was not used for all of `after`; and what is left in peace is.
TEST_F(IdleTest, NothingThatIsUsedIsEverLetThroughAndWhatIsNotAlwaysIs) {
  int let_through = 0, refused = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    auto dice = [&](int sides) { return static_cast<int>(random() % static_cast<unsigned>(sides)); };
    const api::IdleWatch watch{minutes(2 + dice(20)), 20, dice(2) == 0};
    Watch(watch);
    meter.broken = false;
    meter.jupyter = JupyterUse{};
    RestartAgent();
    MonoTime used = clock.Mono();  // when it was used last, or not measured, or the agent began
    bool busy_cell = false;
    for (int i = 0; i < 40; ++i) {
      const Duration time = seconds(10 + dice(400));
      const int what = dice(12);
      if (what == 0) {
        ASSERT_NO_FATAL_FAILURE(Pass(time, 60 + dice(1000)));
        // Less than the window is an average with what was before it, and may stay below the limit.
        if (time >= minutes(1)) used = clock.Mono();
      } else if (what == 1 && watch.jupyter) {
        busy_cell = true;
        meter.jupyter = JupyterUse{"kernel python3 is busy", clock.Wall()};
        ASSERT_NO_FATAL_FAILURE(Pass(time));
        used = clock.Mono();
        busy_cell = dice(3) == 0;
        if (!busy_cell) meter.jupyter = JupyterUse{"", clock.Wall()};
      } else if (what == 2) {
        RestartAgent();
        used = clock.Mono();
      } else if (what == 3) {
        meter.broken = true;
        ASSERT_NO_FATAL_FAILURE(Pass(time));
        EXPECT_FALSE(StillIdle().ok()) << "not measured";
        meter.broken = false;
        if (time > minutes(2)) used = clock.Mono();
      } else if (what == 4) {
        meter.cpu["c1"] = Duration(0);
        used = clock.Mono();
        ASSERT_NO_FATAL_FAILURE(Pass(time));
      } else {
        ASSERT_NO_FATAL_FAILURE(Pass(time));
      }
      if (busy_cell) used = clock.Mono();
      const bool idle = StillIdle().ok();
      ++(idle ? let_through : refused);
      if (idle) {
        EXPECT_GE(clock.Mono() - used, watch.after - seconds(5)) << "after " << FormatDuration(watch.after);
      }
    }
    if (busy_cell) meter.jupyter = JupyterUse{"", clock.Wall()};
    ASSERT_NO_FATAL_FAILURE(Pass(watch.after + minutes(4)));
    EXPECT_TRUE(StillIdle().ok()) << StillIdle().message();
    EXPECT_EQ(Said(), "True/Idle");
    EXPECT_LE(cluster.told.size(), 3u * 40) << "few writes";
    cluster.told.clear();
  }
  EXPECT_GT(let_through, 20);
  EXPECT_GT(refused, 100);
}

TEST(Meter, ReadsTheCpuTimeOfBothCgroupVersions) {
  TempDir dir;
  EXPECT_FALSE(ReadCpuTime(dir.path(), false).ok());
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/cpuacct.usage", "12345678901\n").ok());
  EXPECT_EQ(*ReadCpuTime(dir.path(), false), std::chrono::nanoseconds(12345678901));
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/cpu.stat", "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n").ok());
  EXPECT_EQ(*ReadCpuTime(dir.path(), true), milliseconds(1500));
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/cpu.stat", "nr_periods 3\nusage_usec 7\n").ok());
  EXPECT_EQ(*ReadCpuTime(dir.path(), true), std::chrono::microseconds(7));
  for (const char* hostile : {"", "usage_usec", "usage_usec \n", "usage_usec -3\n", "system_usec 4\n"}) {
    ASSERT_TRUE(WriteFileAtomically(dir.path() + "/cpu.stat", hostile).ok());
    EXPECT_FALSE(ReadCpuTime(dir.path(), true).ok()) << hostile;
  }
}

}  // namespace
}  // namespace holdfast::agent
