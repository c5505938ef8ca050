#include "agent/damaged_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "agent/freezer.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

// Where what `path` has is kept for people, as `name`. The disk may be full: then it is not.
std::string Keep(const Layout& layout, const std::string& path, const std::string& name) {
  const Result<std::string> text = ReadFile(path, kMaxBytes);
  const std::string kept = layout.Damaged() + "/" + name;
  Status done = MakeDirs(layout.Damaged());
  if (done.ok()) done = WriteFileAtomically(kept, text.value_or(""));
  if (!done.ok()) LogWarning("a damaged file is not kept for people", {{"file", path}, {"error", done.message()}});
  KeepNewest(layout.Damaged(), ".json");
  return done.ok() ? kept : "";
}

std::string KeepIntent(const Layout& layout, const std::string& file) {
  return Keep(layout, layout.Containers() + "/" + file, "container-" + file.substr(0, file.rfind('.')) + ".json");
}

// The checkpoint that holds a pod; kNotFound: none does.
Result<std::string> HolderOf(const Layout& layout, const std::string& pod_uid) {
  if (!Exists(layout.PodFile(pod_uid))) return Status(Code::kNotFound, "it is not held");
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(layout.PodFile(pod_uid), kMaxBytes));
  HF_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  const std::string uid = GetString(json, {"checkpoint_uid"});
  if (uid.empty()) return Status(Code::kDataLoss, "it names no checkpoint");
  return uid;
}

class Mender {
 public:
  Mender(const Layout& layout, Node& node, const Journal& journal, const std::function<bool(const std::string&)>& pod_runs_on)
      : layout_(layout), node_(node), pod_runs_on_(pod_runs_on) {
    std::vector<std::string> damaged;
    entries_ = journal.List(&damaged).value_or({});
    for (const JournalEntry& entry : entries_) live_.insert(entry.uid);
    for (const std::string& name : damaged) live_.insert(name.substr(0, name.rfind('.')));
    damaged_entries_ = !damaged.empty();
  }

  DamagedFiles Run(bool alone) {
    for (const JournalEntry& entry : entries_) {
      if (!alone) continue;
      if (Status done = MendIntentsOf(layout_, entry, &found_.mended); !done.ok()) Left(entry.uid, done);
    }
    for (const std::string& file : ListDir(layout_.Containers()).value_or({})) {
      if (IsIntent(file) && !ReadIntent(layout_, file).ok()) Intent(file);
    }
    for (const std::string& file : ListDir(layout_.Pods()).value_or({})) {
      const std::string pod_uid = file.substr(0, file.rfind('.'));
      if (file.ends_with(".json") && IsSafeName(pod_uid) && Unreadable(pod_uid)) Word(pod_uid, alone);
    }
    return std::move(found_);
  }

 private:
  void Left(const std::string& what, const Status& why) {
    found_.left = true;
    LogError("a damaged file cannot be mended yet; what it is about stays as it is", {{"of", what}, {"error", why.message()}});
  }
  bool Unreadable(const std::string& pod_uid) const {
    const Result<std::string> holder = HolderOf(layout_, pod_uid);
    return !holder.ok() && holder.status().code() != Code::kNotFound;
  }

