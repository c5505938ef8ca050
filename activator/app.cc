#include "activator/app.h"

#include <prometheus/text_serializer.h>

#include <atomic>
#include <future>

#include "activator/cluster.h"
#include "activator/server.h"
#include "base/log.h"
#include "kube/admission.h"
#include "kube/metrics.h"
#include "kube/request_metrics.h"

namespace holdfast::activator {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(50), kLookAgain = std::chrono::seconds(5);

}  // namespace

struct App::Impl final : World {
  Impl(std::shared_ptr<kube::Transport> api_server, AppOptions given)
      : options(std::move(given)),
        runtime(registry),
        outcomes(prometheus::BuildCounter()
                     .Name("holdfast_activator_connections_total")
                     .Help("Connections to sleepers, by what became of them.")
                     .Register(registry)),
        waiting(prometheus::BuildGauge()
                    .Name("holdfast_activator_waiting_connections")
                    .Help("Connections that wait for a workload to wake up.")
                    .Register(registry)
                    .Add({})),
        open(prometheus::BuildGauge().Name("holdfast_activator_open_connections").Help("All connections.").Register(registry).Add({})),
        waited(prometheus::BuildHistogram()
                   .Name("holdfast_activator_wait_seconds")
                   .Help("How long connections waited until an endpoint took them.")
                   .Register(registry)
                   .Add({}, prometheus::Histogram::BucketBoundaries{.01, .1, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 1800})),
        client(kube::CountRequests(std::move(api_server), runtime, options.api_server), Clock::Real(), &runtime),
        events(client, "holdfast-activator", options.identity, &runtime),
        cluster(client, events, [this](Cluster::Change change) { Changed(change); }) {
    for (const Outcome outcome : kOutcomes) outcomes.Add({{"outcome", std::string(OutcomeName(outcome))}});
  }

  SleeperPtr SleeperOf(const Route& route) override { return cluster.SleeperOf(route); }
  std::vector<Address> ReadyAddressesOf(const Route& route) override { return cluster.ReadyAddressesOf(route); }
  void Wake(const Route& route) override { cluster.Wake(route); }
  void Count(Outcome outcome, Duration took) override {
    outcomes.Add({{"outcome", std::string(OutcomeName(outcome))}}).Increment();
    if (outcome == Outcome::kForwarded) waited.Observe(std::chrono::duration<double>(took).count());
  }

  // From the caches' threads. However many changes come, one look at them is under way at a time.
  void Changed(Cluster::Change change) {
    if (change == Cluster::Change::kEndpoints && !anybody_waits) return;
    if (scheduled.exchange(true)) return;
    loop.Post([this] { Look(); });
  }

  void Look() {
    scheduled = false;
    if (!server) return;
    if (listening = server->SetRoutes(RoutesOf(cluster.Sleepers(), options.first_port, options.last_port)); !listening) {
      LogWarning("some ports are not listened on", {{"again_seconds", kLookAgain / std::chrono::seconds(1)}});
    }
    server->Consider();
    Tell();
  }

  // Regularly: numbers for /metrics, and ports on which it could not be listened.
  void Tick() {
    if (!listening) Look();
    Tell();
    tick->Start(anybody_waits ? kPoll : Duration(std::chrono::seconds(1)));
  }

  void Tell() {
    const size_t now_waiting = server->waiting();
    anybody_waits = now_waiting > 0;
    connected = server->open();
    waiting.Set(static_cast<double>(now_waiting));
    open.Set(static_cast<double>(server->open()));
  }

  // Runs `task` on the loop and waits for it.
  void OnLoop(const std::function<void()>& task) {
    std::promise<void> ran;
    loop.Post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  }

  Status StartPages() {
    pages.Serve("/metrics", [this] { return std::pair(200, prometheus::TextSerializer().Serialize(registry.Collect())); });
    pages.Serve("/healthz", [] { return std::pair(200, std::string("ok\n")); });
    pages.Serve("/readyz",
                [this] { return ready ? std::pair(200, std::string("ok\n")) : std::pair(503, std::string("not synced, or ending\n")); });
    return pages.StartPlain(options.listen, options.metrics_port);
  }

  Status Run(std::stop_token stop) {
    HF_RETURN_IF_ERROR(StartPages());
    cluster.Start();
    while (!cluster.synced()) {
      if (!client.clock().Sleep(kPoll, stop)) return Status::Ok();
    }
    OnLoop([this] {
      server = std::make_unique<Server>(loop, *this, options.limits);
      Look();
      tick = std::make_unique<kube::EventLoop::Timer>(loop, [this] { Tick(); });
      tick->Start(kPoll);
    });
    ready = true;
    LogInfo("ready", {{"pages", pages.port()}});
    while (client.clock().Sleep(std::chrono::hours(1), stop)) {
    }
    // Not ready: new connections soon lead elsewhere; until every node's kube-proxy has heard, they come here. Those that are here have
    // some time yet.
    ready = false;
    const MonoTime now = client.clock().Mono(), until = now + options.drain, alone = now + std::min(options.linger, options.drain);
    LogInfo("ending", {{"connections", connected.load()}});
    do {
      client.clock().Sleep(std::chrono::milliseconds(200), {});
    } while (client.clock().Mono() < (connected > 0 ? until : alone));
    return Status::Ok();
  }

  void Stop() {
    ready = false;
    OnLoop([this] {
      tick.reset();
      server.reset();
    });
    cluster.Stop();
    pages.Stop();
    OnLoop([] {});  // what the caches have posted is done
  }

  const AppOptions options;
  prometheus::Registry registry;
  kube::RuntimeMetrics runtime;
  prometheus::Family<prometheus::Counter>& outcomes;
  prometheus::Gauge &waiting, &open;
  prometheus::Histogram& waited;
  kube::Client client;
  kube::EventRecorder events;
  std::atomic<bool> ready = false, scheduled = false, anybody_waits = false;
  std::atomic<size_t> connected = 0;
  bool listening = true;                         // loop's thread
  std::unique_ptr<Server> server;                // loop's thread
  std::unique_ptr<kube::EventLoop::Timer> tick;  // loop's thread
  kube::AdmissionServer pages;
  kube::EventLoop loop;
  Cluster cluster;
};

App::App(std::shared_ptr<kube::Transport> api_server, AppOptions options)
    : impl_(std::make_unique<Impl>(std::move(api_server), std::move(options))) {}
App::~App() { impl_->Stop(); }

Status App::Run(std::stop_token stop) { return impl_->Run(std::move(stop)); }
bool App::ready() const { return impl_->ready; }
int App::metrics_port() const { return impl_->pages.port(); }

}  // namespace holdfast::activator
