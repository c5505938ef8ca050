#include "agent/carry_over.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

// Made by a restore, not by the dump.
constexpr std::array<std::string_view, 3> kOfARestore = {"restore", runtime::kTryingFile, runtime::kRestoredFile};

// Copies: what is stored of a long landing folder is punched out of its files, and the pod may go on here after all.
Status Copy(const std::string& from, const std::string& to) {
  std::error_code error;
  HF_RETURN_IF_ERROR(MakeDirs(to));
  for (const auto& entry : std::filesystem::directory_iterator(from, error)) {
    const std::string name = entry.path().filename();
    if (std::find(kOfARestore.begin(), kOfARestore.end(), name) != kOfARestore.end()) continue;
    std::filesystem::copy(entry.path(), to + "/" + name,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks |
                              std::filesystem::copy_options::overwrite_existing,
                          error);
    if (error) break;
  }
  if (!error) return Status::Ok();
  const bool full = error == std::errc::no_space_on_device;
  return {full ? Code::kResourceExhausted : Code::kInternal, "cannot copy " + from + " to " + to + ": " + error.message()};
}

}  // namespace

Status CarryOver(const Layout& layout, JournalEntry& entry) {
  entry.carried.clear();
  for (const JournalContainer& c : entry.waiting) {
    const std::string from = layout.RestoreFolder(entry.pod_uid) + "/" + c.name;
    if (Exists(from + "/" + runtime::kRestoredFile))
      return Status(Code::kFailedPrecondition, "container " + c.name + " was restored while the others were dumped");
    if (!Exists(from + "/images/inventory.img")) continue;
    HF_RETURN_IF_ERROR(Copy(from, layout.Landing(entry.uid, entry.place) + "/" + c.name));
    LogInfo("a container that has not run yet goes on with its pod",
            {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"container", c.name}});
    entry.carried.push_back(c);
  }
  return Status::Ok();
}

}  // namespace holdfast::agent
