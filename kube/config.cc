#include "kube/config.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "kube/base64.h"
#include "kube/pem.h"

namespace holdfast::kube {
namespace {

constexpr char kServiceAccountDir[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr size_t kMaxFileBytes = 4 << 20;

std::string Env(const char* name) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  return value == nullptr ? "" : value;
}

std::string Trim(std::string text) {
  while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

// One entry of clusters, users or contexts, and the folder that its relative paths start from.
struct Entry {
  YAML::Node value;
  std::string file, dir;
};

// The files of $KUBECONFIG as one: what an earlier file says wins.
struct Merged {
  std::map<std::string, Entry> clusters, users, contexts;
  std::string current_context;
};

std::string Text(const YAML::Node& map, const char* key) {
  if (!map.IsMap()) return "";
  YAML::Node value = map[key];
  return value && value.IsScalar() ? value.as<std::string>() : "";
}

bool Has(const YAML::Node& map, const char* key) { return map.IsMap() && map[key] && !map[key].IsNull(); }

void AddEntries(const YAML::Node& list, const char* key, const std::string& file, std::map<std::string, Entry>* out) {
  if (!list || !list.IsSequence()) return;
  std::string dir = std::filesystem::path(file).parent_path().string();
  for (const YAML::Node& item : list) {
    if (!item.IsMap() || !item["name"] || !item[key]) continue;
    out->try_emplace(Text(item, "name"), Entry{item[key], file, dir});
  }
}

Status AddFile(const std::string& path, Merged* merged) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxFileBytes));
  try {
    YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return Status::Ok();
    if (!root.IsMap()) return Status(Code::kInvalidArgument, "kubeconfig " + path + " is not a YAML mapping");
    AddEntries(root["clusters"], "cluster", path, &merged->clusters);
    AddEntries(root["users"], "user", path, &merged->users);
    AddEntries(root["contexts"], "context", path, &merged->contexts);
    if (merged->current_context.empty()) merged->current_context = Text(root, "current-context");
  } catch (const YAML::Exception& e) {
    return Status(Code::kInvalidArgument, "kubeconfig " + path + " is not YAML: " + e.what());
  }
  return Status::Ok();
}

std::string Absolute(const Entry& entry, const std::string& path) {
  if (path.empty() || path[0] == '/' || entry.dir.empty()) return path;
  return entry.dir + "/" + path;
}

struct PemSource {
  std::string pem;
  std::string file;  // empty: `pem` stood in the kubeconfig itself
};

// "<key>-data" in base64 wins over the file that "<key>" names, as in kubectl. Empty: neither is there.
Result<PemSource> ReadPem(const Entry& entry, const std::string& key) {
  std::string data = Text(entry.value, (key + "-data").c_str());
  if (!data.empty()) {
    auto decoded = DecodeBase64(data);
    if (!decoded) return Status(Code::kInvalidArgument, "kubeconfig " + entry.file + ": " + key + "-data is not base64");
    return PemSource{std::move(*decoded), ""};
  }
  std::string path = Absolute(entry, Text(entry.value, key.c_str()));
  if (path.empty()) return PemSource();
  Result<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return text.status().With("kubeconfig " + entry.file + ": " + key);
  if (text->empty()) return Status(Code::kInvalidArgument, "kubeconfig " + entry.file + ": " + key + " " + path + " is empty");
  return PemSource{std::move(*text), path};
}

Status RefuseUnsupportedUser(const std::string& name, const Entry& user) {
  const std::string where = "kubeconfig " + user.file + ": user \"" + name + "\" ";
  if (Has(user.value, "exec")) {
    return {Code::kUnsupported, where + "gets its credentials from an exec plugin (\"" + Text(user.value["exec"], "command") +
                                    "\"), which Holdfast does not run; use a client certificate, a token or a tokenFile, for instance of "
                                    "a service account: kubectl create token NAME"};
  }
  if (Has(user.value, "auth-provider")) {
    return {Code::kUnsupported, where + "uses the auth-provider \"" + Text(user.value["auth-provider"], "name") +
                                    "\", which Kubernetes removed in 1.26; use a client certificate, a token or a tokenFile, for instance "
                                    "of a service account: kubectl create token NAME"};
  }
  for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra"}) {
    if (Has(user.value, key)) {
      return {Code::kUnsupported, where + "impersonates somebody (" + key + "); use credentials of the account itself"};
    }
  }
  return Status::Ok();
}

Status ReadCluster(const std::string& name, const Entry& cluster, ClientConfig* config) {
  const std::string where = "kubeconfig " + cluster.file + ": cluster \"" + name + "\" ";
  config->server = Text(cluster.value, "server");
  if (!config->server.starts_with("https://") && !config->server.starts_with("http://")) {
    return {Code::kInvalidArgument, where + "has no server with https:// or http://"};
  }
  while (config->server.ends_with('/')) config->server.pop_back();
  for (const char* key : {"tls-server-name", "proxy-url"}) {
    if (Has(cluster.value, key)) return {Code::kUnsupported, where + "sets " + key + ", which Holdfast does not support; remove it"};
  }
  config->insecure_skip_tls_verify = Text(cluster.value, "insecure-skip-tls-verify") == "true";
  HF_ASSIGN_OR_RETURN(PemSource ca, ReadPem(cluster, "certificate-authority"));
  if (!ca.pem.empty()) {
    Status valid = CheckCertificates(ca.pem);
    if (!valid.ok()) return valid.With(where + "certificate-authority" + (ca.file.empty() ? "-data" : " " + ca.file));
  }
  (ca.file.empty() ? config->ca_pem : config->ca_file) = ca.file.empty() ? ca.pem : ca.file;
  return Status::Ok();
}

