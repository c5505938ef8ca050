// What bench/kube measures of kube/, one function a mode. ../README.md says what each does and prints. Each returns when standard input
// ends, and says what went wrong.
#pragma once

#include <string>

#include "kube/client.h"

namespace holdfast::bench {

struct Options {
  std::string mode{};
  size_t objects = 10000;           // reconcile, events: how many to wait for
  std::string identity{}, lease{};  // failover
  int port = 0;                     // admission
  std::string certs{};              // admission: folder with tls.crt and tls.key
};

struct Context {
  kube::Client& client;
  const Options& options;
  MonoTime start;  // of the process
};

Status Empty(const Context& context);
Status Metadata(const Context& context);
Status Full(const Context& context);
Status Reconcile(const Context& context);  // and events
Status Failover(const Context& context);
Status Admission(const Context& context);

}  // namespace holdfast::bench