  void Intent(const std::string& file) {
    const std::string id = file.substr(0, file.rfind('.'));
    if (!IsSafeName(id)) return;
    const bool thawing = file.ends_with(".thawing");  // that it goes on was decided already
    const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const JournalEntry& entry) {
      return std::any_of(entry.containers.begin(), entry.containers.end(), [&](const JournalContainer& c) { return c.id == id; });
    });
    if (listed) return;  // whoever works on that entry sees to it
    MendedFile mended{.kept = "", .container = ContainerOf(id), .outcome = "it goes on, thawed: no checkpoint claims it"};
    const std::string& pod_uid = mended.container.pod_uid;
    const Result<std::string> holder = pod_uid.empty() ? Result<std::string>(Status(Code::kNotFound, "")) : HolderOf(layout_, pod_uid);
    Clues clues{.damaged_entries = damaged_entries_};
    if (holder.ok()) {
      clues.held = live_.contains(*holder) ? Clues::kByLive : Clues::kByOther;
    } else if (holder.status().code() != Code::kNotFound) {
      clues.held = Clues::kUnreadable;
      clues.pod_runs_on = pod_runs_on_(pod_uid);
    }
    switch (thawing ? Meaning::kNothing : MeaningOf(clues)) {
      case Meaning::kUnknown: {
        const Result<ContainerState> state = node_.StateOf(id);
        const bool over = state.ok() && (*state == ContainerState::kGone || *state == ContainerState::kStopped);
        if (!over) return Left("container " + id, Status(Code::kUnavailable, "whether another copy of it may run is not known"));
        mended.outcome = "its container has ended";
        break;
      }
      case Meaning::kFinal: {
        JournalEntry entry;
        entry.uid = *holder;
        entry.pod_uid = pod_uid;
        entry.final = true;
        entry.place = Exists(layout_.Landing(entry.uid, Place::kMemory)) ? Place::kMemory : Place::kDisk;
        mended.kept = KeepIntent(layout_, file);
        mended.outcome = "it was written anew: checkpoint " + entry.uid + " holds its pod";
        if (Status done = WriteIntent(layout_, entry, {mended.container.container, id, "", ""}); !done.ok()) return Left(id, done);
        found_.mended.push_back(std::move(mended));
        return;
      }
      case Meaning::kNothing:
        break;
    }
    mended.kept = KeepIntent(layout_, file);
    if (Status done = ThawContainers(layout_, node_, Of(id)); !done.ok()) return Left("container " + id, done);
    found_.mended.push_back(std::move(mended));
  }

  // That a pod is held. After the Intents: while one of the pod's cannot be told, neither can this.
  void Word(const std::string& pod_uid, bool alone) {
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(), [&](const JournalEntry& e) { return e.pod_uid == pod_uid && e.final; });
    if (entry != entries_.end()) {
      if (!alone) return;  // as above
      MendedFile mended{.kept = KeepWord(pod_uid), .container = {}, .outcome = "it was written anew from the journal"};
      mended.container.pod_uid = pod_uid;
      if (Status done = HoldPod(layout_, *entry); !done.ok()) return Left("pod " + pod_uid, done);
      found_.mended.push_back(std::move(mended));
      return;
    }
    if (damaged_entries_ || found_.left)
      return Left("pod " + pod_uid, Status(Code::kUnavailable, "which checkpoint holds it is not known"));
    MendedFile mended{.kept = KeepWord(pod_uid), .container = {}, .outcome = "it was removed: no checkpoint holds the pod"};
    mended.container.pod_uid = pod_uid;
    unlink(layout_.PodFile(pod_uid).c_str());
    found_.mended.push_back(std::move(mended));
  }

  std::string KeepWord(const std::string& pod_uid) const { return Keep(layout_, layout_.PodFile(pod_uid), "pod-" + pod_uid + ".json"); }

  static JournalEntry Of(const std::string& id) {
    JournalEntry entry;
    entry.containers = {{"", id, "", ""}};
    return entry;
  }

  NodeContainer ContainerOf(const std::string& id) {
    for (const NodeContainer& container : node_.Containers().value_or({})) {
      if (container.id == id) return container;
    }
    NodeContainer unknown;
    unknown.id = id;
    return unknown;
  }

  const Layout& layout_;
  Node& node_;
  const std::function<bool(const std::string&)>& pod_runs_on_;
  std::vector<JournalEntry> entries_;
  std::set<std::string> live_;
  bool damaged_entries_ = false;
  DamagedFiles found_;
};

}  // namespace

Meaning MeaningOf(const Clues& clues) {
  if (clues.held == Clues::kByLive) return Meaning::kFinal;
  if (clues.damaged_entries) return Meaning::kUnknown;
  // Final ones alone hold their pods, and nobody else can go on from what is not final.
  return clues.held != Clues::kUnreadable || clues.pod_runs_on ? Meaning::kNothing : Meaning::kUnknown;
}

DamagedFiles MendFiles(const Layout& layout, Node& node, const Journal& journal, bool alone,
                       const std::function<bool(const std::string& pod_uid)>& pod_runs_on) {
  return Mender(layout, node, journal, pod_runs_on).Run(alone);
}

Status MendIntentsOf(const Layout& layout, const JournalEntry& entry, std::vector<MendedFile>* mended) {
  for (const JournalContainer& c : entry.containers) {
    const std::string file = c.id + ".json";
    if (!Exists(layout.IntentFile(c.id)) || ReadIntent(layout, file).ok()) continue;
    MendedFile one{.kept = KeepIntent(layout, file),
                   .container = {c.id, entry.pod_uid, entry.ns, entry.pod, c.name},
                   .outcome = "it was written anew from the journal of checkpoint " + entry.name};
    HF_RETURN_IF_ERROR(WriteIntent(layout, entry, c));
    mended->push_back(std::move(one));
  }
  return Status::Ok();
}

void KeepNewest(const std::string& folder, const std::string& suffix) {
  std::vector<std::pair<int64_t, std::string>> files;
  for (const std::string& name : ListDir(folder).value_or({})) {
    struct stat info;
    const std::string path = folder + "/" + name;
    if (name.ends_with(suffix) && lstat(path.c_str(), &info) == 0)
      files.emplace_back(info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec, path);
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = kDamagedKept; i < files.size(); ++i) unlink(files[i].second.c_str());
}

}  // namespace holdfast::agent
