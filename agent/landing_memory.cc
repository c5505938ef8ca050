#include "agent/landing_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeastHeadRoom = 32 << 20;  // beside an eighth of the estimate: the pod runs on until it is frozen
constexpr uint64_t kRoomyPart = 5;             // a fifth of the tmpfs
constexpr size_t kMaxFiles = 100'000;          // of a landing folder; CRIU writes some tens a process

std::string ErrorText() { return std::generic_category().message(errno); }

std::string Gibibytes(uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / kGiB);
  return text;
}

// What of the file system holds `path`, by its device: a tmpfs of ours is another one than its parent's.
bool IsMountPoint(const std::string& path) {
  struct stat here, above;
  return lstat(path.c_str(), &here) == 0 && S_ISDIR(here.st_mode) && lstat((path + "/..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

Status RequireTmpfs(const std::string& path) {
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) return Status(Code::kInternal, "cannot look at " + path + ": " + ErrorText());
  if (info.f_type == TMPFS_MAGIC) return Status::Ok();
  return Status(Code::kFailedPrecondition, "something else than a tmpfs is mounted at " + path);
}

Status Mount(const std::string& path, uint64_t bytes) {
  HF_RETURN_IF_ERROR(MakeDirs(path));
  const bool there = IsMountPoint(path);
  if (there) HF_RETURN_IF_ERROR(RequireTmpfs(path));
  const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | (there ? MS_REMOUNT : 0);
  const std::string options = "mode=0700,size=" + std::to_string(bytes);
  if (mount("holdfast", path.c_str(), "tmpfs", flags, options.c_str()) == 0) return Status::Ok();
  if (!there) return Status(Code::kInternal, "cannot mount a tmpfs at " + path + ": " + ErrorText());
  LogWarning("the memory for dumps keeps its size", {{"path", path}, {"wanted_bytes", bytes}, {"error", ErrorText()}});
  return Status::Ok();
}

bool HoldsNothing(const std::string& path) {
  const std::vector<std::string> folders = ListDir(path).value_or({"unknown"});
  return std::all_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return ListDir(path + "/" + folder).value_or({"unknown"}).empty(); });
}

Status Unmount(const std::string& path) {
  if (!IsMountPoint(path)) return Status::Ok();
  HF_RETURN_IF_ERROR(RequireTmpfs(path));
  if (!HoldsNothing(path)) return Status(Code::kFailedPrecondition, path + " holds dumps");
  if (umount2(path.c_str(), UMOUNT_NOFOLLOW) != 0) return Status(Code::kUnavailable, "cannot unmount " + path + ": " + ErrorText());
  rmdir(path.c_str());
  return Status::Ok();
}

// In the mount namespace of a process. A thread's own, which ends with it.
Status OnNode(int host_pid, const std::function<Status()>& work) {
  const int node = open(("/proc/" + std::to_string(host_pid) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
  if (node < 0) return Status(Code::kUnavailable, "the process that leads to the node's mount namespace is gone");
  Status done;
  std::thread([&] {
    done = unshare(CLONE_FS) == 0 && setns(node, CLONE_NEWNS) == 0
               ? work()
               : Status(Code::kPermissionDenied, "cannot enter the node's mount namespace: " + ErrorText());
  }).join();
  close(node);
  return done;
}

uint64_t Kibibytes(const std::string& meminfo, const std::string& name) {
  const size_t at = meminfo.find(name + ":");
  return at == std::string::npos ? 0 : strtoull(meminfo.c_str() + at + name.size() + 1, nullptr, 10) * 1024;
}

}  // namespace

uint64_t TakenBy(const std::string& folder) {
  std::error_code error;
  uint64_t bytes = 0;
  size_t files = 0;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end && files < kMaxFiles;
       at.increment(error)) {
    struct stat info;
    if (lstat(at->path().c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    ++files;
  }
  return bytes;
}

Result<MemoryRoom> LookAtMemory(const std::string& path, const std::string& meminfo) {
  if (!IsMountPoint(path)) return Status(Code::kNotFound, "nothing is mounted at " + path);
  HF_RETURN_IF_ERROR(RequireTmpfs(path));
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) return Status(Code::kInternal, "cannot look at " + path + ": " + ErrorText());
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(meminfo, 1 << 20));
  const auto block = static_cast<uint64_t>(info.f_bsize);
  return MemoryRoom{.size_bytes = info.f_blocks * block,
                    .free_bytes = info.f_bavail * block,
                    .node_bytes = Kibibytes(text, "MemTotal"),
                    .available_bytes = Kibibytes(text, "MemAvailable")};
}

