#include "controller/app.h"

#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "controller/certificate_keeper.h"
#include "controller/eviction_webhook.h"
#include "controller/hub_server.h"
#include "controller/leadership.h"
#include "controller/pod_webhook.h"
#include "controller/sealer.h"
#include "controller/stores.h"
#include "kube/lease.h"
#include "kube/request_metrics.h"
#include "kube/server_time.h"

namespace holdfast::controller {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(50), kRetry = std::chrono::seconds(2);
constexpr char kLeaseName[] = "holdfast-controller";
// Between the loss of a lease, when work is told to stop, and its end; liveness probes come every few seconds.
constexpr Duration kLeaseTolerance = std::chrono::seconds(20);
const kube::Resource kSelfSubjectReviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", false};

Stores::Clients Clients(const AppOptions& options) {
  Stores::Clients clients;
  for (const api::StoreAddress& address : options.stores) {
    storage::RemoteStoreOptions store;
    store.http = {.url = address.url, .ca_file = options.store_ca_file, .token_file = options.store_token_file};
    clients[address.name] = std::make_unique<StoreClient>(std::make_unique<storage::RemoteStore>(std::move(store)));
  }
  return clients;
}

std::vector<std::string> NamesOf(const std::vector<api::StoreAddress>& stores) {
  std::vector<std::string> names;
  names.reserve(stores.size());
  for (const api::StoreAddress& store : stores) names.push_back(store.name);
  return names;
}

// Nothing where bare pods are not suspended.
template <class Method>
reconcilers::suspendedworkload::Settings::Change WithSealer(bool wanted, Method method, Sealer* sealer) {
  if (!wanted) return nullptr;
  return [method, sealer](const std::string& text, const std::string& about, std::stop_token stop) {
    return (sealer->*method)(text, about, std::move(stop));
  };
}

CertificateOptions Certificates(const AppOptions& options) {
  CertificateOptions certificates;
  certificates.ns = options.ns;
  certificates.webhook_hosts = ServiceHosts("holdfast-webhook", options.ns);
  certificates.webhook_hosts.insert(certificates.webhook_hosts.end(), options.webhook_hosts.begin(), options.webhook_hosts.end());
  if (options.hub_port >= 0) {
    const std::vector<std::string> hub = ServiceHosts("holdfast-hub", options.ns);
    certificates.webhook_hosts.insert(certificates.webhook_hosts.end(), hub.begin(), hub.end());
  }
  certificates.store_hosts = StoreHosts(options.ns);
  certificates.mutating_configuration = options.mutating_configuration;
  certificates.validating_configuration = options.validating_configuration;
  certificates.kek_secret = options.store_kek_secret;
  return certificates;
}

}  // namespace

struct App::Impl {
  Impl(std::shared_ptr<kube::Transport> api_server, AppOptions given)
      : options(std::move(given)),
        metrics(NamesOf(options.stores)),
        client(kube::TellTime(kube::CountRequests(std::move(api_server), metrics.runtime(), options.api_server), clock), Clock::Real(),
               &metrics.runtime()),
        events(client, "holdfast-controller", options.identity, &metrics.runtime()),
        stores(Clients(options)),
        sealer(client, options.ns),
        caches(client, options.activator_ports.count > 0),
        context{caches, client, events, clock, [this](const Json& checkpoint) { caches.checkpoints.Observe(checkpoint); }},
        leadership(caches, context, metrics, stores, stores,
                   {.max_drains_per_node = options.max_drains_per_node,
                    .drain_deadline = options.drain_deadline,
                    .retention = {.namespace_quota_bytes = options.namespace_quota_bytes,
                                  // Without a store there is nothing to measure.
                                  .marks = {options.stores.empty() ? 0 : options.volume_high_percent, options.volume_low_percent}},
                    .store_down = [this] { return stores.AllDown(); },
                    .on_stop = options.on_stop,
                    .prices = options.prices,
                    .seal = WithSealer(options.bare_pods, &Sealer::Seal, &sealer),
                    .open = WithSealer(options.bare_pods, &Sealer::Open, &sealer),
                    .ns = options.ns,
                    .activator_ports = options.activator_ports}),
        creator(client),
        hub_access(client, options.hub_audience),
        hub_api(
            client, hub_access,
            [this](const std::string& ns, const std::string& name) {
              const auto seen = caches.suspended.Get(ns, name);
              return seen ? seen->meta.resource_version : std::string();
            },
            HubServer::kMaxWaiters),
        webhooks(&metrics.runtime()),
        keeper(client, Certificates(options), [this](const KeyPair& pair) {
          Status status = webhooks.SetCertificate(pair.cert_pem, pair.key_pem);
          if (status.ok()) status = hub.SetCertificate(pair.cert_pem, pair.key_pem);
          if (!status.ok()) LogError("the webhooks' certificate cannot be used", {{"error", status.ToString()}});
        }) {
    caches.pods.AddHandler([this](const auto& old, const auto& now) { ended.Saw(old, now); });
  }

