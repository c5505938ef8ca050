#include "tests/sim/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/random_seed.h"
#include "base/time_format.h"
#include "tests/sim/judge.h"

namespace holdfast::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kNs[] = "default";
constexpr size_t kReplicas = 2;  // of the controller
constexpr Duration kTurn = milliseconds(100);

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
  explicit World(const Plan& plan)
      : plan_(plan), turns_(plan.seed), stage_(turns_, plan.seed ^ 0x5eed), judge_([this](const std::string& what) { Tell(what); }) {}
  Verdict Play();

 private:
  void Tell(const std::string& what);
  void MakeObjects();
  void MakeNode(const std::string& name);
  void Live();
  // Parts of Kubernetes, each on a fiber until closing_.
  void RunKubelet(Machine& machine);
  void RunControllers();
  void Replicate(const Json& replica_set);
  void Schedule(const Json& pod);
  void Drain(const std::string& node);
  void Cordon(const std::string& node, bool cordoned);
  void Elect();
  // Faults.
  void Disturb();
  void OneFault();
  void StartController(size_t index);
  void StartAgent(size_t index);
  void Bury(std::unique_ptr<ControllerProcess> process);
  void Bury(std::unique_ptr<AgentProcess> process);
  template <class Process>
  std::shared_ptr<Wire> NewWire(const std::string& user, const std::string& who, std::unique_ptr<Process>& slot);

  bool AllRun() const;
  std::string NotQuiet() const;
  std::string NotWell() const;

  const Plan plan_;
  Turns turns_;
  Stage stage_;
  std::string story_;
  Judge judge_;
  ApiServer server_{turns_};
  Store store_;
  Weather weather_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::unique_ptr<ControllerProcess>> controllers_;
  std::vector<std::unique_ptr<AgentProcess>> agents_;
  size_t leader_ = kReplicas;  // none
  size_t past_ = kReplicas;    // the one that does not know that it is none any more
  int lives_[kReplicas] = {};  // of each replica: how often it was started
  int leads_in_life_ = 0;
  int64_t term_ = 0;
  bool closing_ = false, disturbed_ = false;
  int faults_ = 0, processes_ = 0, draining_ = 0;
};

void World::Tell(const std::string& what) {
  std::string line = what;
  for (size_t at = 0; (at = line.find(plan_.folder, at)) != std::string::npos;) line.replace(at, plan_.folder.size(), "…");
  char time[32];
  std::snprintf(time, sizeof time, "%9.3f  ", std::chrono::duration<double>(turns_.Mono().time_since_epoch()).count());
  story_ += time + line + "\n";
}

// --- what there is at the start -----------------------------------------------------------------------------------------------------

void World::MakeNode(const std::string& name) {
  server_.Put("nodes",
              {{"apiVersion", "v1"},
               {"kind", "Node"},
               {"metadata", {{"name", name}, {"labels", {{api::kNodeReady, "ready"}}}}},
               {"spec", Json::object()},
               {"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}, {"nodeInfo", {{"architecture", "amd64"}}}}}});
  std::filesystem::create_directories(plan_.folder + "/" + name);
  machines_.push_back(std::make_unique<Machine>(turns_, server_, judge_, name, plan_.folder + "/" + name));
  agents_.emplace_back();
}

void World::MakeObjects() {
  for (const char* ns : {kNs, kOwnNamespace})
    server_.Put("namespaces", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns}}}});
  for (int i = 0; i < plan_.nodes; ++i) MakeNode("n" + std::to_string(i + 1));
  for (int i = 0; i < plan_.pods; ++i) {
    const std::string name = "web-" + std::to_string(i);
    Json deployment = {{"apiVersion", "apps/v1"},
                       {"kind", "Deployment"},
                       {"metadata", {{"namespace", kNs}, {"name", name}, {"annotations", {{api::kProtect, "true"}}}}},
                       {"spec", {{"replicas", 1}, {"template", {{"metadata", Json::object()}}}}}};
    server_.Put("apps/deployments", deployment);
    const ApiServer::Object made = server_.Find("apps/deployments", std::string(kNs) + "/" + name);
    server_.Put("apps/replicasets", {{"apiVersion", "apps/v1"},
                                     {"kind", "ReplicaSet"},
                                     {"metadata",
                                      {{"namespace", kNs},
                                       {"name", name + "-1"},
                                       {"labels", {{"pod-template-hash", "1"}}},
                                       {"ownerReferences",
                                        {{{"apiVersion", "apps/v1"},
                                          {"kind", "Deployment"},
                                          {"name", name},
                                          {"uid", GetString(*made, {"metadata", "uid"})},
                                          {"controller", true}}}}}},
                                     {"spec", {{"replicas", 1}, {"template", {{"metadata", Json::object()}}}}}});
  }
}

