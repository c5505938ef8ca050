#include "agent/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "agent/damaged_files.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr std::array<std::string_view, 8> kSteps = {"Intent",      "Dumping",   "Dumped", "Storing",
                                                    "CommitAsked", "Committed", "Thawed", "Finished"};
constexpr size_t kMaxManifestBytes = size_t{512} << 20;
constexpr size_t kRoomFiles = 16, kRoomBytes = 64 << 10;  // an entry takes a few KiB

Status ErrnoOf(const std::string& what, const std::string& path) {
  return Status(Code::kResourceExhausted, what + " " + path + ": " + std::generic_category().message(errno));
}

// With its blocks: what is written into it later takes no others.
Status MakeRoomFile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoOf("cannot create", path);
  errno = posix_fallocate(fd, 0, kRoomBytes);
  Status made = errno == 0 ? Status::Ok() : ErrnoOf("cannot set room aside in", path);
  close(fd);
  if (!made.ok()) unlink(path.c_str());
  return made;
}

Status Overwrite(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return ErrnoOf("cannot open", path);
  const auto size = static_cast<off_t>(text.size());
  bool written = true;
  for (off_t at = 0; written && at < size;) {
    const ssize_t n = pwrite(fd, text.data() + at, static_cast<size_t>(size - at), at);
    if (n > 0) at += n;
    written = n > 0 || (n < 0 && errno == EINTR);
  }
  written = written && ftruncate(fd, size) == 0 && fsync(fd) == 0;
  Status done = written ? Status::Ok() : ErrnoOf("cannot write", path);
  close(fd);
  return done;
}

}  // namespace

std::string_view StepName(Step step) { return kSteps[static_cast<size_t>(step)]; }

namespace {

Json ToJson(const std::vector<JournalContainer>& containers) {
  Json list = Json::array();
  for (const JournalContainer& c : containers) {
    list.push_back({{"name", c.name}, {"id", c.id}, {"image", c.image}, {"imageDigest", c.image_digest}});
  }
  return list;
}

// `with_id`: of containers that ran.
Result<std::vector<JournalContainer>> ContainersFrom(const Json& list, bool with_id) {
  std::vector<JournalContainer> containers;
  for (const Json& c : list) {
    JournalContainer container{GetString(c, {"name"}), GetString(c, {"id"}), GetString(c, {"image"}), GetString(c, {"imageDigest"})};
    if (!IsSafeName(container.name) || (with_id && !IsSafeName(container.id)))
      return Status(Code::kDataLoss, "not a journal entry: unsafe container name");
    containers.push_back(std::move(container));
  }
  return containers;
}

}  // namespace

std::vector<JournalContainer> JournalEntry::Kept() const {
  std::vector<JournalContainer> kept = containers;
  kept.insert(kept.end(), carried.begin(), carried.end());
  return kept;
}

Json JournalEntry::ToJson() const {
  return {{"uid", uid},
          {"namespace", ns},
          {"name", name},
          {"pod", pod},
          {"podUID", pod_uid},
          {"step", StepName(step)},
          {"final", final},
          {"onStop", on_stop},
          {"inCut", in_cut},
          {"stock", stock},
          {"landing", PlaceName(place)},
          {"reservedBytes", reserved_bytes},
          {"bootID", boot_id},
          {"attempts", attempts},
          {"store", store},
          {"startedAt", started_at},
          {"deadlineUnixMs", deadline_unix_ms},
          {"dumpByUnixMs", dump_by_unix_ms},
          {"containers", agent::ToJson(containers)},
          {"waiting", agent::ToJson(waiting)},
          {"carried", agent::ToJson(carried)},
          {"volumes", volumes},
          {"failureReason", failure_reason},
          {"failureMessage", failure_message},
          {"reported", reported},
          {"claimed", claimed},
          {"reclaimed", reclaimed},
          {"ended", ended},
          {"unheard", unheard},
          {"commit", {{"id", commit.id}, {"digest", commit.digest}, {"newBytes", commit.new_bytes}, {"storeMs", commit.store_ms}}}};
}

