// What World and its faults share: everybody who takes part. For world.cc and faults.cc.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/random_seed.h"
#include "tests/sim/judge.h"
#include "tests/sim/kubernetes.h"
#include "tests/sim/model_store.h"
#include "tests/sim/process.h"
#include "tests/sim/real_store.h"
#include "tests/sim/world.h"

namespace holdfast::sim {

inline constexpr size_t kReplicas = 2;  // of the controller
inline constexpr Duration kTurn = std::chrono::milliseconds(100);

// The product's threads and seeds are the simulation's while this lives; its logs go nowhere.
class Stage {
 public:
  Stage(Turns& turns, uint64_t seed) : seeds_(seed) {
    Threads::Use(&turns);
    UseSeeds([this] { return seeds_.Next(); });
    SetLogLevel(static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  }
  ~Stage() {
    Threads::Use(nullptr);
    UseSeeds(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }

 private:
  Random seeds_;
};

class World {
 public:
  explicit World(const Plan& plan);
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Verdict Play();

 protected:
  std::unique_ptr<Store> NewStore();
  void Tell(const std::string& what);
  void Live();
  virtual void Connect();
  void Watch(const std::string& collection, const ApiServer::Change& change);
  std::string Stored(const std::string& container, const Memory& memory) const;
  void RunKubelet(size_t node);
  void RunControllers();
  virtual void Drains();  // what users do, once all pods run
  void Elect();
  // Faults (faults.cc).
  void Disturb();
  void OneFault(int number);
  void OneAct(int number);
  bool Plays(int number);
  void After(Duration duration, std::function<void()> then);
  void CutOff(size_t node, Duration lasts);
  void OldLeader(Random& random);
  void PowerLost(size_t node, Duration lasts);
  // What a plan says by its place (steps.cc).
  void PlaySteps();
  void Reach(const std::string& place, const std::string& pod);
  void ReachByChange(const std::string& collection, const ApiServer::Change& change);
  void Act(const Step& step, const std::string& pod);
  void ActOn(size_t node, const Step& step);
  void ActOnAll(const Step& step, const std::string& pod, const std::string& node);
  void Drain(const std::string& node);
  // Processes.
  void StartController(size_t index);
  void StartAgent(size_t index);
  template <class Process>
  void Bury(std::unique_ptr<Process> process);
  template <class Process>
  std::shared_ptr<Wire> NewWire(const std::string& user, const std::string& who, std::unique_ptr<Process>& slot);

  void LookIntoStore();
  bool AllRun() const { return NotQuiet().empty(); }
  std::string NotQuiet() const;  // what is still under way; empty: nothing
  std::string NotWell() const;   // what is wrong with who should see to it; empty: nothing

  const Plan plan_;
  Turns turns_;
  Stage stage_;
  std::string story_;
  Judge judge_;
  ApiServer server_{turns_};
  Weather weather_;
  const std::unique_ptr<Store> store_;
  Kubernetes kubernetes_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::unique_ptr<ControllerProcess>> controllers_;
  std::vector<std::unique_ptr<AgentProcess>> agents_;
  size_t leader_ = kReplicas;  // none
  size_t past_ = kReplicas;    // the one that does not know that it is none any more
  int lives_[kReplicas] = {};  // of each replica: how often it was started
  int leads_in_life_ = 0;
  int64_t term_ = 0;
  bool closing_ = false, disturbed_ = false;
  Random whens_, acts_;  // of faults
  int acted_ = 0, drawn_ = 0, calls_ = 0, processes_ = 0, draining_ = 0, drains_ = 0;
  std::optional<int> drains_when_broken_;
  std::vector<int> faults_;
  std::map<const Step*, int> reached_;  // how often the place of each was
  size_t stepped_ = 0;                  // how many of them came to be
  MonoTime no_webhook_until_{}, kubernetes_rests_until_{};
  std::map<size_t, MonoTime> kubelet_rests_until_, cut_until_;  // by node
};

}  // namespace holdfast::sim
