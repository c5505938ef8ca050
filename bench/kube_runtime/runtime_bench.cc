// kube_runtime_bench [queue|controller|reconcile|admission]...: the work queue's cost an item, reconciles a second of one worker that does
// nothing, of one that looks into a cache of pods, and the latency of a mutating webhook under a steady load of 50 kept connections. One
// JSON object a line.
#include <algorithm>
#include <cstdio>
#include <random>

#include "bench/kube_cache/pods.h"
#include "kube/admission.h"
#include "kube/connection_queue.h"
#include "kube/controller.h"
#include "kube/informer.h"
#include "kube/json_patch.h"
#include "kube/metrics.h"
#include "kube/objects.h"
#include "tests/unit/kube/test_certificate.h"

namespace {

using namespace holdfast;  // NOLINT(google-build-using-namespace): main

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRuns = 5;

double SecondsSince(MonoTime start) { return std::chrono::duration<double>(Clock::Real().Mono() - start).count(); }

// Of the whole process: what neighbours on the machine do does not show in it.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::vector<std::string> Keys(int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back("default/pod-" + std::to_string(100000 + i));
  return keys;
}

void Print(const char* what, int keys, const char* unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf(R"({"what":"%s","keys":%d,"unit":"%s","median":%.1f,"min":%.1f,"max":%.1f})"
              "\n",
              what, keys, unit, values[values.size() / 2], values.front(), values.back());
  std::fflush(stdout);
}

void BenchQueue() {
  for (int count : {1000, 10000, 100000}) {
    const std::vector<std::string> keys = Keys(count);
    std::vector<double> ready, delayed;
    for (int run = 0; run < kRuns; ++run) {
      kube::WorkQueue queue;
      double start = CpuSeconds();
      for (const std::string& key : keys) queue.Add(key);
      for (int i = 0; i < count; ++i) queue.Done(queue.Get({})->key);
      ready.push_back((CpuSeconds() - start) * 1e9 / count);
      start = CpuSeconds();
      for (const std::string& key : keys) queue.AddAfter(key, std::chrono::nanoseconds(1));
      for (int i = 0; i < count; ++i) queue.Done(queue.Get({})->key);
      delayed.push_back((CpuSeconds() - start) * 1e9 / count);
    }
    Print("queue: add, get, done", count, "ns of CPU an item", ready);
    Print("queue: add with delay, get, done", count, "ns of CPU an item", delayed);
  }
}

void BenchController() {
  for (int count : {10000, 30000, 100000}) {
    const std::vector<std::string> keys = Keys(count);
    std::vector<double> rates, cpu;
    for (int run = 0; run < kRuns; ++run) {
      prometheus::Registry registry;
      kube::RuntimeMetrics metrics(registry);
      std::atomic<int> done{0};
      kube::Controller controller({.name = "noop", .metrics = &metrics},
                                  [&](const std::string&, std::stop_token) -> Result<kube::ReconcileResult> {
                                    if (++done == count) done.notify_all();
                                    return kube::ReconcileResult{};
                                  });
      for (const std::string& key : keys) controller.Enqueue(key, kube::kLowPriority);
      const MonoTime start = Clock::Real().Mono();
      const double cpu_start = CpuSeconds();
      if (!controller.Start().ok()) return;
      for (int seen = done; seen < count; seen = done) done.wait(seen);
      rates.push_back(count / SecondsSince(start));
      cpu.push_back(count / (CpuSeconds() - cpu_start));
      controller.Stop();
    }
    Print("controller: no-op reconciles, one worker, with metrics", count, "a second", rates);
    Print("controller: no-op reconciles, one worker, with metrics", count, "a second of CPU", cpu);
  }
}

// A cache of so many pods, and one worker that looks each of them up.
class PodReconciles {
 public:
  explicit PodReconciles(int pods) : pods_(pods), client_(std::make_shared<bench::PodServer>(bench::PodServerOptions{.pods = pods})) {
    cache_.Start();
    cache_.WaitForSync(std::chrono::minutes(5), {});
  }
  // Nanoseconds of CPU for each of them, in the order in which the cache has them or in none.
  double Run(bool shuffled) {
    int done = 0;
    std::atomic<bool> all = false;
    double end = 0;
    kube::Controller controller({.name = "pods"}, [&](const std::string& key, std::stop_token) -> Result<kube::ReconcileResult> {
      const auto [ns, name] = kube::ObjectKey::Parse(key);
      const auto pod = cache_.Get(ns, name);
      if (pod && !pod->meta.annotations.contains("none") && ++done == pods_) {
        end = CpuSeconds();
        all = true;
        all.notify_all();
      }
      return kube::ReconcileResult{};
    });
    auto pods = cache_.List();
    if (shuffled) std::shuffle(pods.begin(), pods.end(), random_);
    for (const auto& pod : pods) controller.Enqueue(pod->meta.Key(), kube::kLowPriority);
    const double start = CpuSeconds();
    if (!controller.Start().ok()) return 0;
    all.wait(false);
    controller.Stop();
    return (end - start) * 1e9 / pods_;
  }

 private:
  const int pods_;
  kube::Client client_;
  kube::Informer<kube::Pod> cache_{client_};
  std::mt19937 random_;  // seeded: the same each time
};

