#include "runtime/measure.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/file.h"
#include "base/json.h"
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
  struct stat top;
  if (lstat(folder.c_str(), &top) != 0) return uint64_t{0};
  uint64_t bytes = 0;
  size_t files = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat info;
    if (lstat(at->path().c_str(), &info) != 0) continue;
    if (info.st_dev != top.st_dev) {
      at.disable_recursion_pending();
      continue;
    }
    bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    if (++files > kMaxFiles || Clock::Real().Mono() >= until)
      return Status(Code::kResourceExhausted, "more files in " + folder + " than can be looked at");
  }
  return bytes;
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
