// The checkpoint store as a World has it: what agents and controllers get of it, and what goes wrong with it. There are two: a model, which
// never fails (model_store.h), and the product's own with all that lies before it (real_store.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/stores.h"
#include "base/clock.h"
#include "reconcilers/checkpoint/contents.h"
#include "reconcilers/restorepolicy/retainer.h"
#include "storage/store.h"
#include "tests/sim/turns.h"

namespace holdfast::sim {

// What one process of an agent has of the store. Goes with it.
class AgentsStore {
 public:
  virtual ~AgentsStore() = default;
  virtual storage::Store& store() = 0;
  virtual agent::Stores::Within Within() { return nullptr; }
  virtual Result<std::vector<storage::FileEntry>> Ingest(const std::string& dir, storage::Session& session,
                                                         const storage::IngestOptions& options) = 0;
  virtual Status Fetch(storage::Store& store, const std::string& manifest, const std::string& dir,
                       const storage::IngestOptions& options) = 0;
  virtual void Kill() {}  // its process has died: nothing that it still sends arrives
};

// The same of a controller's.
class ControllersStore {
 public:
  virtual ~ControllersStore() = default;
  virtual reconcilers::checkpoint::Contents& contents() = 0;
  virtual reconcilers::restorepolicy::VolumeMeter& meter() = 0;
  virtual bool down() const = 0;
  virtual void Kill() {}
};

// A Checkpoint that may be restored.
struct Needed {
  std::string name, manifest, digest;
};

class Store {
 public:
  using Break = std::function<void(const std::string& rule, const std::string& what)>;
  virtual ~Store() = default;
  virtual std::unique_ptr<AgentsStore> ForAgent(const std::string& node) = 0;
  virtual std::unique_ptr<ControllersStore> ForController() = 0;
  // What a committed checkpoint has of a file, whoever may reach the store; empty: nothing.
  virtual std::string FileOf(const std::string& manifest, const std::string& path) = 0;

  // Nobody reaches it.
  bool reachable() const { return !away_since_; }
  void Away(MonoTime now) { away_since_ = now; }
  void Back() { away_since_.reset(); }
  // Bytes a second that it takes, of all who send together; 0: as fast as may be.
  int64_t pace = 0;
  // So many are on their way to it, on this fiber.
  Status Carry(Turns& turns, int64_t bytes, const storage::IngestOptions& options);

  // On a fiber.
  virtual void Start() {}
  virtual void Look() {}  // now and then: who died is found dead, and started anew
  virtual std::string NotWell() const { return ""; }
  virtual void Disturb(int, Random&) {}  // the kth of its kinds of faults
  virtual void Calm() {}                 // no fault that has not come yet comes any more
  // All is quiet: the rules of what lies in the store. `known`: uids of all Checkpoints.
  virtual void Examine(const std::vector<Needed>&, const std::set<std::string>&, const Break&) {}
  virtual void Stop() {}  // when nobody asks any more

 protected:
  std::optional<MonoTime> away_since_;
  int senders_ = 0;
};

}  // namespace holdfast::sim
