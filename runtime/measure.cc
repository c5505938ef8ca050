#include "runtime/measure.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>

#include "base/file.h"
#include "base/json.h"
#include "runtime/beneath.h"
#include "runtime/freezer.h"
#include "runtime/gpu.h"
#include "runtime/mounts.h"
#include "runtime/own_files.h"
#include "runtime/processor.h"
#include "runtime/runc.h"
#include "runtime/spec.h"

namespace holdfast::runtime {
namespace {

constexpr Duration kWithin = std::chrono::seconds(1);
constexpr size_t kMaxFiles = 500'000;

Result<uint64_t> BytesOf(const Node& node, const std::string& root, const std::string& bundle, const std::string& id, MonoTime until) {
  if (!IsSafeName(id)) return Status(Code::kInvalidArgument, "unsafe container id");
  HF_ASSIGN_OR_RETURN(Freezer freezer, Freezer::Of(root, id));
  const std::vector<int> pids = freezer.Pids();
  HF_ASSIGN_OR_RETURN(std::optional<GpuUse> gpu, Gpu(node).Examine(pids));
  if (gpu) return Status(Code::kUnsupported, "it holds a GPU, whose memory comes on top");
  HF_ASSIGN_OR_RETURN(Spec spec, Spec::Load(bundle));
  HF_ASSIGN_OR_RETURN(std::string upper, OverlayUpper(spec.RootPath(bundle)));
  uint64_t bytes = MemoryOf(pids);
  std::vector<std::string> folders;
  if (!upper.empty()) folders.push_back(upper);
  HF_ASSIGN_OR_RETURN(std::string shm, SandboxShm(spec.identity().sandbox_id));
  if (!shm.empty()) folders.push_back(std::move(shm));
  for (const std::string& folder : folders) {
    HF_ASSIGN_OR_RETURN(uint64_t files, FilesOf(folder, until));
    bytes += files;
  }
  return bytes;
}

// What files take, by descriptors: a pod may change its tree meanwhile.
struct Count {
  const std::string& top;
  const MonoTime until;
  size_t files = 0;

  Result<uint64_t> Below(const Fd& folder, int depth) {
    Result<std::vector<std::string>> names = NamesIn(folder.get(), top);
    uint64_t bytes = 0;
    for (const std::string& name : names.value_or({})) {
      if (++files > kMaxFiles || depth > kMaxTreeDepth || Clock::Real().Mono() >= until)
        return Status(Code::kResourceExhausted, "more files in " + top + " than can be looked at");
      struct stat info;
      const Fd child = OpenIn(folder.get(), name, O_PATH);
      if (!child.ok() || fstat(child.get(), &info) != 0) continue;  // gone by now, or mounted there
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
      if (!S_ISDIR(info.st_mode)) continue;
      HF_ASSIGN_OR_RETURN(const uint64_t below, Below(child, depth + 1));
      bytes += below;
    }
    return bytes;
  }
};

}  // namespace

uint64_t MemoryOf(const std::vector<int>& pids, const std::string& proc) {
  uint64_t bytes = 0;
  for (int pid : pids) {
    const std::string status = ReadFile(proc + "/" + std::to_string(pid) + "/status", 1 << 20).value_or("");  // it may just have ended
    for (const char* part : {"RssAnon", "RssShmem", "VmSwap"}) bytes += strtoull(LineOf(status, part).c_str(), nullptr, 10) * 1024;
  }
  return bytes;
}

Result<uint64_t> FilesOf(const std::string& folder, MonoTime until) {
  Result<Fd> top = OpenTop(folder);
  if (!top.ok()) return uint64_t{0};
  return Count{folder, until}.Below(*top, 0);
}

int Measure(const Node& node, const CommandLine& line) {
  const DumpRequest usual;
  const std::string root = line.Value({"root"}).value_or(usual.runc_root), tasks = line.Value({"tasks"}).value_or(usual.task_dir);
  const MonoTime until = Clock::Real().Mono() + kWithin;
  uint64_t bytes = 0;
  for (const std::string& what : line.arguments) {
    Result<uint64_t> one = what.starts_with('/') ? FilesOf(what, until) : BytesOf(node, root, tasks + "/" + what, what, until);
    if (!one.ok()) return ReportError(line, what + ": " + one.status().message());
    bytes += *one;
  }
  std::cout << DumpJson({{"bytes", bytes}}) << "\n";
  return 0;
}

}  // namespace holdfast::runtime