// --- Kubernetes ---------------------------------------------------------------------------------------------------------------------

void World::RunKubelet(Machine& machine) {
  while (!closing_) {
    machine.LookAtPods();
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(300)));
  }
}

void World::RunControllers() {
  while (!closing_) {
    for (const ApiServer::Object& one : server_.All("apps/replicasets")) Replicate(*one);
    for (const ApiServer::Object& pod : server_.All("pods")) Schedule(*pod);
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(300)));
  }
}

void World::Replicate(const Json& set) {
  const std::string uid = GetString(set, {"metadata", "uid"}), name = GetString(set, {"metadata", "name"});
  int64_t there = 0;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    for (const Json& owner : GetArray(*pod, {"metadata", "ownerReferences"})) {
      if (GetString(owner, {"uid"}) == uid && GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) ++there;
    }
  }
  if (there >= GetInt(set, {"spec", "replicas"})) return;
  kube::HttpRequest request;
  request.method = "POST";
  request.path = "/api/v1/namespaces/" + std::string(kNs) + "/pods";
  request.body = DumpJson(
      {{"apiVersion", "v1"},
       {"kind", "Pod"},
       {"metadata",
        {{"generateName", name + "-"},
         {"labels", {{"app", name}, {"pod-template-hash", "1"}}},
         {"ownerReferences", {{{"apiVersion", "apps/v1"}, {"kind", "ReplicaSet"}, {"name", name}, {"uid", uid}, {"controller", true}}}}}},
       {"spec",
        {{"containers", {{{"name", "main"}, {"image", "counter:1"}}}},
         {"restartPolicy", "Always"},
         {"terminationGracePeriodSeconds", 30}}}});
  (void)server_.Handle(request, "system:serviceaccount:kube-system:replicaset-controller");
}

void World::Schedule(const Json& pod) {
  if (!GetString(pod, {"spec", "nodeName"}).empty() || !GetArray(pod, {"spec", "schedulingGates"}).empty()) return;
  if (!GetString(pod, {"metadata", "deletionTimestamp"}).empty()) return;
  std::vector<std::string> fit;
  for (const ApiServer::Object& node : server_.All("nodes")) {
    if (!GetBool(*node, {"spec", "unschedulable"})) fit.push_back(GetString(*node, {"metadata", "name"}));
  }
  if (fit.empty()) return;
  const std::string to = fit[turns_.random().Below(fit.size())];
  const std::string key = std::string(kNs) + "/" + GetString(pod, {"metadata", "name"});
  server_.Update("pods", key, [&](Json& now) {
    if (GetString(now, {"metadata", "uid"}) == GetString(pod, {"metadata", "uid"})) now["spec"]["nodeName"] = to;
  });
}

void World::Cordon(const std::string& node, bool cordoned) {
  server_.Update("nodes", node, [&](Json& now) { now["spec"]["unschedulable"] = cordoned; });
}

