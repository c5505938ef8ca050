// A workload that requests may wake, as a connection's port names it, and what becomes of a request to it. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "activator/request.h"
#include "api/suspended_workload.h"
#include "kube/objects.h"

namespace holdfast::activator {

// A port of a Service.
struct Route {
  std::string ns, object;     // the SuspendedWorkload
  std::string service, port;  // port: its name; empty for a single one
  std::string Key() const { return ns + "/" + object; }
  bool operator==(const Route&) const = default;
};

using SleeperPtr = std::shared_ptr<const api::SuspendedWorkload>;

struct Address {
  std::string host;  // IPv4 or IPv6
  int32_t port = 0;
  bool operator==(const Address&) const = default;
};

// It is to be woken: it sleeps, or is about to, and nobody has asked for it yet.
bool ToBeWoken(const api::SuspendedWorkload& sleeper);
// What its Service leads to are pods that run, not ones that are frozen or ending.
bool Answers(const api::SuspendedWorkload& sleeper);

// Those that a connection to this port of the Service may be forwarded to: ready, and no activator.
std::vector<Address> ReadyAddresses(const std::vector<std::shared_ptr<const kube::EndpointSlice>>& slices, std::string_view port);

enum class Verdict {
  kWait,     // too little is known of it; nobody is woken
  kStatus,   // how far it is, as JSON
  kIgnored,  // wakes nobody: answered 200
  kPage,     // wake, and answer with the page that waits
  kHold,     // wake, and wait
  kForward,
};

// `silent`: nothing came for so long that the client is taken to wait for the server's first word.
Verdict Judge(const api::SuspendedWorkload& sleeper, const Request& request, bool silent, bool reachable);

// Why it is not awake yet, in one line of printable characters.
std::string Why(const api::SuspendedWorkload& sleeper);

}  // namespace holdfast::activator
