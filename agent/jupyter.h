// Asks a Jupyter server that runs in a container whether it is used. The server is found as `jupyter server list` finds it: by the file
// that it keeps in its runtime folder, with its port and token. Nobody has to give us a token: what is read lies in the container, and goes
// nowhere but to that container's own loopback. All of it is the tenant's, so nothing of it is believed beyond its shape and size.
#pragma once

#include "agent/meter.h"
#include "base/json.h"

namespace holdfast::agent {

// What a jpserver-*.json says. Nothing: not one that can be asked (HTTPS, a unix socket), or malformed.
struct JupyterServer {
  int port = 0;
  std::string base_url, token;  // "/", or "/…/"
};
std::optional<JupyterServer> JupyterServerFrom(const Json& file);

// Where a process with this environment (/proc/PID/environ) has its runtime folder; empty: unknown.
std::string JupyterRuntimeFolder(std::string_view environment);

// From the answers of /api/kernels and /api/terminals (null: it has none). An error: they are not what a Jupyter server says.
Result<JupyterUse> JupyterUseFrom(const Json& kernels, const Json& terminals);

// The first server of these processes that answers, asked within its own network namespace, at loopback or `pod_ip`.
Result<JupyterUse> AskJupyter(const std::vector<int>& pids, const std::string& pod_ip);

}  // namespace holdfast::agent
