#include "reconcilers/claim/live.h"

#include <algorithm>

#include "base/log.h"
#include "kube/list_stream.h"

namespace holdfast::reconcilers::claim {
namespace {

using Found = std::vector<CheckpointPtr>;

// Also where a selector was given: an API server that does not know it must not be believed to have followed it.
bool Concerns(const World& world, const api::Checkpoint& c) {
  if (!world.lineage.owner.uid.empty() && c.status.owner.uid == world.lineage.owner.uid) return true;
  if (c.status.claim && c.status.claim->pod_uid == world.pod->meta.uid) return true;
  return std::any_of(world.stopping.begin(), world.stopping.end(),
                     [&](const PodPtr& pod) { return pod->meta.uid == c.spec.pod_uid.view(); });
}

Result<Found> Selected(kube::Client& client, const World& world, const std::string& fields, const std::stop_token& stop) {
  auto keep = [&](const Json& item) -> std::optional<CheckpointPtr> {
    auto c = std::make_shared<const api::Checkpoint>(api::Checkpoint::FromJson(item));
    return Concerns(world, *c) ? std::optional<CheckpointPtr>(std::move(c)) : std::nullopt;
  };
  const kube::ListSpec spec{.resource = api::Checkpoint::kResource, .scope = {world.pod->meta.ns, "", fields}, .timeout = kAnswer};
  return kube::Gather<CheckpointPtr>(client, spec, keep, stop);
}

}  // namespace

Result<Found> LiveCheckpoints(kube::Client& client, const World& world, std::stop_token stop) {
  std::vector<std::string> selectors = {"status.claim.podUID=" + world.pod->meta.uid};
  if (!world.lineage.owner.uid.empty()) selectors.push_back("status.owner.uid=" + world.lineage.owner.uid.str());
  if (!world.stopping.empty()) selectors.emplace_back("status.owner.uid=,status.phase!=Failed");
  std::map<std::string, CheckpointPtr> found;  // by name; what was read last counts
  for (const std::string& fields : selectors) {
    Result<Found> some = Selected(client, world, fields, stop);
    const bool unknown_field = some.status().code() == Code::kInvalidArgument;
    if (unknown_field) {
      LogWarning(
          "all Checkpoints of a namespace are read for one pod, since the CRD is of an earlier release: kubectl apply "
          "--server-side -f crds/",
          {{"pod", world.pod->meta.Key()}, {"error", some.status().message()}});
      some = Selected(client, world, "", stop);
    }
    if (!some.ok()) return some.status();
    for (CheckpointPtr& c : *some) found[c->meta.name] = std::move(c);
    if (unknown_field) break;  // that was all there is
  }
  if (const std::string asked = world.pod->meta.Annotation(api::kFromCheckpoint); !asked.empty() && !found.contains(asked)) {
    auto named = client.Get<api::Checkpoint>(world.pod->meta.ns, asked, Calls(stop));
    if (named.ok()) found[asked] = std::make_shared<const api::Checkpoint>(std::move(*named));
    // What a user wrote may be no name at all: then there is none of it.
    const Code code = named.status().code();
    if (!named.ok() && code != Code::kNotFound && code != Code::kInvalidArgument) return named.status();
  }
  Found all;
  for (auto& [name, c] : found) all.push_back(std::move(c));
  return all;
}

}  // namespace holdfast::reconcilers::claim
