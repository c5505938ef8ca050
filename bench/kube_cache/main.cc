// What a cache of pods costs: kube_cache [--pods=10000] [--kind=metadata|pod] [--list=pages|stream]. Prints one JSON object: resident bytes
// over the process before it (settled, and at the worst while everything is listed again), heap bytes an object, and events decoded a
// second.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "base/log.h"
#include "bench/kube_cache/pods.h"
#include "kube/informer.h"
#include "kube/objects.h"

namespace holdfast::bench {
namespace {

int64_t StatusKb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  }
  return 0;
}
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t Heap() { return static_cast<int64_t>(mallinfo2().uordblks); }

template <class T>
kube::Informer<T> MakeInformer(kube::Client& client) {
  if constexpr (requires { T::kResource; }) {
    return kube::Informer<T>(client);
  } else {
    return kube::Informer<T>(client, kube::Pod::kResource, {});
  }
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}
double Seconds(MonoTime since) { return std::chrono::duration<double>(Clock::Real().Mono() - since).count(); }

template <class T>
Json Measure(const PodServerOptions& options) {
  auto server = std::make_shared<PodServer>(options);
  kube::Client client(server);
  PodText(0, 1, false);
  malloc_trim(0);
  const int64_t empty_kb = StatusKb("VmRSS"), empty_heap = Heap();
  ResetPeak();
  kube::Informer<T> informer = MakeInformer<T>(client);
  std::atomic<int64_t> told{0};
  informer.AddHandler([&](const auto&, const auto&) { ++told; });
  MonoTime start = Clock::Real().Mono();
  informer.Start();
  if (!informer.WaitForSync(std::chrono::minutes(5), {})) return {{"error", "not synced"}};
  Json out = {{"pods", informer.size()}, {"sync_s", Seconds(start)}, {"pod_bytes", PodText(0, 1, options.metadata_only).size()}};
  const int64_t steady_kb = StatusKb("VmRSS"), steady_heap = Heap();
  out["rss_over_empty_mb"] = static_cast<double>(steady_kb - empty_kb) / 1024;
  out["sync_peak_over_empty_mb"] = static_cast<double>(StatusKb("VmHWM") - empty_kb) / 1024;
  out["heap_per_object"] = (steady_heap - empty_heap) / std::max<int64_t>(1, static_cast<int64_t>(informer.size()));

  for (int percent : {0, 10, 100}) {
    const uint64_t lists = informer.stats().reflector.lists;
    const int64_t before_kb = StatusKb("VmRSS");
    ResetPeak();
    start = Clock::Real().Mono();
    server->Expire(options.pods * percent / 100);
    while (informer.stats().reflector.lists == lists) usleep(1000);
    const std::string name = "relist_" + std::to_string(percent) + "_percent_changed";
    out[name] = {{"seconds", Seconds(start)},
                 {"before_mb", static_cast<double>(before_kb - empty_kb) / 1024},
                 {"peak_mb", static_cast<double>(StatusKb("VmHWM") - empty_kb) / 1024},
                 {"peak_over_before", static_cast<double>(StatusKb("VmHWM") - empty_kb) / static_cast<double>(before_kb - empty_kb)}};
  }

  const int events = 50000;
  const int64_t before = told;
  sleep(1);
  const double cpu = CpuSeconds();
  start = Clock::Real().Mono();
  server->SendEvents(events);
  while (told - before < events) usleep(1000);
  out["events_per_s"] = events / Seconds(start);
  out["events_per_cpu_s"] = events / (CpuSeconds() - cpu);
  out["rss_after_events_mb"] = static_cast<double>(StatusKb("VmRSS") - empty_kb) / 1024;
  start = Clock::Real().Mono();
  size_t bytes = 0;
  for (int i = 0; i < events; ++i) bytes += PodText(i, i, options.metadata_only).size();
  out["of_which_making_the_text_s"] = Seconds(start);
  out["text_mb"] = bytes >> 20;
  return out;
}

int Main(int argc, char** argv) {
  SetLogLevel(LogLevel::kError);
  PodServerOptions options;
  bool metadata = true;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.starts_with("--pods=")) options.pods = std::stoi(flag.substr(7));
    if (flag.starts_with("--kind=")) metadata = flag == "--kind=metadata";
    if (flag.starts_with("--list=")) options.watch_list = flag == "--list=stream";
  }
  options.metadata_only = metadata;
  Json out = metadata ? Measure<kube::Metadata>(options) : Measure<kube::Pod>(options);
  out["kind"] = metadata ? "metadata" : "pod";
  out["list"] = options.watch_list ? "stream" : "pages";
  std::cout << out.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace holdfast::bench

int main(int argc, char** argv) { return holdfast::bench::Main(argc, argv); }
