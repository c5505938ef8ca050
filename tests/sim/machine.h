// A node: its files, its containers as state machines, the dumps that holdfast-runc makes there, and its kubelet. It outlives its agent.
//
// What a container does is count: ten a second while it runs. Its memory is a lineage (who it was from its first start on, wherever it
// went) and that count.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agent/layout.h"
#include "agent/node.h"
#include "tests/sim/api_server.h"
#include "tests/sim/turns.h"

namespace holdfast::sim {

// holdfast-agent as holdfast-runc asks it over its socket.
class Socket {
 public:
  virtual ~Socket() = default;
  virtual runtime::CreateAnswer Create(const runtime::CreateQuestion& question) = 0;
  virtual runtime::CreateAnswer Outcome(const runtime::RestoreOutcome& outcome) = 0;
};

struct Memory {
  int64_t lineage = 0, count = 0;
};

// What its pods follow one another in: its owner, of a StatefulSet's with its ordinal; of one that nobody owns its name.
std::string SeatOf(const Json& pod);

struct Container {
  std::string id, pod_uid, ns, pod, name, owner;           // owner: SeatOf its pod
  std::string seat() const { return owner + "/" + name; }  // what its lineages follow one another in
  int exit_code = 137;                                     // once it is stopped; 0: it was done
  agent::ContainerState state = agent::ContainerState::kRunning;
  Memory memory;   // as of `since`, while it runs
  MonoTime since;  // it runs
};

// Hears what containers do. `crashed`: of itself, or with its node; nobody told it to end.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void Started(const std::string& node, const Container& container, bool restored) = 0;
  virtual void Froze(const std::string& node, const Container& container) = 0;
  virtual void Thawed(const std::string& node, const Container& container) = 0;
  virtual void Ended(const std::string& node, const Container& container, bool crashed) = 0;
  virtual int64_t NewLineage(const Container& container) = 0;
  // A restore of it is being made: whether it runs for a moment nobody can know, until it is known that it did not.
  virtual void Tries(const Memory& memory) = 0;
  virtual void DidNotRun(const Memory& memory) = 0;
  // The volumes of its pod are emptied, and filled with what a checkpoint has of them, while it runs.
  virtual void Emptied(const std::string& node, const Container& container) = 0;
};

// Time as a node has it: its wall clock may be wrong, and be set right.
class NodeClock final : public Clock {
 public:
  explicit NodeClock(Turns& turns) : turns_(turns) {}
  MonoTime Mono() const override { return turns_.Mono(); }
  WallTime Wall() const override { return turns_.Wall() + wrong; }
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override {
    return turns_.WaitUntil(lock, cv, deadline, std::move(stop), ready);
  }
  Duration wrong{0};

 private:
  Turns& turns_;
};

class Machine final : public agent::Node {
 public:
  // `folder`: the node's own, which exists.
  Machine(Turns& turns, ApiServer& server, Observer& observer, std::string name, std::string folder);

  const std::string& name() const { return name_; }
  NodeClock& clock() { return clock_; }
  agent::Layout layout() const;
  std::string boot_id() const { return name_ + "-boot-" + std::to_string(boots_); }
  // Its power goes: every process ends, /run is empty, and what lay on its disk unsynced is as it was, empty, or not there. Until Boot
  // nothing runs here. Its agent's process must be dead.
  void LosePower();
  void Boot() { up_ = true; }
  bool up() const { return up_; }
  std::set<std::string> missing_images;  // that cannot be pulled
  // Its agent has died: whatever that process still does, it does to files that nobody reads.
  void NewLife();
  Socket* socket = nullptr;  // null while no agent listens
  double failing_dumps = 0;
  bool reports_ends = false;  // what ends a pod says that it has ended (Succeeded, Failed) before it lets it go
  // A container that runs here ends by itself. Empty: none did; else whose it was.
  std::string CrashOne(Random& random);
  int64_t pod_bytes = 64;  // of memory, that each has

  // One look of the kubelet at all pods of its node. On a fiber.
  void LookAtPods();
  const std::map<std::string, Container>& all() const { return containers_; }
  bool AnyFrozen() const;

  Result<uint64_t> Estimate(const std::vector<std::string>& ids, const std::vector<std::string>& folders) override;
  Status StartDump(const std::string& checkpoint_uid, const std::string& landing) override;
  bool DumpRunning(const std::string& checkpoint_uid, const std::string& pod_uid) override;
  Status KillDump(const std::string& checkpoint_uid) override;
  Status Resume(const std::string& container_id) override;
  Result<agent::ContainerState> StateOf(const std::string& container_id) override;
  Result<std::vector<agent::NodeContainer>> Containers() override;
  Status End(const std::vector<std::string>& container_ids) override;
  Status RemoveContainer(const std::string& container_id) override;
  std::string DumpOutput(const std::string&) override { return "the dump was killed"; }
  Json Platform() override;

 private:
  struct Pod {  // as the kubelet has it
    bool wait_created = false, wait_over = false;
    std::map<std::string, std::string> ids;  // of its containers, by name
    std::map<std::string, int> ended;        // exit codes of those that are not started any more
    MonoTime next;                           // its next try
  };
  std::string Here(const std::string& path) const;  // a path of an earlier life, as it is now
  void Dump(std::string checkpoint_uid, std::string landing, std::shared_ptr<bool> killed);
  void Freeze(Container& container);
  void Thaw(Container& container);
  void Kill(Container& container, bool crashed = false);
  void DropUnsynced(const std::string& folder);
  void TendPod(const Json& pod);
  void TendEnded(const Json& pod, Pod& state);
  void NotStarted(const Json& pod, Pod& state, const std::string& name);
  bool TendWait(const Json& pod, Pod& state);
  void StartContainer(const Json& pod, Pod& state, const std::string& name);
  bool WaitsForDump(const Container& container) const;
  void FillVolumes(const Container& container, const runtime::CreateAnswer& answer);
  void EndPod(const Json& pod);
  void Report(const Json& pod, const Pod& state);
  std::string NewId() { return name_ + "-c" + std::to_string(++ids_); }

  Turns& turns_;
  ApiServer& server_;
  Observer& observer_;
  NodeClock clock_{turns_};
  const std::string name_, folder_;
  int lives_ = 0, ids_ = 0, boots_ = 1;
  bool up_ = true, kubelet_is_new_ = false;
  std::map<std::string, Container> containers_;
  std::map<std::string, std::shared_ptr<bool>> dumps_;  // that run, by checkpoint: set when it is killed
  std::map<std::string, Pod> pods_;                     // by uid
};

}  // namespace holdfast::sim
