// Where things lie on the node (protocol.h), and the small files there. Tests give other folders by HOLDFAST_RUN_DIR,
// HOLDFAST_STATE_DIR and HOLDFAST_INSTALL_DIR; who can set our environment is containerd or root.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/protocol.h"

namespace holdfast::runtime {

struct Node {
  std::string run = kRunDir;
  std::string state = kStateDir;
  std::string install = kInstallDir;

  static Node FromEnvironment();
  std::string Socket() const { return run + "/agent.sock"; }
  std::string WaitDir(const std::string& pod_uid) const { return run + "/wait/" + pod_uid; }
  std::string CriuDir() const { return install + "/criu"; }
  std::string CriuConfig() const { return install + "/criu/runc.conf"; }
  std::string Helper() const { return install + "/bin/holdfast-wait"; }

  // kNotFound when there is none; another error when it cannot be trusted, which callers treat as "there is one".
  Result<Intent> ReadIntent(const std::string& container_id) const;
  Status RemoveIntent(const std::string& container_id) const;
  bool HasFinalCheckpoint(const std::string& pod_uid) const;
  bool IsRestored(const std::string& container_id) const;
  Status MarkRestored(const std::string& container_id) const;
  Status ForgetRestored(const std::string& container_id) const;
  Status MarkSignalled(const std::string& container_id) const;
  Status ForgetSignalled(const std::string& container_id) const;
};

// One of a pod's dump and restores at a time, across processes. The lock falls when the holder ends, however that happens.
class PodLock {
 public:
  static Result<PodLock> Take(const Node& node, const std::string& pod_uid, MonoTime deadline);
  PodLock(PodLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  PodLock& operator=(PodLock&&) = delete;
  ~PodLock();

 private:
  explicit PodLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace holdfast::runtime
