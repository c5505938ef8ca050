#include "controller/certificate_keeper.h"

#include <algorithm>
#include <condition_variable>

#include "api/stores.h"
#include "base/log.h"
#include "kube/base64.h"
#include "storage/aead.h"

namespace holdfast::controller {
namespace {

using std::chrono::hours;

constexpr Duration kCaValidity = hours(24 * 3650), kCaRenew = hours(24 * 365);
constexpr Duration kServerValidity = hours(24 * 365), kServerRenew = hours(24 * 120);
// Those who verify hear of a new CA (kubelets refresh ConfigMaps within minutes) before anybody shows a certificate signed by it.
constexpr Duration kCaSettles = hours(1);
constexpr Duration kCheckEvery = std::chrono::minutes(1), kRetry = std::chrono::seconds(2);
constexpr int kMaxRounds = 5;
constexpr char kCaName[] = "holdfast-ca";

const std::string& Get(const std::map<std::string, std::string>& data, const std::string& key) {
  static const std::string kNone;
  auto found = data.find(key);
  return found == data.end() ? kNone : found->second;
}

kube::CallOptions Calls(std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  return options;
}

Json SecretJson(const std::string& ns, const std::string& name, const std::string& version,
                const std::map<std::string, std::string>& data) {
  Json encoded = Json::object();
  for (const auto& [key, value] : data) encoded[key] = kube::EncodeBase64(value);
  Json json = {{"apiVersion", "v1"},
               {"kind", "Secret"},
               {"metadata", {{"name", name}, {"namespace", ns}, {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
               {"type", "kubernetes.io/tls"},
               {"data", encoded}};
  if (!version.empty()) json["metadata"]["resourceVersion"] = version;
  return json;
}

// Reads the Secret; where `renew` returns something, writes that, and reads again when somebody else was faster.
Result<std::map<std::string, std::string>> ReadOrWrite(
    kube::Client& client, const std::string& ns, const std::string& name,
    const std::function<Result<std::map<std::string, std::string>>(const std::map<std::string, std::string>& now)>& renew,
    std::stop_token stop) {
  for (int round = 0; round < kMaxRounds; ++round) {
    auto found = client.Get<kube::Secret>(ns, name, Calls(stop));
    if (!found.ok() && found.status().code() != Code::kNotFound) return found.status().With("Secret " + ns + "/" + name);
    const std::map<std::string, std::string> data = found.ok() ? found->data : std::map<std::string, std::string>{};
    HF_ASSIGN_OR_RETURN(auto wanted, renew(data));
    if (wanted.empty() || wanted == data) return data;
    const Json secret = SecretJson(ns, name, found.ok() ? found->meta.resource_version : "", wanted);
    auto written = found.ok() ? client.Update(kube::Secret::kResource, ns, name, secret, Calls(stop))
                              : client.Create(kube::Secret::kResource, ns, secret, Calls(stop));
    if (written.ok()) {
      LogInfo("certificate written", {{"secret", ns + "/" + name}});
      return wanted;
    }
    const Code code = written.status().code();
    if (code != Code::kConflict && code != Code::kAlreadyExists) return written.status().With("Secret " + ns + "/" + name);
  }
  return Status(Code::kConflict, "Secret " + ns + "/" + name + " is being written by others without end");
}

}  // namespace

std::vector<std::string> ServiceHosts(const std::string& service, const std::string& ns) {
  return {service + "." + ns + ".svc", service + "." + ns + ".svc.cluster.local", service + "." + ns, service};
}

std::vector<std::string> StoreHosts(const std::string& ns) {
  std::vector<std::string> hosts = ServiceHosts("holdfast-store", ns);
  for (size_t replica = 1; replica < api::kMaxStores; ++replica)
    hosts.push_back("holdfast-store-" + std::to_string(replica) + "." + ns + ".svc");
  return hosts;
}

CertificateKeeper::CertificateKeeper(kube::Client& client, CertificateOptions options, std::function<void(const KeyPair&)> on_certificate)
    : client_(client), applier_(client, "holdfast-controller"), options_(std::move(options)), on_certificate_(std::move(on_certificate)) {}
CertificateKeeper::~CertificateKeeper() { Stop(); }

Result<CertificateKeeper::Ca> CertificateKeeper::EnsureCa(std::stop_token stop) {
  using Data = std::map<std::string, std::string>;
  auto renew = [&](const Data& now) -> Result<Data> {
    const WallTime time = client_.clock().Wall();
    auto facts = ReadCertificate(Get(now, "tls.crt"));
    if (facts.ok() && facts->not_after - time > kCaRenew) return Data{};
    HF_ASSIGN_OR_RETURN(KeyPair fresh, MakeCa({"holdfast-ca", {}, kCaValidity}, time));
    // What the old one signed stays good until it is replaced.
    const bool keep_old = facts.ok() && facts->not_after > time;
    return Data{
        {"tls.crt", fresh.cert_pem}, {"tls.key", fresh.key_pem}, {"ca.crt", fresh.cert_pem + (keep_old ? Get(now, "tls.crt") : "")}};
  };
  HF_ASSIGN_OR_RETURN(Data data, ReadOrWrite(client_, options_.ns, kCaName, renew, stop));
  const std::string& bundle = Get(data, "ca.crt");
  return Ca{{Get(data, "tls.crt"), Get(data, "tls.key")}, bundle.empty() ? Get(data, "tls.crt") : bundle};
}

Result<KeyPair> CertificateKeeper::EnsureServer(const Ca& ca, const std::string& secret, const std::vector<std::string>& hosts,
                                                std::stop_token stop) {
  using Data = std::map<std::string, std::string>;
  auto renew = [&](const Data& now) -> Result<Data> {
    const WallTime time = client_.clock().Wall();
    auto facts = ReadCertificate(Get(now, "tls.crt"));
    bool good = facts.ok() && facts->not_after - time > kServerRenew;
    for (const std::string& host : hosts) good = good && std::find(facts->hosts.begin(), facts->hosts.end(), host) != facts->hosts.end();
    if (good && !SignedBy(Get(now, "tls.crt"), ca.pair.cert_pem)) {
      auto ca_facts = ReadCertificate(ca.pair.cert_pem);
      const bool old_ca_known = ca.bundle != ca.pair.cert_pem && SignedBy(Get(now, "tls.crt"), ca.bundle.substr(ca.pair.cert_pem.size()));
      good = old_ca_known && ca_facts.ok() && time - ca_facts->not_before < kCaSettles;
    }
    if (good && Get(now, "ca.crt") == ca.bundle) return Data{};
    if (good) {
      Data same = now;
      same["ca.crt"] = ca.bundle;
      return same;
    }
    HF_ASSIGN_OR_RETURN(KeyPair fresh, IssueServer(ca.pair, {hosts.front(), hosts, kServerValidity}, time));
    return Data{{"tls.crt", fresh.cert_pem}, {"tls.key", fresh.key_pem}, {"ca.crt", ca.bundle}};
  };
  HF_ASSIGN_OR_RETURN(Data data, ReadOrWrite(client_, options_.ns, secret, renew, stop));
  return KeyPair{Get(data, "tls.crt"), Get(data, "tls.key")};
}

Status CertificateKeeper::EnsureKek(std::stop_token stop) {
  if (options_.kek_secret.empty() || kek_made_) return Status::Ok();
  storage::Secret key;
  HF_RETURN_IF_ERROR(storage::FillRandom(key));
  const std::string text(reinterpret_cast<const char*>(key.data()), key.size());
  const Json secret = {
      {"apiVersion", "v1"},
      {"kind", "Secret"},
      {"metadata", {{"name", options_.kek_secret}, {"namespace", options_.ns}, {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
      {"type", "Opaque"},
      {"data", {{"kek", kube::EncodeBase64(text)}}}};
  const Status made = client_.Create(kube::Secret::kResource, options_.ns, secret, Calls(stop)).status();
  if (!made.ok() && made.code() != Code::kAlreadyExists) return made.With("Secret " + options_.ns + "/" + options_.kek_secret);
  if (made.ok()) LogInfo("the store's key was made: keep a copy apart from its volume", {{"secret", options_.kek_secret}});
  kek_made_ = true;
  return Status::Ok();
}

Status CertificateKeeper::PublishBundle(const std::string& bundle, std::stop_token stop) {
  auto found = client_.Get(kube::kConfigMaps, options_.ns, kCaName, Calls(stop));
  if (found.ok() && GetString(*found, {"data", "ca.crt"}) == bundle) return Status::Ok();
  if (!found.ok() && found.status().code() != Code::kNotFound) return found.status().With("ConfigMap " + options_.ns + "/" + kCaName);
  const Json map = {{"metadata", {{"name", kCaName}, {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
                    {"data", {{"ca.crt", bundle}}}};
  return applier_.Apply(kube::kConfigMaps, options_.ns, map, Calls(stop)).status().With("ConfigMap " + options_.ns + "/" + kCaName);
}

// Of each webhook only the CA is ours; whoever installed the configuration owns the rest.
Status CertificateKeeper::ApplyBundle(const kube::Resource& resource, const std::string& name, const std::string& bundle,
                                      std::stop_token stop) {
  if (name.empty()) return Status::Ok();
  auto found = client_.Get(resource, "", name, Calls(stop));
  if (found.status().code() == Code::kNotFound) return Status::Ok();  // not installed: nothing calls us
  if (!found.ok()) return found.status().With(resource.kind + " " + name);
  const std::string encoded = kube::EncodeBase64(bundle);
  Json webhooks = Json::array();
  bool current = true;
  for (const Json& webhook : GetArray(*found, {"webhooks"})) {
    current = current && GetString(webhook, {"clientConfig", "caBundle"}) == encoded;
    webhooks.push_back({{"name", GetString(webhook, {"name"})}, {"clientConfig", {{"caBundle", encoded}}}});
  }
  if (current) return Status::Ok();
  const Json intent = {{"metadata", {{"name", name}, {"uid", GetString(*found, {"metadata", "uid"})}}}, {"webhooks", webhooks}};
  auto written = applier_.Apply(resource, "", intent, Calls(stop));
  if (written.ok()) LogInfo("caBundle written", {{"kind", resource.kind}, {"name", name}});
  return written.status().With(resource.kind + " " + name);
}

Status CertificateKeeper::Ensure(std::stop_token stop) {
  Status kek = EnsureKek(stop);
  HF_ASSIGN_OR_RETURN(Ca ca, EnsureCa(stop));
  HF_ASSIGN_OR_RETURN(KeyPair webhook, EnsureServer(ca, options_.webhook_secret, options_.webhook_hosts, stop));
  HF_RETURN_IF_ERROR(EnsureServer(ca, options_.store_secret, options_.store_hosts, stop).status());
  if (webhook.cert_pem != given_) {
    on_certificate_(webhook);
    given_ = webhook.cert_pem;
  }
  HF_RETURN_IF_ERROR(PublishBundle(ca.bundle, stop));
  HF_RETURN_IF_ERROR(ApplyBundle(kube::kMutatingWebhooks, options_.mutating_configuration, ca.bundle, stop));
  HF_RETURN_IF_ERROR(ApplyBundle(kube::kValidatingWebhooks, options_.validating_configuration, ca.bundle, stop));
  ready_ = true;
  return kek;
}

void CertificateKeeper::Start() {
  thread_ = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      const Status status = Ensure(stop);
      if (!status.ok() && !stop.stop_requested())
        LogWarning("certificates are not as they should be; tries again", {{"error", status.ToString()}});
      client_.clock().Sleep(status.ok() ? kCheckEvery : kRetry, stop);
    }
  });
}

void CertificateKeeper::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace holdfast::controller
