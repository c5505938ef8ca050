#include "agent/freezer.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxIntentBytes = 64 << 10;

Status Unlink(const std::string& path) {
  if (unlink(path.c_str()) != 0 && Exists(path)) return Status(Code::kInternal, "cannot remove " + path);
  return Status::Ok();
}

Status ThawOne(const Layout& layout, Node& node, const std::string& id) {
  rename(layout.IntentFile(id).c_str(), layout.ThawingFile(id).c_str());  // not there: already renamed, or never written
  HF_RETURN_IF_ERROR(Unlink(layout.IntentFile(id)));
  HF_RETURN_IF_ERROR(node.Resume(id).With("container " + id + " stays frozen"));
  return Unlink(layout.ThawingFile(id));
}

}  // namespace

bool IsIntent(const std::string& file) { return file.ends_with(".json") || file.ends_with(".thawing"); }

Result<runtime::Intent> ReadIntent(const Layout& layout, const std::string& file) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(layout.Containers() + "/" + file, kMaxIntentBytes));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  return runtime::Intent::FromJson(json);
}

Status WriteIntents(const Layout& layout, const JournalEntry& entry) {
  const std::string landing = layout.Landing(entry.uid, entry.place);
  HF_RETURN_IF_ERROR(MakeDirs(landing));
  runtime::DumpRequest request;
  request.checkpoint_uid = entry.uid;
  request.pod_uid = entry.pod_uid;
  request.ns = entry.ns;
  request.pod = entry.pod;
  request.final = entry.final;
  if (entry.in_cut) {
    request.barrier_ms = std::chrono::milliseconds(kBarrierLimit).count();
    request.hold_ms = std::chrono::milliseconds(kHoldLimit).count();
  }
  request.deadline_unix_ms = entry.dump_by_unix_ms;
  for (const JournalContainer& c : entry.containers) request.containers.push_back({c.name, c.id});
  for (const std::string& volume : entry.volumes) request.volumes.push_back({volume, layout.EmptyDir(entry.pod_uid, volume)});
  HF_RETURN_IF_ERROR(WriteFileAtomically(landing + "/request.json", DumpJson(request.ToJson())));
  if (entry.final) HF_RETURN_IF_ERROR(HoldPod(layout, entry));
  for (const JournalContainer& c : entry.containers) HF_RETURN_IF_ERROR(WriteIntent(layout, entry, c));
  return Status::Ok();
}

Status WriteIntent(const Layout& layout, const JournalEntry& entry, const JournalContainer& container) {
  runtime::Intent intent;
  intent.checkpoint_uid = entry.uid;
  intent.pod_uid = entry.pod_uid;
  intent.container = container.name;
  intent.landing = layout.Landing(entry.uid, entry.place);
  intent.final = entry.final;
  intent.kubelet = !entry.direct();
  return WriteFileAtomically(layout.IntentFile(container.id), DumpJson(intent.ToJson()));
}

Status HoldPod(const Layout& layout, const JournalEntry& entry) {
  return WriteFileDurably(layout.PodFile(entry.pod_uid), DumpJson({{"checkpoint_uid", entry.uid}}));
}

bool AnySignalled(const Layout& layout, const JournalEntry& entry) {
  return std::any_of(entry.containers.begin(), entry.containers.end(),
                     [&](const JournalContainer& c) { return Exists(layout.SignalledFile(c.id)); });
}

Status ThawContainers(const Layout& layout, Node& node, const JournalEntry& entry) {
  Status first;
  for (const JournalContainer& c : entry.containers) {
    Status thawed = ThawOne(layout, node, c.id);
    if (!thawed.ok() && first.ok()) first = thawed;
  }
  return first;
}

Status Thaw(const Layout& layout, Node& node, const JournalEntry& entry) {
  HF_RETURN_IF_ERROR(ThawContainers(layout, node, entry));
  return entry.final ? Unlink(layout.PodFile(entry.pod_uid)) : Status::Ok();
}

Status RemoveIntents(const Layout& layout, const JournalEntry& entry) {
  for (const JournalContainer& c : entry.containers) {
    HF_RETURN_IF_ERROR(Unlink(layout.IntentFile(c.id)));
    HF_RETURN_IF_ERROR(Unlink(layout.ThawingFile(c.id)));
  }
  return entry.final ? Unlink(layout.PodFile(entry.pod_uid)) : Status::Ok();
}

std::map<std::string, runtime::Intent> IntentsOf(const Layout& layout, const std::string& checkpoint_uid) {
  std::map<std::string, runtime::Intent> found;
  for (const std::string& name : ListDir(layout.Containers()).value_or({})) {
    if (!IsIntent(name)) continue;
    Result<runtime::Intent> intent = ReadIntent(layout, name);
    if (intent.ok() && intent->checkpoint_uid == checkpoint_uid) found[name.substr(0, name.rfind('.'))] = std::move(*intent);
  }
  return found;
}

std::vector<std::string> ThawOrphans(const Layout& layout, Node& node, const std::vector<std::string>& live) {
  auto is_live = [&live](const std::string& uid) { return std::find(live.begin(), live.end(), uid) != live.end(); };
  std::vector<std::string> thawed;
  Result<std::vector<std::string>> names = ListDir(layout.Containers());
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    if (!IsIntent(name)) continue;
    const std::string id = name.substr(0, name.rfind('.'));
    Result<runtime::Intent> intent = ReadIntent(layout, name);
    if (!intent.ok()) {
      LogError("an intent cannot be read; its container is left as it is until it is known what it meant",
               {{"file", name}, {"error", intent.status().message()}});
      continue;
    }
    if (is_live(intent->checkpoint_uid)) continue;
    Status status = ThawOne(layout, node, id);
    if (status.ok()) {
      thawed.push_back(id);
      LogWarning("thawed a container that no checkpoint claims", {{"container", id}, {"checkpoint", intent->checkpoint_uid}});
    } else {
      LogError("cannot thaw a container that no checkpoint claims", {{"container", id}, {"error", status.message()}});
    }
  }
  names = ListDir(layout.Pods());
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    Result<std::string> text = ReadFile(layout.Pods() + "/" + name, kMaxIntentBytes);
    Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    const std::string uid = json.ok() ? GetString(*json, {"checkpoint_uid"}) : "";
    if (!uid.empty() && !is_live(uid)) unlink((layout.Pods() + "/" + name).c_str());
  }
  return thawed;
}

bool NodeIsBusy(const Layout& layout, std::string* why) {
  struct Place {
    std::string dir;
    const char* what;
  };
  const Place places[] = {{layout.Containers(), "a checkpoint is being made, or a container is kept frozen"},
                          {layout.run + "/wait", "a pod is being restored"}};
  for (const Place& place : places) {
    Result<std::vector<std::string>> names = ListDir(place.dir);
    if (names.ok() && !names->empty()) {
      *why = place.what;
      return true;
    }
  }
  return false;
}

}  // namespace holdfast::agent
