#include "runtime/freezer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/json.h"

namespace holdfast::runtime {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxPids = 65536;

Status WriteControl(const std::string& path, std::string_view value) {
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : write(fd, value.data(), value.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (n == static_cast<ssize_t>(value.size())) return Status::Ok();
  return Status(error == ENOENT || error == ENODEV ? Code::kNotFound : Code::kInternal,
                "cannot write " + std::string(value) + " to " + path + ": " + std::generic_category().message(error));
}

void CollectPids(const std::string& dir, int depth, std::vector<int>* pids) {
  Result<std::string> text = ReadFile(dir + "/cgroup.procs", 1 << 20);
  if (!text.ok()) return;
  const char* at = text->data();
  const char* end = at + text->size();
  while (at < end && pids->size() < kMaxPids) {
    int pid = 0;
    auto [next, error] = std::from_chars(at, end, pid);
    if (error == std::errc() && pid > 0) pids->push_back(pid);
    at = next + 1;
  }
  if (depth == kMaxDepth) return;
  Result<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    struct stat info;
    if (lstat((dir + "/" + name).c_str(), &info) == 0 && S_ISDIR(info.st_mode)) CollectPids(dir + "/" + name, depth + 1, pids);
  }
}

}  // namespace

Result<Freezer> Freezer::Of(const std::string& runc_root, const std::string& container_id) {
  if (!IsSafeName(container_id)) return Status(Code::kInvalidArgument, "container id is not a plain name");
  const std::string path = runc_root + "/" + container_id + "/state.json";
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  Result<Json> state = ParseJson(text);
  if (!state.ok()) return state.status().With(path);
  const auto pid = static_cast<int>(GetInt(*state, {"init_process_pid"}));
  std::string v1 = GetString(*state, {"cgroup_paths", "freezer"});
  if (!v1.empty()) return Freezer(v1, false, pid);
  std::string v2 = GetString(*state, {"cgroup_paths", ""});
  if (!v2.empty()) return Freezer(v2, true, pid);
  return Status(Code::kUnsupported, path + " names no freezer cgroup");
}

bool Freezer::IsFrozen() const {
  Result<std::string> text = ReadFile(dir_ + (unified_ ? "/cgroup.events" : "/freezer.state"), 4096);
  return text.ok() && (unified_ ? text->find("frozen 1") != std::string::npos : text->starts_with("FROZEN"));
}

Status Freezer::Freeze(MonoTime deadline) const {
  for (int round = 0;; ++round) {
    // A v1 freezer can get stuck in FREEZING while processes fork: a short thaw gets it going (runc does the same).
    if (!unified_ && round % 50 == 49) HF_RETURN_IF_ERROR(WriteControl(dir_ + "/freezer.state", "THAWED"));
    HF_RETURN_IF_ERROR(FreezeSoon());
    if (IsFrozen()) return Status::Ok();
    if (Clock::Real().Mono() >= deadline) {
      Status thawed = Thaw();
      return Status(Code::kDeadlineExceeded, "the processes in " + dir_ + " do not freeze" + (thawed.ok() ? "" : ", nor thaw"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round < 20 ? 200 : 2000));
  }
}

Status Freezer::FreezeSoon() const {
  return unified_ ? WriteControl(dir_ + "/cgroup.freeze", "1") : WriteControl(dir_ + "/freezer.state", "FROZEN");
}

Status Freezer::Thaw() const {
  Status status = unified_ ? WriteControl(dir_ + "/cgroup.freeze", "0") : WriteControl(dir_ + "/freezer.state", "THAWED");
  return status.code() == Code::kNotFound ? Status::Ok() : status;
}

std::vector<int> Freezer::Pids() const {
  std::vector<int> pids;
  CollectPids(dir_, 0, &pids);
  return pids;
}

}  // namespace holdfast::runtime
