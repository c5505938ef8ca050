#include "reconcilers/onrequest/step.h"

#include <algorithm>
#include <charconv>

#include "base/hash.h"
#include "kube/conditions.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::onrequest {
namespace {

using api::SuspendPhase;

constexpr Duration kLook = std::chrono::milliseconds(500);
constexpr int32_t kLowest = 1024, kHighest = 65535;

struct Problem {
  std::string reason, message;
};

std::vector<std::string> TcpPorts(const kube::Service& service) {
  std::vector<std::string> names;
  for (const kube::ServicePort& port : service.ports) {
    if (port.protocol == "TCP") names.push_back(port.name.str());
  }
  return names;
}

bool Selects(const kube::StringMap& selector, const kube::StringMap& labels) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& wanted) {
    auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second.view();
  });
}

std::optional<Problem> ProblemOf(const World& w) {
  const std::string name = w.object->spec.on_request->service.str(), service = "Service " + name;
  if (w.range.count == 0) return Problem{"NotInstalled", "no activator is installed: set the chart's value activator.enabled"};
  if (!w.rival.empty())
    return Problem{"Conflict",
                   "SuspendedWorkload " + w.rival + " names " + service + " too, and came first: one of them needs another Service"};
  if (!w.service) return Problem{"ServiceMissing", "there is no " + service + " in namespace " + w.object->meta.ns};
  const kube::Service& s = *w.service;
  if (s.type == "ExternalName")
    return Problem{"ServiceUnsupported", service + " is an ExternalName, which has no endpoints: name one with a cluster IP"};
  if (s.cluster_ip == "None")
    return Problem{
        "ServiceUnsupported",
        service +
            " is headless: its clients connect to pods by address and port, so nothing can stand in for them; name one with a cluster IP"};
  if (s.local_only)
    return Problem{
        "ServiceUnsupported",
        service + " has internalTrafficPolicy Local, by which only activators of the client's node were reached: set it to Cluster"};
  if (s.selector.empty())
    return Problem{"ServiceUnsupported", service + " has no selector: its endpoints are not the pods of this workload"};
  if (w.target && !Selects(s.selector, w.target->template_labels)) {
    return Problem{"NotSelected", service + " does not select the pods of " + w.object->spec.target_kind + " " +
                                      w.object->spec.target_name + ": name the Service that leads to them"};
  }
  const size_t ports = TcpPorts(s).size();
  if (ports == 0) return Problem{"ServiceUnsupported", service + " has no TCP port: requests of other protocols wake nobody"};
  if (ports > api::kMaxActivatorPorts)
    return Problem{"ServiceUnsupported", service + " has more than " + std::to_string(api::kMaxActivatorPorts) + " TCP ports"};
  return std::nullopt;
}

// The recorded numbers as far as they may stay, and free ones for the others. Nothing: the range is used up.
std::optional<std::vector<api::ActivatorPort>> Allot(const World& w) {
  const auto& recorded = w.object->status.on_request;
  std::vector<api::ActivatorPort> out;
  std::set<int32_t> used = w.taken;
  for (const std::string& name : TcpPorts(*w.service)) {
    auto keeps = [&](const api::ActivatorPort& port) {
      return port.name == name && w.range.Has(port.number) && !w.taken_earlier.contains(port.number);
    };
    const auto kept =
        recorded.service == w.service->meta.name ? std::find_if(recorded.ports.begin(), recorded.ports.end(), keeps) : recorded.ports.end();
    if (kept != recorded.ports.end()) {
      out.push_back(*kept);
      used.insert(kept->number);
      continue;
    }
    const auto count = static_cast<uint64_t>(w.range.count);
    // The same for the same port, so that it mostly gets the same one again.
    const uint64_t from = Fnv1a(w.object->meta.ns + "/" + w.service->meta.name + "/" + name) % count;
    uint64_t tried = 0;
    auto number = [&] { return w.range.first + static_cast<int32_t>((from + tried) % count); };
    while (tried < count && used.contains(number())) ++tried;
    if (tried == count) return std::nullopt;
    out.push_back({name, number()});
    used.insert(number());
  }
  return out;
}

// The condition, and `more` of the status; nothing to write when all of it stands there.
Step Report(const World& w, bool ready, const std::string& reason, const std::string& message, WallTime now, Json more = Json::object()) {
  std::vector<api::Condition> conditions = w.object->status.conditions;
  const bool changed = kube::SetCondition(conditions,
                                          {.type = kCondition,
                                           .status = ready ? "True" : "False",
                                           .reason = reason,
                                           .message = message,
                                           .observed_generation = w.object->meta.generation},
                                          now);
  Step step;
  step.why = message;
  if (!changed && more.empty()) return step;
  step.action = Action::kPatchStatus;
  more["conditions"] = api::ToJson(conditions);
  step.patch = {{"status", std::move(more)}};
  return step;
}

Step DeleteSlice(std::string why) {
  Step step;
  step.action = Action::kDeleteSlice;
  step.why = std::move(why);
  return step;
}

Step NotAsked(const World& w) {
  if (w.slice) return DeleteSlice("requests are not to wake it any more");
  std::vector<api::Condition> conditions = w.object->status.conditions;
  const bool had = kube::RemoveCondition(conditions, kCondition);
  Step step;
  if (!had && w.object->status.on_request.service.empty()) return step;
  step.action = Action::kPatchStatus;
  step.why = "requests are not to wake it";
  step.patch = {{"status", {{"onRequest", nullptr}, {"conditions", api::ToJson(conditions)}}}};
  return step;
}