Result<JournalEntry> JournalEntry::FromJson(const Json& json) {
  JournalEntry e;
  e.uid = GetString(json, {"uid"});
  e.ns = GetString(json, {"namespace"});
  e.name = GetString(json, {"name"});
  e.pod = GetString(json, {"pod"});
  e.pod_uid = GetString(json, {"podUID"});
  for (const std::string* name : {&e.uid, &e.ns, &e.name, &e.pod, &e.pod_uid}) {
    if (!IsSafeName(*name)) return Status(Code::kDataLoss, "not a journal entry: a name is missing or unsafe");
  }
  const std::string step = GetString(json, {"step"});
  size_t at = 0;
  while (at < kSteps.size() && kSteps[at] != step) ++at;
  if (at == kSteps.size()) return Status(Code::kDataLoss, "not a journal entry: unknown step \"" + step + "\"");
  e.step = static_cast<Step>(at);
  e.final = GetBool(json, {"final"});
  e.on_stop = GetBool(json, {"onStop"});
  e.in_cut = GetBool(json, {"inCut"});
  e.stock = GetBool(json, {"stock"});
  e.place = GetString(json, {"landing"}) == PlaceName(Place::kMemory) ? Place::kMemory : Place::kDisk;
  e.reserved_bytes = static_cast<uint64_t>(GetInt(json, {"reservedBytes"}));
  e.boot_id = GetString(json, {"bootID"});
  e.attempts = static_cast<int>(GetInt(json, {"attempts"}, 1));
  e.store = GetString(json, {"store"}, e.store);
  e.started_at = GetString(json, {"startedAt"});
  e.deadline_unix_ms = GetInt(json, {"deadlineUnixMs"});
  e.dump_by_unix_ms = GetInt(json, {"dumpByUnixMs"}, e.deadline_unix_ms);
  HF_ASSIGN_OR_RETURN(e.containers, ContainersFrom(GetArray(json, {"containers"}), true));
  HF_ASSIGN_OR_RETURN(e.waiting, ContainersFrom(GetArray(json, {"waiting"}), false));
  HF_ASSIGN_OR_RETURN(e.carried, ContainersFrom(GetArray(json, {"carried"}), false));
  for (const Json& v : GetArray(json, {"volumes"})) {
    if (!v.is_string() || !IsSafeName(v.get_ref<const std::string&>()))
      return Status(Code::kDataLoss, "not a journal entry: unsafe volume name");
    e.volumes.push_back(v.get<std::string>());
  }
  e.failure_reason = GetString(json, {"failureReason"});
  e.failure_message = GetString(json, {"failureMessage"});
  e.reported = GetBool(json, {"reported"});
  e.claimed = GetBool(json, {"claimed"});
  e.reclaimed = GetBool(json, {"reclaimed"});
  e.ended = GetBool(json, {"ended"});
  e.unheard = GetBool(json, {"unheard"});
  e.commit.id = GetString(json, {"commit", "id"});
  e.commit.digest = GetString(json, {"commit", "digest"});
  e.commit.new_bytes = static_cast<uint64_t>(GetInt(json, {"commit", "newBytes"}));
  e.commit.store_ms = GetInt(json, {"commit", "storeMs"});
  return e;
}

Journal::Journal(std::string folder, WriteFile write)
    : folder_(std::move(folder)),
      write_(write ? std::move(write) : [](const std::string& path, const std::string& text) { return WriteFileDurably(path, text); }) {}

Status Journal::SetRoomAside() {
  std::lock_guard lock(mutex_);
  room_asked_ = true;
  room_missing_ = 0;
  HF_RETURN_IF_ERROR(MakeDirs(Room()));
  Status first;
  for (size_t i = 0; i < kRoomFiles; ++i) {
    Status made = MakeRoomFile(Room() + "/" + std::to_string(i));
    if (made.ok()) continue;
    ++room_missing_;
    if (first.ok()) first = made;
  }
  return first;
}