Status ReadUser(const std::string& name, const Entry& user, ClientConfig* config) {
  HF_RETURN_IF_ERROR(RefuseUnsupportedUser(name, user));
  const std::string where = "kubeconfig " + user.file + ": user \"" + name + "\"";
  HF_ASSIGN_OR_RETURN(PemSource certificate, ReadPem(user, "client-certificate"));
  HF_ASSIGN_OR_RETURN(PemSource key, ReadPem(user, "client-key"));
  if (certificate.pem.empty() != key.pem.empty()) {
    return {Code::kInvalidArgument, where + " needs both client-certificate and client-key"};
  }
  if (!certificate.pem.empty()) {
    Status pair = CheckKeyPair(certificate.pem, key.pem);
    if (!pair.ok()) return pair.With(where);
  }
  (certificate.file.empty() ? config->client_certificate_pem : config->client_certificate_file) =
      certificate.file.empty() ? certificate.pem : certificate.file;
  (key.file.empty() ? config->client_key_pem : config->client_key_file) = key.file.empty() ? key.pem : key.file;
  config->token = Text(user.value, "token");
  config->token_file = Absolute(user, Text(user.value, "tokenFile"));
  config->username = Text(user.value, "username");
  config->password = Text(user.value, "password");
  return Status::Ok();
}

Result<ClientConfig> Select(const Merged& merged, const std::string& path, const std::string& context) {
  std::string wanted = context.empty() ? merged.current_context : context;
  if (wanted.empty()) return Status(Code::kInvalidArgument, "kubeconfig " + path + " has no current-context; name one");
  auto found = merged.contexts.find(wanted);
  if (found == merged.contexts.end()) return Status(Code::kNotFound, "kubeconfig " + path + " has no context \"" + wanted + "\"");
  const YAML::Node& chosen = found->second.value;
  std::string cluster_name = Text(chosen, "cluster"), user_name = Text(chosen, "user");
  auto cluster = merged.clusters.find(cluster_name);
  if (cluster == merged.clusters.end()) {
    return Status(Code::kNotFound,
                  "kubeconfig " + path + ": context \"" + wanted + "\" names the cluster \"" + cluster_name + "\", which is not there");
  }
  ClientConfig config;
  HF_RETURN_IF_ERROR(ReadCluster(cluster_name, cluster->second, &config));
  if (!user_name.empty()) {
    auto user = merged.users.find(user_name);
    if (user == merged.users.end()) {
      return Status(Code::kNotFound,
                    "kubeconfig " + path + ": context \"" + wanted + "\" names the user \"" + user_name + "\", which is not there");
    }
    HF_RETURN_IF_ERROR(ReadUser(user_name, user->second, &config));
  }
  std::string ns = Text(chosen, "namespace");
  if (!ns.empty()) config.default_namespace = ns;
  return config;
}

}  // namespace

Result<ClientConfig> LoadInClusterConfig() {
  std::string host = Env("KUBERNETES_SERVICE_HOST"), port = Env("KUBERNETES_SERVICE_PORT");
  const std::string dir = kServiceAccountDir;
  if (host.empty() || port.empty() || !Exists(dir + "/token")) {
    return Status(Code::kNotFound, "not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set or " + dir + "/token is missing");
  }
  ClientConfig config;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  config.server = "https://" + host + ":" + port;
  config.ca_file = dir + "/ca.crt";
  config.token_file = dir + "/token";
  Result<std::string> ns = ReadFile(dir + "/namespace", 4096);
  if (ns.ok() && !Trim(*ns).empty()) config.default_namespace = Trim(*ns);
  return config;
}

Result<ClientConfig> LoadKubeconfig(const std::string& path, const std::string& context) {
  Merged merged;
  Status missing(Code::kNotFound, "no kubeconfig file named");
  bool found = false;
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find(':', at), path.size());
    std::string file = path.substr(at, end - at);
    at = end + 1;
    if (file.empty()) continue;
    Status status = AddFile(file, &merged);
    // As kubectl does, files of the list may be missing, as long as one is there.
    if (status.code() == Code::kNotFound) {
      missing = status.With("kubeconfig");
      continue;
    }
    HF_RETURN_IF_ERROR(status);
    found = true;
  }
  if (!found) return missing;
  try {
    return Select(merged, path, context);
  } catch (const YAML::Exception& e) {
    return Status(Code::kInvalidArgument, "kubeconfig " + path + ": " + e.what());
  }
}

Result<ClientConfig> LoadConfig(const std::string& kubeconfig) {
  if (!kubeconfig.empty()) return LoadKubeconfig(kubeconfig);
  Result<ClientConfig> in_cluster = LoadInClusterConfig();
  if (in_cluster.ok()) return in_cluster;
  std::string path = Env("KUBECONFIG");
  if (path.empty() && !Env("HOME").empty()) path = Env("HOME") + "/.kube/config";
  Result<ClientConfig> config = LoadKubeconfig(path);
  if (!config.ok() && config.status().code() == Code::kNotFound) {
    return Status(Code::kNotFound,
                  in_cluster.status().message() + "; and " + config.status().message() + " (give --kubeconfig or set KUBECONFIG)");
  }
  return config;
}

}  // namespace holdfast::kube