// kubectl drain.
void World::Drain(const std::string& node) {
  ++draining_;
  Tell("somebody drains " + node);
  Cordon(node, true);
  for (bool left = true; left && !closing_;) {
    left = false;
    for (const ApiServer::Object& pod : server_.All("pods")) {
      if (GetString(*pod, {"spec", "nodeName"}) != node) continue;
      left = true;
      if (!GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) continue;
      const std::string name = GetString(*pod, {"metadata", "name"});
      kube::HttpRequest request;
      request.method = "POST";
      request.path = "/api/v1/namespaces/" + std::string(kNs) + "/pods/" + name + "/eviction";
      request.body = DumpJson({{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", name}, {"namespace", kNs}}}});
      (void)server_.Handle(request, "kubectl");
    }
    if (left) turns_.Pause(seconds(5));
  }
  Tell(node + " is empty");
  turns_.Pause(turns_.random().Between(seconds(1), seconds(20)));
  Cordon(node, false);
  --draining_;
}

// The lease goes to a replica that is ready, some time after the last leader is gone.
void World::Elect() {
  while (!closing_) {
    if (leader_ == kReplicas || controllers_[leader_] == nullptr || controllers_[leader_]->dead() || lives_[leader_] != leads_in_life_) {
      leader_ = kReplicas;
      turns_.Pause(turns_.random().Between(seconds(1), seconds(16)));
      for (size_t i = 0; i < kReplicas && !closing_; ++i) {
        if (i == past_ || controllers_[i] == nullptr || !controllers_[i]->ready()) continue;
        leader_ = i;
        leads_in_life_ = lives_[i];
        Tell("controller " + std::to_string(i) + " leads in term " + std::to_string(++term_));
        controllers_[i]->Lead(term_);
        break;
      }
    }
    turns_.Pause(kTurn);
  }
}

// --- processes ----------------------------------------------------------------------------------------------------------------------

template <class Process>
std::shared_ptr<Wire> World::NewWire(const std::string& user, const std::string& who, std::unique_ptr<Process>& slot) {
  auto wire = std::make_shared<Wire>(turns_, server_, weather_, user);
  // A thousandth of the calls of a process is its last one, in wild weather.
  wire->before_send = [this, who, &slot, raw = wire.get()] {
    if (!disturbed_ || slot == nullptr || &slot->wire() != raw || !turns_.random().Chance(plan_.faults / 40000)) return;
    ++faults_;
    Tell("fault: " + who + " dies before a call");
    slot->Kill();
  };
  return wire;
}

void World::Bury(std::unique_ptr<ControllerProcess> process) {
  auto held = std::make_shared<std::unique_ptr<ControllerProcess>>(std::move(process));
  (void)turns_.Start([held] { held->reset(); });
}

void World::Bury(std::unique_ptr<AgentProcess> process) {
  auto held = std::make_shared<std::unique_ptr<AgentProcess>>(std::move(process));
  (void)turns_.Start([held] { held->reset(); });
}

void World::StartController(size_t index) {
  ++lives_[index];
  auto wire = NewWire(kControllerUser, "controller " + std::to_string(index), controllers_[index]);
  controllers_[index] = std::make_unique<ControllerProcess>(turns_, wire, store_, "controller-" + std::to_string(++processes_));
}

void World::StartAgent(size_t index) {
  auto wire = NewWire("system:serviceaccount:holdfast-system:holdfast-agent", "the agent of " + machines_[index]->name(), agents_[index]);
  agents_[index] = std::make_unique<AgentProcess>(turns_, wire, *machines_[index], store_);
}

// --- faults -------------------------------------------------------------------------------------------------------------------------

void World::OneFault() {
  ++faults_;
  Random& random = turns_.random();
  const size_t node = random.Below(agents_.size()), replica = random.Below(kReplicas);
  switch (random.Below(7)) {
    case 0:
      if (agents_[node] == nullptr || agents_[node]->dead()) return;
      Tell("fault: the agent of " + machines_[node]->name() + " dies");
      return agents_[node]->Kill();
    case 1:
      if (controllers_[replica] == nullptr || controllers_[replica]->dead()) return;
      Tell("fault: controller " + std::to_string(replica) + " dies");
      return controllers_[replica]->Kill();
    case 2: {
      if (!store_.reachable) return;
      Tell("fault: the store is out of reach");
      store_.reachable = false;
      const Duration lasts = random.Between(milliseconds(200), seconds(random.Chance(0.2) ? 60 : 5));
      (void)turns_.Start([this, lasts] {
        turns_.Pause(lasts);
        store_.reachable = true;
        Tell("the store answers again");
      });
      return;
    }
    case 3: {
      if (agents_[node] == nullptr || agents_[node]->dead()) return;
      Tell("fault: " + machines_[node]->name() + " is cut off from the API server");
      Wire& wire = agents_[node]->wire();
      wire.Cut(true);
      const Duration lasts = random.Between(milliseconds(200), seconds(random.Chance(0.2) ? 40 : 5));
      (void)turns_.Start([this, node, lasts, cut = &wire] {
        turns_.Pause(lasts);
        if (agents_[node] != nullptr && &agents_[node]->wire() == cut) cut->Cut(false);
        Tell(machines_[node]->name() + " is connected again");
      });
      return;
    }
    case 4: {
      // Its election's thread got no time: it goes on for a while in a term that is over.
      if (leader_ == kReplicas || controllers_[leader_] == nullptr || controllers_[leader_]->dead()) return;
      Tell("fault: controller " + std::to_string(leader_) + " does not know that its lease is over");
      Wire* stale = &controllers_[leader_]->wire();
      past_ = leader_;
      leader_ = kReplicas;
      (void)turns_.Start([this, stale, index = past_, lasts = random.Between(seconds(1), seconds(40))] {
        turns_.Pause(lasts);
        if (controllers_[index] != nullptr && &controllers_[index]->wire() == stale && !controllers_[index]->dead()) {
          Tell("controller " + std::to_string(index) + " learns of it, and ends");
          controllers_[index]->Kill();
        }
        if (past_ == index) past_ = kReplicas;
      });
      return;
    }
    case 5:
      Tell("fault: the API server forgets old events");
      return server_.Compact();
    default:
      Tell("fault: the next dump on " + machines_[node]->name() + " fails");
      machines_[node]->failing_dumps = 1;
      (void)turns_.Start([this, node] {
        turns_.Pause(seconds(2));
        machines_[node]->failing_dumps = 0;
      });
  }
}

// Faults while there are any; and whoever died is started anew, some time later.
void World::Disturb() {
  while (!closing_) {
    if (disturbed_ && turns_.random().Chance(plan_.faults / 1000)) OneFault();
    for (size_t i = 0; i < controllers_.size(); ++i) {
      if (controllers_[i] != nullptr && controllers_[i]->dead()) Bury(std::move(controllers_[i]));
      if (controllers_[i] == nullptr && turns_.random().Chance(0.05)) StartController(i);
    }
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i] != nullptr && agents_[i]->dead()) Bury(std::move(agents_[i]));
      if (agents_[i] == nullptr && turns_.random().Chance(0.05)) StartAgent(i);
    }
    turns_.Pause(kTurn);
  }
}