// A file that has its blocks already becomes the entry: nothing but its name is new to the disk, and nobody else can have taken its room.
Status Journal::WriteIntoRoom(const std::string& path, const std::string& text) {
  if (text.size() > kRoomBytes) return Status(Code::kResourceExhausted, "it is longer than what is set aside");
  std::lock_guard lock(mutex_);
  HF_ASSIGN_OR_RETURN(std::vector<std::string> files, ListDir(Room()));
  if (files.empty()) return Status(Code::kResourceExhausted, "the room that was set aside is used up");
  const std::string file = Room() + "/" + files.back();
  HF_RETURN_IF_ERROR(Overwrite(file, text));
  if (rename(file.c_str(), path.c_str()) != 0) return ErrnoOf("cannot rename to", path);
  ++room_missing_;
  return SyncDir(folder_);
}

Status Journal::Write(const JournalEntry& entry) {
  if (!IsSafeName(entry.uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  const std::string path = folder_ + "/" + entry.uid + ".json", text = DumpJson(entry.ToJson());
  Status written = write_(path, text);
  const bool full = written.code() == Code::kResourceExhausted;
  if (full && WriteIntoRoom(path, text).ok()) written = Status::Ok();
  writable_ = written.ok();
  bool refill = false;
  {
    std::lock_guard lock(mutex_);
    refill = room_asked_ && room_missing_ > 0 && !full;
  }
  if (refill) (void)SetRoomAside();  // what is still missing is tried again with the next step
  return written.With("cannot write the journal");
}

Status Journal::KeepDamaged(const std::string& uid) {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  const std::string kept = folder_ + "/" + uid + ".damaged";
  unlink(kept.c_str());
  if (link((folder_ + "/" + uid + ".json").c_str(), kept.c_str()) == 0) {
    KeepNewest(folder_, ".damaged");
    return Status::Ok();
  }
  return Status(Code::kInternal, "cannot keep " + kept + ": " + std::generic_category().message(errno));
}

Result<JournalEntry> Journal::Read(const std::string& uid) const {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(folder_ + "/" + uid + ".json", 1 << 20));
  Result<Json> json = ParseJson(text);
  if (!json.ok()) return Status(Code::kDataLoss, "journal entry " + uid + ": " + json.status().message());
  HF_ASSIGN_OR_RETURN(JournalEntry entry, JournalEntry::FromJson(*json));
  if (entry.uid != uid) return Status(Code::kDataLoss, "journal entry " + uid + " is of another checkpoint");
  return entry;
}

Result<std::vector<JournalEntry>> Journal::List(std::vector<std::string>* damaged) const {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(folder_));
  std::vector<JournalEntry> entries;
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    Result<JournalEntry> entry = Read(name.substr(0, name.size() - 5));
    if (entry.ok()) {
      entries.push_back(std::move(*entry));
    } else if (damaged != nullptr && entry.status().code() != Code::kNotFound) {
      damaged->push_back(name);
    }
  }
  return entries;
}

Status Journal::Remove(const std::string& uid) {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  unlink((folder_ + "/" + uid + ".manifest").c_str());
  unlink(SentLog(uid).c_str());
  if (unlink((folder_ + "/" + uid + ".json").c_str()) != 0 && Exists(folder_ + "/" + uid + ".json")) {
    return Status(Code::kInternal, "cannot remove journal entry " + uid);
  }
  return SyncDir(folder_);
}

Status Journal::RemoveSentLog(const std::string& uid) {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  if (!Exists(SentLog(uid))) return Status::Ok();
  if (unlink(SentLog(uid).c_str()) != 0) return Status(Code::kInternal, "cannot remove " + SentLog(uid));
  return SyncDir(folder_);
}

Status Journal::WriteManifest(const std::string& uid, const std::string& text) {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  return WriteFileDurably(folder_ + "/" + uid + ".manifest", text).With("cannot write the journal");
}

Result<std::string> Journal::ReadManifest(const std::string& uid) const {
  if (!IsSafeName(uid)) return Status(Code::kInvalidArgument, "unsafe checkpoint uid");
  return ReadFile(folder_ + "/" + uid + ".manifest", kMaxManifestBytes);
}

}  // namespace holdfast::agent
