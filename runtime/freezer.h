// A container's freezer, written directly: a runc of its own costs 10 ms and on cgroup v1 does not thaw what SIGKILL hit.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::runtime {

class Freezer {
 public:
  // From <runc root>/<id>/state.json. kNotFound when runc does not know the container.
  static Result<Freezer> Of(const std::string& runc_root, const std::string& container_id);
  Freezer(std::string dir, bool unified, int init_pid) : dir_(std::move(dir)), unified_(unified), init_pid_(init_pid) {}

  Status Freeze(MonoTime deadline) const;  // returns when every process stands still; thawed again on failure
  // Whatever CRIU lets go of from now on stands still. Does not wait: what it holds by ptrace freezes only then.
  Status FreezeSoon() const;
  Status Thaw() const;  // idempotent; OK when the cgroup is gone
  bool IsFrozen() const;
  std::vector<int> Pids() const;  // of this cgroup and those below
  bool unified() const { return unified_; }
  int init_pid() const { return init_pid_; }  // the container's first process; 0 when unknown

 private:
  std::string dir_;
  bool unified_;  // cgroup v2
  int init_pid_;
};

}  // namespace holdfast::runtime