// --- the play -----------------------------------------------------------------------------------------------------------------------

bool World::AllRun() const { return NotQuiet().empty(); }

// What is wrong with who should see to it; empty: nothing.
std::string World::NotWell() const {
  for (size_t i = 0; i < kReplicas; ++i) {
    if (controllers_[i] == nullptr || controllers_[i]->dead()) return "controller " + std::to_string(i) + " is not there";
    if (!controllers_[i]->ready()) return "controller " + std::to_string(i) + " has no cache of " + controllers_[i]->Unsynced();
  }
  return leader_ == kReplicas ? "no controller leads" : "";
}

// What is still under way; empty: nothing.
std::string World::NotQuiet() const {
  int64_t running = 0;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    const std::string name = GetString(*pod, {"metadata", "name"});
    if (!GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) return name + " is still being deleted";
    if (!GetArray(*pod, {"spec", "schedulingGates"}).empty()) return name + " is still gated";
    if (GetString(*pod, {"status", "phase"}) != "Running") return name + " does not run";
    ++running;
  }
  if (running != plan_.pods) return std::to_string(running) + " of " + std::to_string(plan_.pods) + " pods are there";
  for (const auto& machine : machines_) {
    if (machine->AnyFrozen()) return "something is still frozen on " + machine->name();
    const agent::Layout layout = machine->layout();
    for (const std::string& folder : {layout.Containers(), layout.run + "/pods", layout.JournalFolder(), layout.state + "/landing"}) {
      const std::vector<std::string> left = ListDir(folder).value_or({});
      if (!left.empty()) return folder.substr(folder.rfind('/') + 1) + "/" + left[0] + " is left on " + machine->name();
    }
  }
  for (const ApiServer::Object& c : server_.All("holdfast.dev/checkpoints")) {
    const std::string phase = GetString(*c, {"status", "phase"});
    if (phase != "Ready" && phase != "Failed") return "checkpoint " + GetString(*c, {"metadata", "name"}) + " is still " + phase;
  }
  return "";
}

void World::Live() {
  MakeObjects();
  controllers_.resize(kReplicas);
  for (size_t i = 0; i < kReplicas; ++i) StartController(i);
  for (size_t i = 0; i < agents_.size(); ++i) StartAgent(i);
  std::vector<Thread> parts;
  for (auto& machine : machines_) parts.emplace_back([this, &machine] { RunKubelet(*machine); });
  parts.emplace_back([this] { Elect(); });
  parts.emplace_back([this] { Disturb(); });
  (void)turns_.Await([this] { return controllers_[0]->ready() || controllers_[1]->ready(); });
  parts.emplace_back([this] { RunControllers(); });
  (void)turns_.Await([this] { return AllRun(); }, turns_.Mono() + minutes(5));
  Tell("all pods run");

  disturbed_ = plan_.faults > 0;
  if (disturbed_) weather_ = {.lost_requests = 0.002, .lost_answers = 0.002, .broken_watches = 0.002, .most_lag = milliseconds(400)};
  for (int i = 0; i < plan_.drains; ++i) {
    const std::string node = machines_[turns_.random().Below(machines_.size())]->name();
    (void)turns_.Start([this, node] { Drain(node); });
    turns_.Pause(milliseconds(1));
    (void)turns_.Await([this] { return draining_ == 0; }, turns_.Mono() + turns_.random().Between(seconds(5), minutes(5)));
    // Two at a time at most: somewhere there is room.
    (void)turns_.Await([this] { return draining_ + 1 < plan_.nodes; }, turns_.Mono() + minutes(30));
  }
  Tell("no more drains, no more faults");
  disturbed_ = false;
  weather_ = {};
  if (!turns_.Await([this] { return draining_ == 0; }, turns_.Mono() + minutes(30)))
    judge_.Break("DrainEnds", "a drain has gone on for half an hour");
  if (!turns_.Await([this] { return AllRun() && NotWell().empty(); }, turns_.Mono() + minutes(20))) {
    const std::string well = NotWell();
    judge_.Break("AllQuiet", NotQuiet() + " after 20 minutes without faults" + (well.empty() ? "" : ", and " + well));
  }
  judge_.AtTheEnd();
  closing_ = true;
  parts.clear();
  for (auto& agent : agents_) Bury(std::move(agent));
  for (auto& controller : controllers_) Bury(std::move(controller));
  (void)turns_.Await([this] { return turns_.fibers() == 1; });  // the ends of faults, too
}

