// Where the API server is and who we are: from a pod's service account or from a kubeconfig file.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::kube {

struct ClientConfig {
  std::string server;   // https://10.96.0.1:443
  std::string ca_pem;   // empty: ca_file, else the system's
  std::string ca_file;  // this and the other files are read again while the process runs (credentials.h)
  bool insecure_skip_tls_verify = false;
  std::string client_certificate_pem, client_key_pem;    // empty: the files, if any
  std::string client_certificate_file, client_key_file;  // PEM; the key without a password
  std::string token;
  std::string token_file;
  std::string username, password;
  std::string default_namespace = "default";
  std::string user_agent = "holdfast/" HOLDFAST_VERSION;
};

// $KUBERNETES_SERVICE_HOST/PORT and /var/run/secrets/kubernetes.io/serviceaccount. kNotFound when this is not a pod.
Result<ClientConfig> LoadInClusterConfig();
// `path` may be a ':'-separated list as in $KUBECONFIG; `context` empty: current-context. Exec and auth-provider plugins are kUnsupported
// with the name of the user entry and what to use instead. Certificates and keys are looked at, so that a wrong one is found here.
Result<ClientConfig> LoadKubeconfig(const std::string& path, const std::string& context = "");
// `kubeconfig` if given, else in-cluster, else $KUBECONFIG, else ~/.kube/config.
Result<ClientConfig> LoadConfig(const std::string& kubeconfig = "");

}  // namespace holdfast::kube