// The sizes in turn, so that what else the machine does falls on all of them.
void BenchReconcile() {
  struct Size {
    std::unique_ptr<PodReconciles> pods;
    std::vector<double> in_order{}, shuffled{};
  };
  std::map<int, Size> sizes;
  for (int count : {10000, 100000}) sizes[count].pods = std::make_unique<PodReconciles>(count);
  for (int run = 0; run < 4 * kRuns; ++run) {
    for (auto& [count, size] : sizes) {
      size.in_order.push_back(size.pods->Run(false));
      size.shuffled.push_back(size.pods->Run(true));
    }
  }
  for (auto& [count, size] : sizes) {
    Print("reconcile: looks up its pod, one worker, as the cache has them", count, "ns of CPU a key", size.in_order);
    Print("reconcile: looks up its pod, one worker, in no order", count, "ns of CPU a key", size.shuffled);
  }
}

// A pod of about 5 KB, as an API server would send it.
std::string Review() {
  Json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata", {{"name", "web-0"}, {"namespace", "default"}, {"labels", {{"app", "web"}}}}},
              {"spec", {{"serviceAccountName", "default"}, {"containers", Json::array()}}}};
  for (int c = 0; c < 2; ++c) {
    Json container = {{"name", "c" + std::to_string(c)}, {"image", "registry.example.org/team/service:1.2.3"}, {"env", Json::array()}};
    for (int e = 0; e < 30; ++e) container["env"].push_back({{"name", "VARIABLE_" + std::to_string(e)}, {"value", std::string(24, 'v')}});
    pod["spec"]["containers"].push_back(container);
  }
  return DumpJson({{"apiVersion", "admission.k8s.io/v1"},
                   {"kind", "AdmissionReview"},
                   {"request",
                    {{"uid", "7f0b"},
                     {"operation", "CREATE"},
                     {"namespace", "default"},
                     {"name", "web-0"},
                     {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
                     {"resource", {{"group", ""}, {"version", "v1"}, {"resource", "pods"}}},
                     {"object", pod}}}});
}

// Requests leave when they are due, whatever became of those before, and their time counts from then.
void BenchAdmission() {
  constexpr int kConnections = 50, kPerSecond = 500, kSeconds = 20;
  const auto certificate = kube::TestCertificate::Make("bench", 1);
  prometheus::Registry registry;
  kube::RuntimeMetrics metrics(registry);
  kube::AdmissionServer server(&metrics);
  server.Handle("/mutate", [](const kube::AdmissionRequest& request) {
    kube::AdmissionResponse response;
    kube::JsonPatch patch;
    for (size_t i = 0; i < GetArray(request.object, {"spec", "containers"}).size(); ++i) {
      patch.Add("/spec/containers/" + std::to_string(i) + "/imagePullPolicy", "IfNotPresent");
    }
    response.patch = patch.Add("/spec/runtimeClassName", "example").json();
    return response;
  });
  if (!server.SetCertificate(certificate.certificate_pem, certificate.key_pem).ok() || !server.Start("127.0.0.1", 0).ok()) return;
  const std::string body = Review();
  std::mutex mutex;
  std::vector<double> took;
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> clients;
    const MonoTime start = Clock::Real().Mono() + seconds(2);  // for the handshakes
    for (int c = 0; c < kConnections; ++c) {
      clients.emplace_back([&, c] {
        httplib::SSLClient client("127.0.0.1", server.port());
        client.enable_server_certificate_verification(false);
        client.set_keep_alive(true);
        client.set_tcp_nodelay(true);
        std::vector<double> mine;
        (void)client.Post("/mutate", body, "application/json");
        constexpr Duration kEvery = Duration(seconds(1)) * kConnections / kPerSecond;
        for (int i = 0; i < kSeconds * kPerSecond / kConnections; ++i) {
          const MonoTime due = start + kEvery * i + kEvery * c / kConnections;
          std::this_thread::sleep_until(due);
          auto answer = client.Post("/mutate", body, "application/json");
          if (!answer || answer->status != 200) ++failed;
          mine.push_back(SecondsSince(due) * 1e3);
        }
        std::lock_guard lock(mutex);
        took.insert(took.end(), mine.begin(), mine.end());
      });
    }
  }
  std::sort(took.begin(), took.end());
  auto at = [&](double part) { return took[static_cast<size_t>(part * static_cast<double>(took.size() - 1))]; };
  std::printf(
      R"({"what":"admission: %d/s on %d connections, %zu byte reviews","unit":"ms","p50":%.2f,"p90":%.2f,"p99":%.2f,"p999":%.2f,"max":%.2f,"failed":%d})"
      "\n",
      kPerSecond, kConnections, body.size(), at(0.5), at(0.9), at(0.99), at(0.999), took.back(), failed.load());
  server.Stop();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> what(argv + 1, argv + argc);
  if (what.empty()) what = {"queue", "controller", "reconcile", "admission"};
  for (const std::string& name : what) {
    if (name == "queue") BenchQueue();
    if (name == "controller") BenchController();
    if (name == "reconcile") BenchReconcile();
    if (name == "admission") BenchAdmission();
  }
}