  // Our own evictions pass our own webhook, so we have to know who we are.
  std::string OwnUsername(std::stop_token stop) {
    if (!options.own_username.empty()) return options.own_username;
    std::string fallback = "system:serviceaccount:" + options.ns + ":holdfast-controller";
    while (!stop.stop_requested()) {
      kube::CallOptions call;
      call.timeout = std::chrono::seconds(5);
      call.stop = stop;
      auto review =
          client.Create(kSelfSubjectReviews, "", {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "SelfSubjectReview"}}, call);
      if (review.ok()) return GetString(*review, {"status", "userInfo", "username"}, fallback);
      LogWarning("cannot ask who we are", {{"error", review.status().ToString()}});
      if (review.status().code() == Code::kPermissionDenied || review.status().code() == Code::kNotFound) break;
      client.clock().Sleep(kRetry, stop);
    }
    return fallback;
  }

  Status StartPages() {
    pages.Serve("/metrics", [this] {
      for (const auto& [store, down] : stores.Down()) metrics.StoreDown(store, down);
      return std::pair(200, metrics.Text(caches.checkpoints.List()));
    });
    pages.Serve("/healthz", [this] {
      // The lease ran out and what it guards does not stop: only an end of the process helps.
      const Status lease = elector ? elector->Check(kLeaseTolerance) : Status::Ok();
      return lease.ok() ? std::pair(200, std::string("ok\n")) : std::pair(503, lease.message() + "\n");
    });
    pages.Serve("/readyz", [this] {
      if (ready) return std::pair(200, std::string("ok\n"));
      const std::string unsynced = caches.Unsynced();
      return std::pair(503, unsynced.empty() ? std::string("waiting for the webhooks' certificate\n") : "not synced: " + unsynced + "\n");
    });
    return pages.StartPlain(options.listen, options.metrics_port);
  }

  Status StartWebhooks(const std::string& username) {
    pod_webhook = std::make_unique<PodWebhook>(caches, ended,
                                               PodWebhookOptions{options.wait_image, options.wait_command, std::chrono::seconds(1)}, clock);
    eviction_webhook = std::make_unique<EvictionWebhook>(
        context, creator, EvictionWebhookOptions{username, options.ns, options.drain_deadline, [this] { return stores.AllDown(); }});
    webhooks.Handle("/mutate-pods", [this](const auto& request) { return pod_webhook->Handle(request); });
    webhooks.Handle("/evictions", [this](const auto& request) { return eviction_webhook->Handle(request); });
    HF_RETURN_IF_ERROR(webhooks.Start(options.listen, options.webhook_port));
    return options.hub_port < 0 ? Status::Ok() : hub.Start(options.listen, options.hub_port);
  }

  std::unique_ptr<kube::LeaderElector> MakeElector() {
    kube::LeaseOptions lease{options.ns, kLeaseName, options.identity};
    lease.lease_duration = options.lease_duration;
    lease.renew_deadline = options.renew_deadline;
    lease.renew_every = options.renew_every;
    lease.metrics = &metrics.runtime();
    return std::make_unique<kube::LeaderElector>(
        client, lease,
        [this](int64_t term) {
          leadership.Start(term);
          leading = true;
        },
        [this] {
          leading = false;
          leadership.Stop();
          lost.request_stop();
        });
  }

  Status StartLeading() {
    if (elector) return elector->Start();
    metrics.runtime().Leading(kLeaseName, true);
    leadership.Start(0);
    leading = true;
    return Status::Ok();
  }

  Status Run(std::stop_token stop) {
    if (options.leader_elect) elector = MakeElector();  // before the pages, which ask it
    HF_RETURN_IF_ERROR(StartPages());
    keeper.Start();
    stores.Start();
    caches.Start();
    const std::string username = OwnUsername(stop);
    LogInfo("waiting for the caches", {{"user", username}});
    while (!(caches.synced() && keeper.ready())) {
      if (!client.clock().Sleep(kPoll, stop)) return Status::Ok();
    }
    HF_RETURN_IF_ERROR(StartWebhooks(username));
    ready = true;
    LogInfo("ready", {{"webhooks", webhooks.port()}, {"pages", pages.port()}});

    HF_RETURN_IF_ERROR(StartLeading());
    std::mutex mutex;
    std::condition_variable_any wake;
    std::stop_callback on_stop(stop, [&] {
      std::lock_guard lock(mutex);
      wake.notify_all();
    });
    std::stop_callback on_lost(lost.get_token(), [&] {
      std::lock_guard lock(mutex);
      wake.notify_all();
    });
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stop.stop_requested() || lost.stop_requested(); });
    }
    return stop.stop_requested() ? Status::Ok() : Status(Code::kFailedPrecondition, "the lease was lost: another replica may lead");
  }

  // In this order: nobody asks us any more, nothing is decided any more, nothing is read any more.
  void Stop() {
    ready = false;
    webhooks.Stop();
    hub.Stop();
    if (elector) elector->Stop();
    leadership.Stop();
    creator.Stop();
    keeper.Stop();
    stores.Stop();
    caches.Stop();
    pages.Stop();
  }

  const AppOptions options;
  Metrics metrics;                         // first: what it counts holds on to it
  kube::ServerClock clock{Clock::Real()};  // both replicas and the agents compare deadlines by it
  kube::Client client;
  kube::EventRecorder events;
  Stores stores;
  Sealer sealer;
  EndedPods ended{client.clock()};
  Caches caches;
  reconcilers::Context context;
  Leadership leadership;
  CheckpointCreator creator;
  std::unique_ptr<PodWebhook> pod_webhook;
  std::unique_ptr<EvictionWebhook> eviction_webhook;
  HubAccess hub_access;
  HubApi hub_api;
  HubServer hub{hub_api};
  kube::AdmissionServer webhooks, pages;
  CertificateKeeper keeper;
  std::unique_ptr<kube::LeaderElector> elector;
  std::stop_source lost;  // the lease
  std::atomic<bool> ready = false, leading = false;
};

App::App(std::shared_ptr<kube::Transport> api_server, AppOptions options)
    : impl_(std::make_unique<Impl>(std::move(api_server), std::move(options))) {}
App::~App() { impl_->Stop(); }

Status App::Run(std::stop_token stop) {
  Status status = impl_->Run(stop);
  impl_->Stop();
  return status;
}

bool App::ready() const { return impl_->ready; }
bool App::leading() const { return impl_->leading; }
int App::webhook_port() const { return impl_->webhooks.port(); }
int App::metrics_port() const { return impl_->pages.port(); }
int App::hub_port() const { return impl_->hub.port(); }

}  // namespace holdfast::controller
