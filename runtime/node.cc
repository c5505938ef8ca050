#include "runtime/node.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxSmallFile = 1 << 16;

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before anything runs beside us
  return value != nullptr && value[0] == '/' ? value : otherwise;
}

Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return Status(Code::kInternal, "cannot remove " + path);
}

// An empty file of a container's id says something about it.
Status Mark(const std::string& folder, const std::string& container_id) {
  if (!IsSafeName(container_id)) return Status(Code::kInvalidArgument, "container id is not a plain name");
  HF_RETURN_IF_ERROR(MakeDirs(folder));
  return WriteFileAtomically(folder + "/" + container_id, "");
}

Status Unmark(const std::string& folder, const std::string& container_id) {
  return IsSafeName(container_id) ? RemoveFile(folder + "/" + container_id) : Status::Ok();
}

}  // namespace

Node Node::FromEnvironment() {
  Node node;
  node.run = Environment("HOLDFAST_RUN_DIR", node.run);
  node.state = Environment("HOLDFAST_STATE_DIR", node.state);
  node.install = Environment("HOLDFAST_INSTALL_DIR", node.install);
  return node;
}

Result<Intent> Node::ReadIntent(const std::string& container_id) const {
  if (!IsSafeName(container_id)) return Status(Code::kNotFound, "no container id");
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(run + "/containers/" + container_id + ".json", kMaxSmallFile));
  Result<Json> json = ParseJson(text);
  Result<Intent> intent = json.ok() ? Intent::FromJson(*json) : Result<Intent>(json.status());
  if (!intent.ok()) return Status(Code::kDataLoss, "checkpoint intent of container " + container_id + ": " + intent.status().message());
  return intent;
}

Status Node::RemoveIntent(const std::string& container_id) const {
  return IsSafeName(container_id) ? RemoveFile(run + "/containers/" + container_id + ".json") : Status::Ok();
}

bool Node::HasFinalCheckpoint(const std::string& pod_uid) const {
  return IsSafeName(pod_uid) && Exists(state + "/pods/" + pod_uid + ".json");
}

bool Node::IsRestored(const std::string& container_id) const {
  return IsSafeName(container_id) && Exists(run + "/restored/" + container_id);
}

Status Node::MarkRestored(const std::string& container_id) const { return Mark(run + "/restored", container_id); }

Status Node::ForgetRestored(const std::string& container_id) const { return Unmark(run + "/restored", container_id); }

Status Node::MarkSignalled(const std::string& container_id) const { return Mark(run + "/signalled", container_id); }

Status Node::ForgetSignalled(const std::string& container_id) const { return Unmark(run + "/signalled", container_id); }

Result<PodLock> PodLock::Take(const Node& node, const std::string& pod_uid, MonoTime deadline) {
  if (!IsSafeName(pod_uid)) return Status(Code::kInvalidArgument, "pod uid is not a plain name");
  HF_RETURN_IF_ERROR(MakeDirs(node.run + "/locks"));
  const std::string path = node.run + "/locks/" + pod_uid;
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Status(Code::kInternal, "cannot open " + path);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (Clock::Real().Mono() >= deadline) {
      close(fd);
      return Status(Code::kDeadlineExceeded, "another dump or restore of pod " + pod_uid + " is still running");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return PodLock(fd);
}

PodLock::~PodLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace holdfast::runtime