// Its pods are ended, or ending; or not all of them are back.
bool Sleeps(const World& w) {
  const auto& s = w.object->status;
  if (s.phase == SuspendPhase::kSuspending) return s.durable && w.target && api::AsleepMark(w.target->meta);
  return s.phase == SuspendPhase::kSuspended || s.phase == SuspendPhase::kResuming;
}

Json SliceOf(const World& w) {
  Json endpoints = Json::array(), ports = Json::array();
  for (const std::string& address : w.activators) endpoints.push_back({{"addresses", {address}}, {"conditions", {{"ready", true}}}});
  for (const api::ActivatorPort& port : w.object->status.on_request.ports)
    ports.push_back({{"name", port.name}, {"protocol", "TCP"}, {"port", port.number}});
  const kube::ObjectMeta& owner = w.object->meta;
  return {
      {"apiVersion", kube::EndpointSlice::kResource.ApiVersion()},
      {"kind", "EndpointSlice"},
      {"metadata",
       {{"name", SliceName(w.service->meta.name)},
        {"namespace", owner.ns},
        {"labels", {{kube::EndpointSlice::kServiceLabel, w.service->meta.name}, {kube::EndpointSlice::kManagerLabel, api::kSliceManager}}},
        {"ownerReferences",
         {{{"apiVersion", api::SuspendedWorkload::kResource.ApiVersion()},
           {"kind", "SuspendedWorkload"},
           {"name", owner.name},
           {"uid", owner.uid},
           {"controller", true}}}}}},
      {"addressType", w.service->family},
      {"endpoints", std::move(endpoints)},
      {"ports", std::move(ports)}};
}

bool Same(const kube::EndpointSlice& slice, const World& w) {
  const auto& ports = w.object->status.on_request.ports;
  return slice.address_type == w.service->family.view() &&
         std::equal(
             slice.ports.begin(), slice.ports.end(), ports.begin(), ports.end(),
             [](const kube::ServicePort& a, const api::ActivatorPort& b) { return a.name == b.name.view() && a.port == b.number; }) &&
         std::equal(slice.endpoints.begin(), slice.endpoints.end(), w.activators.begin(), w.activators.end(),
                    [](const kube::EndpointSlice::Endpoint& a, const std::string& b) { return a.ready && a.address == b; });
}

}  // namespace

std::optional<PortRange> ParsePortRange(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  int32_t first = 0, last = 0;
  auto whole = [](std::string_view part, int32_t* into) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *into);
    return error == std::errc() && end == part.data() + part.size();
  };
  if (!whole(text.substr(0, dash), &first) || !whole(text.substr(dash + 1), &last)) return std::nullopt;
  if (first < kLowest || last < first || last > kHighest) return std::nullopt;
  return PortRange{first, last - first + 1};
}

std::string SliceName(std::string_view service) { return std::string(service) + "-holdfast"; }

Step Next(const World& w, WallTime now) {
  if (!w.object->spec.on_request) return NotAsked(w);
  const std::string service = w.object->spec.on_request->service.str();
  const auto& recorded = w.object->status.on_request;
  if (w.slice && recorded.service != service) return DeleteSlice("another Service is to wake it");
  if (const auto problem = ProblemOf(w)) {
    if (w.slice) return DeleteSlice(problem->message);
    Json more = Json::object();
    if (w.range.count == 0 && !recorded.service.empty()) more["onRequest"] = nullptr;
    return Report(w, false, problem->reason, "requests do not wake it: " + problem->message, now, std::move(more));
  }
  const auto ports = Allot(w);
  if (!ports) {
    if (w.slice) return DeleteSlice("it has no port of the activator");
    return Report(w, false, "PortsUsedUp",
                  "requests do not wake it: all " + std::to_string(w.range.count) + " ports of the activator (" + w.range.ToString() +
                      ") stand for other Services: give it more with the chart's value activator.ports",
                  now);
  }
  if (recorded.service != service || recorded.ports != *ports) {
    Json numbers = Json::array();
    for (const api::ActivatorPort& port : *ports) numbers.push_back(api::ToJson(port));
    Step step = Report(w, false, "Preparing", "the activator is told of Service " + service, now,
                       {{"onRequest", {{"service", service}, {"ports", numbers}}}});
    step.live = true;
    return step;
  }
  if (w.activators.empty()) {
    if (w.slice) return DeleteSlice("no activator is ready");
    return Report(w, false, "NoActivator", "requests do not wake it: no pod of the activator is ready", now);
  }
  if (Step told = Report(w, true, "Ready", "requests to Service " + service + " wake it", now); told.action != Action::kNothing)
    return told;
  if (Sleeps(w)) {
    Step step;
    if (w.slice && Same(*w.slice, w)) return step;
    // The type of its addresses cannot be changed.
    if (w.slice && w.slice->address_type != w.service->family.view()) return DeleteSlice("its Service has another address family");
    step.action = Action::kWriteSlice;
    step.slice = SliceOf(w);
    step.why = "it sleeps";
    return step;
  }
  if (!w.slice) {
    Step step;
    // Whether its workload is being stopped shows on that one first.
    if (w.object->status.phase == SuspendPhase::kSuspending) step.again = kLook;
    return step;
  }
  if (w.own_endpoint || w.object->status.phase == SuspendPhase::kFailed) return DeleteSlice("it runs");
  Step wait;
  wait.again = kLook;
  wait.live = true;
  wait.why = "no pod of it is ready yet";
  return wait;
}

}  // namespace holdfast::reconcilers::onrequest
