#include "activator/sleeper.h"

#include <algorithm>

#include "kube/utf8.h"

namespace holdfast::activator {
namespace {

using api::SuspendPhase;

bool Ignored(const api::OnRequest& rules, const Request& request) {
  auto begins = [&](const std::string& agent) { return request.user_agent.starts_with(agent); };
  return std::any_of(rules.ignored_user_agents.begin(), rules.ignored_user_agents.end(), begins) ||
         std::find(rules.ignored_paths.begin(), rules.ignored_paths.end(), request.path) != rules.ignored_paths.end();
}

}  // namespace

bool ToBeWoken(const api::SuspendedWorkload& sleeper) {
  const auto phase = sleeper.status.phase;
  return sleeper.spec.on_request && sleeper.spec.suspended && !sleeper.meta.terminating() &&
         (phase == SuspendPhase::kSuspending || phase == SuspendPhase::kSuspended);
}

bool Answers(const api::SuspendedWorkload& sleeper) {
  const auto phase = sleeper.status.phase;
  return phase != SuspendPhase::kSuspending && phase != SuspendPhase::kSuspended;
}

std::vector<Address> ReadyAddresses(const std::vector<std::shared_ptr<const kube::EndpointSlice>>& slices, std::string_view port) {
  std::vector<Address> out;
  for (const auto& slice : slices) {
    if (slice->managed_by == api::kSliceManager || slice->address_type == "FQDN") continue;
    for (const kube::ServicePort& its : slice->ports) {
      if (its.name != port || its.protocol != "TCP" || its.port <= 0) continue;
      for (const auto& endpoint : slice->endpoints) {
        if (endpoint.ready) out.push_back({endpoint.address, its.port});
      }
    }
  }
  return out;
}

Verdict Judge(const api::SuspendedWorkload& sleeper, const Request& request, bool silent, bool reachable) {
  const bool told = request.protocol == Protocol::kOther || silent || (request.protocol == Protocol::kHttp && request.complete);
  if (!told) return Verdict::kWait;
  if (request.asks_status()) return Verdict::kStatus;
  if (reachable && Answers(sleeper)) return Verdict::kForward;
  if (request.protocol != Protocol::kHttp) return Verdict::kHold;
  if (sleeper.spec.on_request && Ignored(*sleeper.spec.on_request, request)) return Verdict::kIgnored;
  return request.is_navigation() ? Verdict::kPage : Verdict::kHold;
}

std::string Why(const api::SuspendedWorkload& sleeper) {
  const std::string phase(api::SuspendPhaseName(sleeper.status.phase));
  const api::Condition* condition = kube::FindCondition(sleeper.status.conditions, "Suspended");
  std::string why = condition == nullptr || condition->message.empty() ? phase : phase + ": " + condition->message.str();
  for (char& c : why) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return kube::Clip(why, 1024);
}

}  // namespace holdfast::activator
