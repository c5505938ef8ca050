#include "agent/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "agent/host_node.h"
#include "agent/installer/real_host.h"
#include "agent/landing_memory.h"
#include "api/checkpoint.h"
#include "kube/client.h"
#include "kube/config.h"
#include "kube/http.h"
#include "kube/objects.h"

namespace holdfast::agent {
namespace {

using runtime::NodeCheck;
using Verdict = NodeCheck::Verdict;

constexpr Duration kExamineWithin = std::chrono::seconds(60), kServerWithin = std::chrono::seconds(10),
                   kAllWithin = std::chrono::seconds(100);
constexpr size_t kNameWidth = 20;

struct Word {
  const char* text;
  const char* color;
};
Word WordFor(Verdict verdict) {
  if (verdict == Verdict::kOk) return {"ok  ", ""};
  return verdict == Verdict::kWarn ? Word{"warn", "\033[33m"} : Word{"FAIL", "\033[31m"};
}

std::string Plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

int64_t Count(const NodeReport& report, Verdict verdict) {
  return std::count_if(report.checks.begin(), report.checks.end(), [&](const NodeCheck& check) { return check.verdict == verdict; });
}

std::string Counted(int64_t count, const std::string& what) { return std::to_string(count) + " " + what + (count == 1 ? "" : "s"); }

Json AsJson(const std::string& node_name, const NodeReport& report) {
  Json json = {{"node", node_name}, {"usable", report.usable()}, {"checks", Json::array()}};
  for (const NodeCheck& check : report.checks) json["checks"].push_back(check.ToJson());
  return json;
}

std::string AsText(const std::string& node_name, const NodeReport& report, bool color) {
  const int64_t fails = Count(report, Verdict::kFail), warns = Count(report, Verdict::kWarn);
  std::string out = node_name + (report.usable() ? ": can be used" : ": cannot be used, " + Counted(fails, "failure")) +
                    (warns > 0 ? ", " + Counted(warns, "warning") : "") + "\n";
  for (const NodeCheck& check : report.checks) {
    const Word word = WordFor(check.verdict);
    const bool painted = color && check.verdict != Verdict::kOk;
    out += "  " + std::string(painted ? word.color : "") + word.text + "  " + Padded(check.name, kNameWidth) + Plain(check.seen) +
           (painted ? "\033[0m" : "") + "\n";
    if (check.verdict != Verdict::kOk) out += "        " + Padded("", kNameWidth) + "fix: " + Plain(check.fix) + "\n";
  }
  return out;
}

Result<Json> ReadNode(const AgentOptions& options) {
  HF_ASSIGN_OR_RETURN(kube::ClientConfig config, kube::LoadConfig(options.kubeconfig));
  kube::Client client(kube::MakeCurlTransport(config));
  return client.Get(kube::Node::kResource, "", options.node_name, {.timeout = kServerWithin});
}

NodeReport Look(const AgentOptions& options) {
  int host_pid = options.host_pid;
  if (host_pid == 0) {
    Result<int> found = FindNodeProcess();
    if (!found.ok()) {
      return {{{"agent", Verdict::kFail, found.status().message(), "run this in the agent's own pod: kubectl exec ds/holdfast-agent"}}};
    }
    host_pid = *found;
  }
  Layout layout;
  if (!options.state_dir.empty()) layout.state = options.state_dir;
  HostNode node(layout, host_pid);
  RealHost host(node, "");
  NodeReport report = Examine(host, Clock::Real(), layout.state, kExamineWithin);
  if (!options.run_dir.empty()) layout.run = options.run_dir;
  report.checks.push_back(CheckLanding(layout.Memory(), LookAtMemory(layout.Memory())));
  report.checks.push_back(CheckLabel(ReadNode(options)));
  return report;
}

}  // namespace

NodeCheck CheckLabel(const Result<Json>& node) {
  const std::string name = "label", label = api::kNodeReady;
  if (!node.ok()) {
    return {name, Verdict::kWarn, "the node's object cannot be read: " + node.status().message(),
            "look whether the API server can be reached from this node, and whether it is overloaded"};
  }
  const std::string value = GetString(*node, {"metadata", "labels", label});
  if (value == "ready") return {name, Verdict::kOk, label + "=ready"};
  if (value.empty()) {
    return {name,
            Verdict::kFail,
            "the node has no label " + label + ", so no protected pod is scheduled to it",
            "the agent sets it when nothing above fails; its log and the node's events (HoldfastWaiting) say what it waits for",
            "",
            true};
  }
  return {name, Verdict::kFail,
          label + "=" + value + ": " + GetString(*node, {"metadata", "annotations", "holdfast.dev/reason"}, "no reason given"),
          "mend what it names; the agent looks again every minute"};
}

std::string Render(const std::string& node_name, const NodeReport& report, const Rendering& rendering) {
  return rendering.json ? AsJson(node_name, report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                        : AsText(node_name, report, rendering.color);
}

int Doctor(const AgentOptions& options, const Rendering& rendering) {
  // Each program has its own limit; a file system that does not answer has none, and its reader cannot be interrupted.
  std::jthread watching([&](std::stop_token done) {
    if (!Clock::Real().Sleep(kAllWithin, done)) return;
    const NodeReport stuck = {
        {{"doctor", Verdict::kFail, "the checks do not end",
          "look for a file system of the node that does not answer (processes in state D: ps axo pid,stat,wchan,args)"}}};
    const std::string text = Render(options.node_name, stuck, rendering);
    [[maybe_unused]] ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    _exit(1);
  });
  const NodeReport report = Look(options);
  std::cout << Render(options.node_name, report, rendering) << std::flush;
  return report.usable() ? 0 : 1;
}

}  // namespace holdfast::agent
