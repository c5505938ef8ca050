#include "agent/disk_room.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "agent/landing_memory.h"

namespace holdfast::agent {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeftPart = 20;
constexpr uint64_t kMost = uint64_t{1} << 62;  // what others say may be anything

// To others: a twentieth, and of a large disk no more than a gibibyte.
uint64_t LeftOn(const DiskSpace& disk) { return std::min(kGiB, disk.size_bytes / kLeftPart); }

uint64_t Missing(const std::string& folder, uint64_t bytes) { return bytes - std::min(bytes, TakenBy(folder)); }

std::string Mebibytes(uint64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

bool IsIn(const std::string& folder, const std::string& parent) { return folder.substr(0, folder.rfind('/')) == parent; }

}  // namespace

Result<DiskSpace> LookAtDisk(const std::string& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(path, error);
  if (error) return Status(Code::kInternal, "cannot look at the disk of " + path + ": " + error.message());
  return DiskSpace{.size_bytes = space.capacity, .free_bytes = space.available};
}

Status DiskRoom::WithinLanding(const std::string& folder, uint64_t needed, const DiskSpace& disk) const {
  if (landing_.folder.empty() || !IsIn(folder, landing_.folder)) return Status::Ok();
  uint64_t others = TakenBy(landing_.folder);  // with what this one has taken, which is not needed any more
  for (const auto& [other, reserved] : reserved_) others += IsIn(other, landing_.folder) ? Missing(other, reserved) : 0;
  const uint64_t limit = landing_.bytes > 0 ? landing_.bytes : disk.size_bytes / 4 * 3;
  if (needed + others <= limit) return Status::Ok();
  return Status(needed <= limit ? Code::kUnavailable : Code::kResourceExhausted,
                "dumps may take " + Mebibytes(limit) + " of the node's disk, of which " + Mebibytes(others) +
                    " are taken; this takes up to " + Mebibytes(needed) + " (chart value agent.landing.disk)");
}

Status DiskRoom::Reserve(const std::string& folder, uint64_t bytes) {
  const Result<DiskSpace> disk = look_(folder.substr(0, folder.rfind('/')));
  std::lock_guard lock(mutex_);
  reserved_.erase(folder);
  const uint64_t needed = std::min(Missing(folder, bytes), kMost);
  if (disk.ok()) {
    HF_RETURN_IF_ERROR(WithinLanding(folder, needed, *disk));
    uint64_t others = 0;
    for (const auto& [other, reserved] : reserved_) others += Missing(other, reserved);
    const uint64_t left = LeftOn(*disk);
    if (needed + others + left > disk->free_bytes) {
      const bool later = others > 0 && needed + left <= disk->free_bytes;
      return Status(later ? Code::kUnavailable : Code::kResourceExhausted,
                    "the node's disk has " + Mebibytes(disk->free_bytes) + " of space, of which " + Mebibytes(left) + " are left alone" +
                        (others > 0 ? " and " + Mebibytes(others) + " are for what is under way" : "") + "; this takes up to " +
                        Mebibytes(needed) + " (the file system of /var/lib/holdfast: make room there)");
    }
  }
  reserved_[folder] = bytes;
  return Status::Ok();
}

void DiskRoom::Hold(const std::string& folder, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_[folder] = bytes;
}

void DiskRoom::Release(const std::string& folder) {
  std::lock_guard lock(mutex_);
  reserved_.erase(folder);
}

}  // namespace holdfast::agent
