#include "agent/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <span>
#include <system_error>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "storage/file_tree.h"
#include "storage/match.h"

namespace holdfast::agent {
namespace {

constexpr double kKeepAbove = 0.2, kDropBelow = 0.15;  // free part of the disk
constexpr size_t kMaxFileBytes = 64 << 20;             // the manifest, and what is said of it
constexpr std::string_view kSuffix = ".json", kCopySuffix = ".copy";
constexpr size_t kCopyBytes = 1 << 20;

bool OnOneFileSystem(const std::string& a, const std::string& b) {
  struct stat x, y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev;
}

Status Failed(const std::string& what, const std::string& path) {
  const Code code = errno == ENOSPC || errno == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  return Status(code, "cannot " + what + " " + path + ": " + std::generic_category().message(errno));
}

// With its holes.
Status CopyData(const storage::Descriptor& from, const storage::Descriptor& to, const std::string& path) {
  std::vector<char> buffer(kCopyBytes);
  for (off_t at = lseek(from.get(), 0, SEEK_DATA); at >= 0; at = lseek(from.get(), at, SEEK_DATA)) {
    const off_t hole = lseek(from.get(), at, SEEK_HOLE);
    if (hole < 0) return Failed("read", path);
    while (at < hole) {
      const ssize_t n = pread(from.get(), buffer.data(), std::min<size_t>(buffer.size(), static_cast<size_t>(hole - at)), at);
      if (n <= 0) return Failed("read", path);
      const auto bytes = std::as_bytes(std::span(buffer).first(static_cast<size_t>(n)));
      HF_RETURN_IF_ERROR(storage::WriteAt(to.get(), bytes, static_cast<uint64_t>(at), path));
      at += n;
    }
  }
  return errno == ENXIO ? Status::Ok() : Failed("read", path);  // no data behind it
}

// What the manifest names, and nothing else that may lie there.
Status Copy(const storage::Manifest& manifest, const std::string& from, const std::string& to) {
  HF_RETURN_IF_ERROR(RemoveAll(to));
  HF_RETURN_IF_ERROR(MakeDirs(to));
  for (const storage::FileEntry& file : manifest.files) {
    const std::string source = from + "/" + file.path, target = to + "/" + file.path;
    HF_RETURN_IF_ERROR(MakeDirs(target.substr(0, target.rfind('/'))));
    const storage::Descriptor in(open(source.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (in.get() < 0) return Failed("read", source);
    const storage::Descriptor out(open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (out.get() < 0 || ftruncate(out.get(), static_cast<off_t>(file.size)) != 0 || fchmod(out.get(), file.mode) != 0)
      return Failed("write", target);
    HF_RETURN_IF_ERROR(CopyData(in, out, source));
  }
  return Status::Ok();
}

}  // namespace

Cache::Cache(CacheOptions options, Layout layout, Stores& stores, Clock& clock)
    : options_(std::move(options)), layout_(std::move(layout)), stores_(stores), clock_(clock) {}

void Cache::Recover() {
  std::lock_guard lock(mutex_);
  Status made = MakeDirs(Folder());
  if (!made.ok()) LogWarning("no checkpoints are kept on this node", {{"error", made.message()}});
  const std::vector<std::string> names = ListDir(Folder()).value_or({});
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    const std::string id = name.substr(0, name.size() - kSuffix.size());
    Result<std::string> text = ReadFile(File(id), kMaxFileBytes);
    Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    const int64_t bytes = json.ok() ? GetInt(*json, {"bytes"}, -1) : -1;
    if (bytes < 0 || !Exists(Images(id))) continue;
    entries_[id] = {.bytes = static_cast<uint64_t>(bytes), .adopted_unix_ms = GetInt(*json, {"adoptedUnixMs"})};
  }
  for (const std::string& name : names) {
    const std::string id = name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
    if (entries_.contains(id)) continue;
    Status removed = RemoveAll(Folder() + "/" + name);
    if (!removed.ok()) LogWarning("cannot remove what is left of a kept checkpoint", {{"name", name}, {"error", removed.message()}});
  }
  MakeRoom(0);  // the budget may be smaller now
}

void Cache::Adopt(const std::string& landing, const std::string& manifest_text, const std::string& store) {
  if (options_.max_bytes == 0) return;
  Status kept = Keep(landing, manifest_text, store);
  if (!kept.ok()) LogInfo("a checkpoint is not kept on this node", {{"landing", landing}, {"why", kept.message()}});
}

Status Cache::Keep(const std::string& landing, const std::string& manifest_text, const std::string& store) {
  HF_ASSIGN_OR_RETURN(storage::Manifest manifest, storage::Manifest::Parse(manifest_text));
  const std::string& id = manifest.checkpoint_uid;
  if (!IsSafeName(id)) return Status(Code::kInvalidArgument, "its id is no file name");
  const uint64_t bytes = manifest.TotalBytes();
  if (bytes > options_.max_bytes) return Status(Code::kResourceExhausted, "it is longer than all that may be kept");
  if (options_.free_part && options_.free_part() < kKeepAbove) return Status(Code::kResourceExhausted, "the disk has little room");
  HF_ASSIGN_OR_RETURN(const storage::HashKey key, stores_.Of(store).HashKeyOf(id));
  const int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.Wall().time_since_epoch()).count();
  std::string from = landing;
  if (!OnOneFileSystem(landing, Folder())) {  // it was dumped into memory
    from = Images(id) + std::string(kCopySuffix);
    Status copied = Copy(manifest, landing, from);
    if (!copied.ok()) {
      HF_RETURN_IF_ERROR(RemoveAll(from));
      return copied;
    }
  }
  std::lock_guard lock(mutex_);
  Drop(id);
  const bool room = MakeRoom(bytes);
  if (!room || std::rename(from.c_str(), Images(id).c_str()) != 0) {
    if (from != landing) HF_RETURN_IF_ERROR(RemoveAll(from));
    return room ? Status(Code::kInternal, "cannot move " + from) : Status(Code::kResourceExhausted, "what is kept is in use");
  }
  HF_FAULT_POINT("agent.cache_moved");
  Status written = WriteFileDurably(
      File(id), DumpJson({{"bytes", bytes}, {"adoptedUnixMs", now}, {"hashKey", storage::ToHex(key)}, {"manifest", manifest_text}}));
  if (!written.ok()) {
    Drop(id);
    return written;
  }
  entries_[id] = {.bytes = bytes, .adopted_unix_ms = now};
  LogInfo("a checkpoint is kept on this node", {{"uid", id}, {"bytes", bytes}});
  return Status::Ok();
}

Status Cache::Take(const std::string& id, const std::string& dir, const storage::IngestOptions& options) {
  if (!IsSafeName(id)) return Status(Code::kInvalidArgument, "unsafe manifest id");
  {
    std::lock_guard lock(mutex_);
    auto found = entries_.find(id);
    if (found == entries_.end() || found->second.busy) return Status(Code::kNotFound, "it is not kept on this node");
    found->second.busy = true;
  }
  Result<storage::Manifest> manifest = Check(id, options);
  std::lock_guard lock(mutex_);
  entries_[id].busy = false;
  if (manifest.status().code() == Code::kCancelled) return manifest.status();
  Status moved = manifest.ok() ? Move(*manifest, dir) : manifest.status();
  Drop(id);
  if (moved.ok()) return moved;
  LogWarning("a checkpoint that was kept on this node is not used: it is fetched from the store", {{"uid", id}, {"why", moved.message()}});
  return Status(Code::kNotFound, moved.message());
}

// What the manifest names, and nothing else that may lie there.
Status Cache::Move(const storage::Manifest& manifest, const std::string& dir) const {
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  HF_RETURN_IF_ERROR(MakeDirs(dir));
  for (const storage::FileEntry& file : manifest.files) {
    const std::string from = Images(manifest.checkpoint_uid) + "/" + file.path, to = dir + "/" + file.path;
    HF_RETURN_IF_ERROR(MakeDirs(to.substr(0, to.rfind('/'))));
    if (std::rename(from.c_str(), to.c_str()) != 0) return Status(Code::kInternal, "cannot move " + from);
  }
  return Status::Ok();
}

Result<storage::Manifest> Cache::Check(const std::string& id, const storage::IngestOptions& options) const {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(File(id), kMaxFileBytes));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  HF_ASSIGN_OR_RETURN(storage::Manifest manifest, storage::Manifest::Parse(GetString(json, {"manifest"})));
  storage::HashKey key;
  if (manifest.checkpoint_uid != id || !storage::FromHex(GetString(json, {"hashKey"}), key))
    return Status(Code::kDataLoss, File(id) + " is damaged");
  HF_RETURN_IF_ERROR(storage::Matches(Images(id), manifest, key, options));
  return manifest;
}

void Cache::Sweep(const std::set<std::string>& wanted) {
  std::lock_guard lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [id, entry] : entries_) {
    if (!entry.busy && !wanted.contains(id)) gone.push_back(id);
  }
  for (const std::string& id : gone) Drop(id);
  while (options_.free_part && !entries_.empty() && options_.free_part() < kDropBelow) {
    if (!DropOldest()) break;
  }
}

uint64_t Cache::bytes() const {
  std::lock_guard lock(mutex_);
  return Sum();
}

uint64_t Cache::Sum() const {
  uint64_t sum = 0;
  for (const auto& [id, entry] : entries_) sum += entry.bytes;
  return sum;
}

bool Cache::MakeRoom(uint64_t bytes) {
  while (Sum() + bytes > options_.max_bytes) {
    if (!DropOldest()) return false;
  }
  return true;
}

// The file first: images without it are removed by the next start.
void Cache::Drop(const std::string& id) {
  entries_.erase(id);
  for (const std::string& path : {File(id), Images(id)}) {
    Status removed = RemoveAll(path);
    if (!removed.ok()) LogWarning("cannot remove a checkpoint that was kept on this node", {{"path", path}, {"error", removed.message()}});
  }
}

bool Cache::DropOldest() {
  const std::string* oldest = nullptr;
  for (const auto& [id, entry] : entries_) {
    if (!entry.busy && (oldest == nullptr || entry.adopted_unix_ms < entries_[*oldest].adopted_unix_ms)) oldest = &id;
  }
  if (oldest == nullptr) return false;
  Drop(std::string(*oldest));
  return true;
}

}  // namespace holdfast::agent
