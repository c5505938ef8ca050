#include "agent/caveats.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "kube/utf8.h"

namespace holdfast::agent {
namespace {

constexpr double kMemoryPace = 1.0 * (1 << 30), kDiskPace = 200.0 * (1 << 20);  // bytes a second
constexpr double kLeastSeconds = 0.2;                                           // CRIU's own, of a small process
constexpr double kMostSeconds = 86'400;
constexpr size_t kMaxText = 2000;

std::string Seconds(Duration duration) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f s", std::chrono::duration<double>(duration).count());
  return text.data();
}

}  // namespace

std::optional<Duration> EstimateFreeze(uint64_t bytes, Place place, const api::Checkpoint* last) {
  if (bytes == 0) return std::nullopt;
  double pace = place == Place::kMemory ? kMemoryPace : kDiskPace;
  if (last != nullptr && last->status.frozen_ms > 0) {
    const double whole = static_cast<double>(last->status.memory_bytes) + static_cast<double>(last->status.files_bytes);
    if (whole > 0) pace = whole * 1000 / static_cast<double>(last->status.frozen_ms);
  }
  const double seconds = std::clamp(static_cast<double>(bytes) / pace, kLeastSeconds, kMostSeconds);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::vector<Caveat> CaveatsOf(const kube::Pod& pod, const std::vector<JournalContainer>& containers, std::optional<Duration> frozen) {
  std::vector<Caveat> caveats;
  for (const kube::Container* container : pod.LastingContainers()) {
    if (std::none_of(containers.begin(), containers.end(), [&](const JournalContainer& c) { return container->name == c.name; })) continue;
    const std::string who = "container " + container->name;
    if (container->has_post_start) {
      caveats.push_back(
          {"PostStartHook", who + " has a postStart hook, which the kubelet runs again in the restored container: it must do no "
                                  "harm there a second time"});
    }
    const Duration budget = std::chrono::seconds(container->liveness_seconds);
    if (container->liveness_seconds > 0 && frozen && *frozen >= budget) {
      caveats.push_back(
          {"LivenessProbe", who + " is restarted, and loses its state, when it leaves its livenessProbe without an answer for " +
                                Seconds(budget) + ", and a dump holds it still for about " + Seconds(*frozen) +
                                ": raise the probe's failureThreshold, periodSeconds or timeoutSeconds"});
    }
  }
  return caveats;
}

std::vector<api::Condition> WithCaveats(const api::Checkpoint& checkpoint, const std::vector<Caveat>& caveats, WallTime now) {
  std::vector<api::Condition> conditions = checkpoint.status.conditions;
  if (caveats.empty()) {
    kube::RemoveCondition(conditions, api::kCaveats);
    return conditions;
  }
  std::string text;
  for (const Caveat& caveat : caveats) text += (text.empty() ? "" : "; ") + caveat.reason + ": " + caveat.message;
  kube::SetCondition(conditions,
                     {.type = api::kCaveats,
                      .status = "True",
                      .reason = caveats[0].reason,
                      .message = kube::Clip(text, kMaxText),
                      .observed_generation = checkpoint.meta.generation},
                     now);
  return conditions;
}

bool ToldBefore(const api::Checkpoint* last, const Caveat& caveat) {
  const api::Condition* said = last == nullptr ? nullptr : kube::FindCondition(last->status.conditions, api::kCaveats);
  return said != nullptr && said->message.str().find(caveat.reason + ": ") != std::string::npos;
}

}  // namespace holdfast::agent