uint64_t LeftAlone(uint64_t node_bytes) { return std::max(kGiB, node_bytes / 10); }

runtime::NodeCheck CheckLanding(const std::string& path, const Result<MemoryRoom>& room) {
  using Verdict = runtime::NodeCheck::Verdict;
  const std::string name = "landing";
  if (room.status().code() == Code::kNotFound) return {name, Verdict::kOk, "dumps land on the node's disk"};
  if (!room.ok()) {
    return {name, Verdict::kWarn, "dumps land on the node's disk: " + room.status().message(),
            "unmount what is at " + path + " on the node, then restart the agent"};
  }
  const std::string seen = Gibibytes(room->free_bytes) + " of " + Gibibytes(room->size_bytes) + " GiB for dumps free in " + path + "; " +
                           Gibibytes(room->available_bytes) + " GiB of the node's memory available, of which " +
                           Gibibytes(LeftAlone(room->node_bytes)) + " GiB are left alone";
  return {name, Verdict::kOk, seen};
}

LandingMemory::LandingMemory(uint64_t budget_bytes, Layout layout, Look look)
    : budget_bytes_(budget_bytes),
      layout_(std::move(layout)),
      look_(look ? std::move(look) : [path = layout_.Memory()] { return LookAtMemory(path); }) {}

Status LandingMemory::Open(int host_pid) {
  host_pid_ = host_pid;
  const std::string path = layout_.Memory();
  if (budget_bytes_ == 0) return OnNode(host_pid, [&] { return Unmount(path); });
  HF_RETURN_IF_ERROR(OnNode(host_pid, [&] { return Mount(path, budget_bytes_); }));
  struct stat here, there;
  const std::string from_node = "/proc/" + std::to_string(host_pid) + "/root" + path;
  if (stat(path.c_str(), &here) == 0 && stat(from_node.c_str(), &there) == 0 && here.st_dev == there.st_dev) return Status::Ok();
  return Status(Code::kFailedPrecondition, "what is mounted at " + path + " on the node is not seen from here: the agent's volume " +
                                               layout_.run + " needs mountPropagation: HostToContainer");
}

void LandingMemory::Close() {
  if (host_pid_ == 0) return;
  Status closed = OnNode(host_pid_, [this] { return Unmount(layout_.Memory()); });
  if (!closed.ok()) LogInfo("the memory for dumps stays", {{"why", closed.message()}});
}

bool LandingMemory::Reserve(const std::string& uid, uint64_t estimate_bytes, uint64_t* reserved) {
  if (budget_bytes_ == 0 || estimate_bytes > budget_bytes_) return false;
  const uint64_t wanted = estimate_bytes + std::max(kLeastHeadRoom, estimate_bytes / 8);
  std::lock_guard lock(mutex_);
  reserved_.erase(uid);
  Result<MemoryRoom> room = look_();
  if (!room.ok()) return false;
  const uint64_t needed = wanted + Unwritten();
  if (needed > room->free_bytes || needed + LeftAlone(room->node_bytes) > room->available_bytes) return false;
  reserved_[uid] = *reserved = wanted;
  return true;
}

void LandingMemory::Hold(const std::string& uid, uint64_t reserved) {
  std::lock_guard lock(mutex_);
  reserved_[uid] = reserved;
}

void LandingMemory::Release(const std::string& uid) {
  std::lock_guard lock(mutex_);
  reserved_.erase(uid);
}

bool LandingMemory::Roomy() const {
  std::lock_guard lock(mutex_);
  Result<MemoryRoom> room = look_();
  if (!room.ok()) return false;
  const uint64_t unwritten = Unwritten();
  return room->free_bytes >= unwritten + room->size_bytes / kRoomyPart && room->available_bytes >= unwritten + LeftAlone(room->node_bytes);
}

uint64_t LandingMemory::Unwritten() const {
  uint64_t sum = 0;
  for (const auto& [uid, bytes] : reserved_) sum += bytes - std::min(bytes, TakenBy(layout_.Landing(uid, Place::kMemory)));
  return sum;
}

}  // namespace holdfast::agent
