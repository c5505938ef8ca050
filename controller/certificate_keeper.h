// Keeps the certificates of Holdfast: its CA (Secret holdfast-ca, and ConfigMap holdfast-ca for whoever verifies), one for the webhooks and
// one for the store, all in our namespace, each renewed long before it ends; and the caBundle in the two webhook configurations. Every
// replica runs one: whoever writes first wins, the others take what is there. It also makes the key that wraps the store's keys where there
// is none: by create alone, so that nothing that is rendered or applied again can replace it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "controller/certificates.h"
#include "kube/apply.h"
#include "kube/objects.h"

namespace holdfast::controller {

struct CertificateOptions {
  std::string ns;
  std::string webhook_secret = "holdfast-webhook-tls", store_secret = "holdfast-store-tls";
  std::vector<std::string> webhook_hosts, store_hosts;
  std::string mutating_configuration = "holdfast", validating_configuration = "holdfast";
  std::string kek_secret;  // its entry `kek` is made; empty: somebody else makes it
};

// The names under which a Service is reached from inside the cluster.
std::vector<std::string> ServiceHosts(const std::string& service, const std::string& ns);
// Those of all stores that there may be, which share one certificate: a further one need not wait until its name is in it, and until the
// kubelet has brought that to its pod.
std::vector<std::string> StoreHosts(const std::string& ns);

class CertificateKeeper {
 public:
  // `on_certificate` gets the webhooks' certificate whenever it is new.
  CertificateKeeper(kube::Client& client, CertificateOptions options, std::function<void(const KeyPair&)> on_certificate);
  ~CertificateKeeper();
  void Start();
  void Stop();
  bool ready() const { return ready_; }  // the webhooks' certificate is there and its CA is published
  // One round: everything there, valid and published. Called by the thread; by tests directly.
  Status Ensure(std::stop_token stop);

 private:
  struct Ca {
    KeyPair pair;
    std::string bundle;  // the present one, then the one before
  };
  Result<Ca> EnsureCa(std::stop_token stop);
  Result<KeyPair> EnsureServer(const Ca& ca, const std::string& secret, const std::vector<std::string>& hosts, std::stop_token stop);
  Status EnsureKek(std::stop_token stop);
  Status PublishBundle(const std::string& bundle, std::stop_token stop);
  Status ApplyBundle(const kube::Resource& resource, const std::string& name, const std::string& bundle, std::stop_token stop);

  kube::Client& client_;
  kube::Applier applier_;
  const CertificateOptions options_;
  const std::function<void(const KeyPair&)> on_certificate_;
  std::string given_;      // the certificate that on_certificate got last
  bool kek_made_ = false;  // or found: it is not looked after any further, since another one would be worth nothing
  std::atomic<bool> ready_ = false;
  std::jthread thread_;
};

}  // namespace holdfast::controller
