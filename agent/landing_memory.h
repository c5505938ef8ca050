// The part of the node's memory in which dumps may land, so that a pod stands still for as long as CRIU takes, and not for a disk. It is a
// tmpfs of ours on the node, at Layout::Memory(), which outlives this process; what it holds is charged to no pod, since `holdfast-runc
// dump` writes it from the root of each cgroup hierarchy. What is never here: the kubelet's archives, and what is fetched for a restore.
//
// A dump is let in when its estimate fits what is left of the tmpfs, and leaves the node's other programs theirs. What dumps that are under
// way have yet to write counts as used. Thread-safe, but Open and Close.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "agent/layout.h"
#include "base/status.h"
#include "runtime/protocol.h"

namespace holdfast::agent {

struct MemoryRoom {
  uint64_t size_bytes = 0, free_bytes = 0;       // of the tmpfs
  uint64_t node_bytes = 0, available_bytes = 0;  // MemTotal and MemAvailable of the node
};

// Of the tmpfs that is mounted at `path`, as this process sees it. kNotFound: there is none.
Result<MemoryRoom> LookAtMemory(const std::string& path, const std::string& meminfo = "/proc/meminfo");
// Of the node's memory: dumps leave so much available.
uint64_t LeftAlone(uint64_t node_bytes);
// Bytes that the files below `folder` have taken so far; none where there is none.
uint64_t TakenBy(const std::string& folder);
// For `doctor`.
runtime::NodeCheck CheckLanding(const std::string& path, const Result<MemoryRoom>& room);

class LandingMemory {
 public:
  using Look = std::function<Result<MemoryRoom>()>;

  // `budget_bytes` 0: nothing more lands in memory. `look`: unset: LookAtMemory of the layout's.
  LandingMemory(uint64_t budget_bytes, Layout layout, Look look = nullptr);

  // Mounts the tmpfs in the mount namespace of `host_pid` with the budget as its size, or gives the one that is there that size, unless it
  // holds more. Budget 0: unmounts it if it is empty. An error: dumps land on disk.
  Status Open(int host_pid);
  // Unmounts it if it is empty; what it holds is the next agent's.
  void Close();

  bool enabled() const { return budget_bytes_ > 0; }
  // True: a dump that may take `estimate_bytes` may land here; what it may take is set aside until Release, and is `*reserved`.
  bool Reserve(const std::string& checkpoint_uid, uint64_t estimate_bytes, uint64_t* reserved);
  void Hold(const std::string& checkpoint_uid, uint64_t reserved);  // again, by a new process
  void Release(const std::string& checkpoint_uid);                  // its dump is over; idempotent
  // False when landing folders that are not needed whole should give back what of them is stored.
  bool Roomy() const;

 private:
  uint64_t Unwritten() const;  // of what is set aside; locked

  const uint64_t budget_bytes_;
  const Layout layout_;
  const Look look_;
  int host_pid_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> reserved_;  // by checkpoint: bytes
};

}  // namespace holdfast::agent
