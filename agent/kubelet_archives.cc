#include "agent/kubelet_archives.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/time_format.h"

namespace holdfast::agent {
namespace {

constexpr int64_t kStillWrittenMs = 3000;

}  // namespace

// Kubernetes names them checkpoint-<pod>_<namespace>-<container>-<RFC 3339 time>.tar (pkg/kubelet/kubelet.go, CheckpointContainer).
Result<int> RemoveKubeletArchives(const Layout& layout, const JournalEntry& entry, int64_t now_unix_ms, int64_t ahead_ms) {
  const std::string folder = layout.kubelet + "/checkpoints";
  Result<std::vector<std::string>> names = ListDir(folder);
  if (names.status().code() == Code::kNotFound) return 0;
  HF_RETURN_IF_ERROR(names.status());
  const auto began = ParseTime(entry.started_at);
  const int64_t since_ms = began ? std::chrono::duration_cast<std::chrono::milliseconds>(began->time_since_epoch()).count() : now_unix_ms;
  int removed = 0;
  for (const std::string& name : *names) {
    const bool ours = std::any_of(entry.containers.begin(), entry.containers.end(), [&](const JournalContainer& c) {
      const std::string prefix = "checkpoint-" + entry.pod + "_" + entry.ns + "-" + c.name + "-";
      return name.starts_with(prefix) && name.ends_with(".tar") && name.find_first_of("0123456789", prefix.size()) == prefix.size();
    });
    struct stat info;
    const std::string path = folder + "/" + name;
    if (!ours || lstat(path.c_str(), &info) != 0) continue;
    const int64_t written_ms = info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1'000'000 + ahead_ms;
    if (written_ms < since_ms || written_ms > now_unix_ms - kStillWrittenMs || unlink(path.c_str()) != 0) continue;
    LogInfo("removed an archive that the kubelet did not tell of", {{"path", path}, {"checkpoint", entry.ns + "/" + entry.name}});
    ++removed;
  }
  return removed;
}

}  // namespace holdfast::agent