Verdict World::Play() {
  server_.mutate_pod = [this](const kube::AdmissionRequest& request) -> std::optional<kube::AdmissionResponse> {
    const size_t first = turns_.random().Below(kReplicas);
    for (size_t i = 0; i < kReplicas; ++i) {
      auto& controller = controllers_[(first + i) % kReplicas];
      if (controller == nullptr || !controller->ready()) continue;
      return controller->MutatePod(request);
    }
    return std::nullopt;
  };
  server_.validate_eviction = [this](const kube::AdmissionRequest& request) -> std::optional<kube::AdmissionResponse> {
    const size_t first = turns_.random().Below(kReplicas);
    for (size_t i = 0; i < kReplicas; ++i) {
      auto& controller = controllers_[(first + i) % kReplicas];
      if (controller != nullptr && controller->ready()) return controller->ValidateEviction(request);
    }
    return std::nullopt;
  };
  server_.on_event = [this](const Json& event) { judge_.Event(event); };
  server_.on_change = [this](const std::string& collection, const ApiServer::Change& change) {
    const std::string name = GetString(*change.now, {"metadata", "name"});
    if (collection == "pods" && std::string_view(change.type) == "ADDED") {
      for (const Json& owner : GetArray(*change.now, {"metadata", "ownerReferences"}))
        judge_.PodMade(GetString(owner, {"uid"}), GetString(*change.now, {"metadata", "uid"}));
      Tell("pod " + name + " is made" + (GetArray(*change.now, {"spec", "schedulingGates"}).empty() ? "" : ", behind its gate"));
      if (GetString(*change.now, {"spec", "runtimeClassName"}).empty()) judge_.Unadmitted(GetString(*change.now, {"metadata", "uid"}));
    }
    if (collection == "pods" && std::string_view(change.type) == "DELETED") Tell("pod " + name + " is gone");
    if (collection != "holdfast.dev/checkpoints") return;
    const std::string phase = GetString(*change.now, {"status", "phase"});
    const std::string before = change.before ? GetString(*change.before, {"status", "phase"}) : "";
    if (std::string_view(change.type) == "DELETED") return Tell("checkpoint " + name + " is gone");
    if (phase != before || !change.before) Tell("checkpoint " + name + (phase.empty() ? " is made" : " is " + phase));
    const std::string claim = GetString(*change.now, {"status", "claim", "podName"});
    if (change.before && claim != GetString(*change.before, {"status", "claim", "podName"}))
      Tell("checkpoint " + name + (claim.empty() ? " is given back" : " is claimed for " + claim));
  };
  if (!turns_.Run([this] { Live(); })) {
    std::fputs(story_.c_str(), stderr);
    Die("everybody waits for ever");
  }
  Verdict verdict;
  verdict.broken = judge_.broken();
  verdict.turns = turns_.turns();
  verdict.moved = judge_.moved();
  verdict.cold = judge_.cold();
  verdict.faults = faults_;
  verdict.lasted = turns_.Mono().time_since_epoch();
  verdict.story = std::move(story_);
  return verdict;
}

}  // namespace

Place::Place() : path_(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string()) {
  path_ += "/holdfast-sim-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) Die("no folder for the nodes' files");
}

Place::~Place() { std::filesystem::remove_all(path_); }

Verdict Play(const Plan& plan) {
  std::filesystem::remove_all(plan.folder);
  Verdict verdict = World(plan).Play();
  std::filesystem::remove_all(plan.folder);
  return verdict;
}

}  // namespace holdfast::sim
