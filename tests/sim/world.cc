#include "tests/sim/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "tests/sim/play.h"

namespace holdfast::sim {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

constexpr int kFirstCall = 100'000;  // numbers from here on are of faults at calls

}  // namespace

World::World(const Plan& plan)
    : plan_(plan),
      turns_(plan.seed),
      stage_(turns_, plan.seed ^ 0x5eed),
      judge_([this](const std::string& what) { Tell(what); },
             [this](const std::string& container, const Memory& memory) { return Stored(container, memory); }),
      store_(NewStore()),
      kubernetes_(turns_, server_, [this](const std::string& what) { Tell(what); }),
      whens_(plan.seed ^ 0xfa17),
      acts_(plan.seed ^ 0xac7) {}

std::unique_ptr<Store> World::NewStore() {
  if (!plan_.real_store) return std::make_unique<ModelStore>(turns_);
  return std::make_unique<RealStore>(
      turns_, server_, weather_, plan_.folder + "/store", plan_.seed ^ 0x570e, [this](const std::string& what) { Tell(what); },
      [this](const std::string& rule, const std::string& what) { judge_.Break(rule, what); });
}

void World::Tell(const std::string& what) {
  std::string line = what;
  if (!drains_when_broken_ && what.starts_with("RULE BROKEN")) drains_when_broken_ = drains_;
  for (size_t at = 0; (at = line.find(plan_.folder, at)) != std::string::npos;) line.replace(at, plan_.folder.size(), "…");
  char time[32];
  std::snprintf(time, sizeof time, "%9.3f  ", std::chrono::duration<double>(turns_.Mono().time_since_epoch()).count());
  story_ += time + line + "\n";
}

// The restorable checkpoint that holds just this memory of a container, and that nobody has gone on from.
std::string World::Stored(const std::string& container, const Memory& memory) const {
  for (const ApiServer::Object& c : server_.All("holdfast.dev/checkpoints")) {
    if (GetString(*c, {"status", "phase"}) != "Ready" || !GetString(*c, {"metadata", "deletionTimestamp"}).empty()) continue;
    bool has = false, last = true;
    for (const Json& one : GetArray(*c, {"status", "containers"})) {
      const std::string name = GetString(one, {"name"});
      const Json image =
          ParseJson(store_->FileOf(GetString(*c, {"status", "manifest", "id"}), name + "/images/pages-1.img")).value_or(Json());
      const Memory kept{GetInt(image, {"lineage"}), GetInt(image, {"count"})};
      has = has || (name == container && kept.lineage == memory.lineage && kept.count == memory.count);
      last = last && judge_.IsItsLast(kept);
    }
    if (has && last) return GetString(*c, {"metadata", "name"});
  }
  return "";
}

// --- who takes part -----------------------------------------------------------------------------------------------------------------

void World::RunKubelet(size_t node) {
  while (!closing_) {
    if (turns_.Mono() >= kubelet_rests_until_[node]) machines_[node]->LookAtPods();
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(300)));
  }
}

void World::RunControllers() {
  while (!closing_) {
    if (turns_.Mono() >= kubernetes_rests_until_) kubernetes_.Look();
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(300)));
  }
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
    if (!disturbed_ || slot == nullptr || &slot->wire() != raw) return;
    const int number = kFirstCall + ++calls_;
    if (!Random(plan_.seed * 31 + static_cast<uint64_t>(number)).Chance(plan_.faults / 40000) || !Plays(number)) return;
    Tell("fault " + std::to_string(number) + ": " + who + " dies before a call");
    slot->Kill();
  };
  return wire;
}

template <class Process>
void World::Bury(std::unique_ptr<Process> process) {
  auto held = std::make_shared<std::unique_ptr<Process>>(std::move(process));
  (void)turns_.Start([held] { held->reset(); });
}
template void World::Bury(std::unique_ptr<ControllerProcess> process);
template void World::Bury(std::unique_ptr<AgentProcess> process);

void World::StartController(size_t index) {
  ++lives_[index];
  auto wire = NewWire(kControllerUser, "controller " + std::to_string(index), controllers_[index]);
  controllers_[index] = std::make_unique<ControllerProcess>(turns_, wire, *store_, "controller-" + std::to_string(++processes_));
}

void World::StartAgent(size_t index) {
  auto wire = NewWire("system:serviceaccount:holdfast-system:holdfast-agent", "the agent of " + machines_[index]->name(), agents_[index]);
  const bool cut = turns_.Mono() < cut_until_[index];
  wire->Cut(cut);
  agents_[index] = std::make_unique<AgentProcess>(turns_, wire, *machines_[index], *store_);
  if (cut) CutOff(index, cut_until_[index] - turns_.Mono());
}

// --- the play -----------------------------------------------------------------------------------------------------------------------

std::string World::NotWell() const {
  for (size_t i = 0; i < kReplicas; ++i) {
    if (controllers_[i] == nullptr || controllers_[i]->dead()) return "controller " + std::to_string(i) + " is not there";
    if (!controllers_[i]->ready()) return "controller " + std::to_string(i) + " has no cache of " + controllers_[i]->Unsynced();
  }
  return leader_ == kReplicas ? "no controller leads" : store_->NotWell();
}

std::string World::NotQuiet() const {
  int64_t running = 0;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    const std::string name = GetString(*pod, {"metadata", "name"});
    if (!GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) return name + " is still being deleted";
    const std::string phase = GetString(*pod, {"status", "phase"});
    if (plan_.world != 0 && (phase == "Succeeded" || phase == "Failed")) continue;
    if (!GetArray(*pod, {"spec", "schedulingGates"}).empty()) return name + " is still gated";
    if (GetString(*pod, {"status", "phase"}) != "Running") return name + " does not run";
    ++running;
  }
  const int64_t wanted = kubernetes_.Wanted();
  if (running != wanted) return std::to_string(running) + " of " + std::to_string(wanted) + " pods are there";
  for (const auto& machine : machines_) {
    if (machine->AnyFrozen()) return "something is still frozen on " + machine->name();
    const agent::Layout layout = machine->layout();
    for (const std::string& folder : {layout.Containers(), layout.Pods(), layout.JournalFolder(), layout.state + "/landing"}) {
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

void World::LookIntoStore() {
  std::vector<Needed> needed;
  std::set<std::string> known;
  for (const ApiServer::Object& c : server_.All("holdfast.dev/checkpoints")) {
    known.insert(GetString(*c, {"metadata", "uid"}));
    if (GetString(*c, {"status", "phase"}) != "Ready" || !GetString(*c, {"metadata", "deletionTimestamp"}).empty()) continue;
    needed.push_back({GetString(*c, {"metadata", "name"}), GetString(*c, {"status", "manifest", "id"}),
                      GetString(*c, {"status", "manifest", "digest"})});
  }
  store_->Examine(needed, known, [this](const std::string& rule, const std::string& what) { judge_.Break(rule, what); });
}

void World::Drain(const std::string& node) {
  ++drains_;
  ++draining_;
  (void)turns_.Start([this, node] {
    kubernetes_.Drain(node, closing_);
    --draining_;
  });
}

void World::Drains() {
  for (int i = 0; i < plan_.drains; ++i) {
    const std::string node = machines_[turns_.random().Below(machines_.size())]->name();
    Drain(node);
    turns_.Pause(milliseconds(1));
    (void)turns_.Await([this] { return draining_ == 0; }, turns_.Mono() + turns_.random().Between(seconds(5), minutes(5)));
    // Two at a time at most: somewhere there is room.
    (void)turns_.Await([this] { return draining_ + 1 < plan_.nodes; }, turns_.Mono() + minutes(30));
  }
}

void World::Live() {
  for (int i = 0; i < plan_.nodes; ++i) {
    const std::string name = "n" + std::to_string(i + 1), folder = plan_.folder + "/" + name;
    kubernetes_.MakeNode(name);
    std::filesystem::create_directories(folder);
    machines_.push_back(std::make_unique<Machine>(turns_, server_, judge_, name, folder));
  }
  if ((plan_.world & kOwners) != 0) {
    kubernetes_.made_without_state = [this](const std::string& uid) { judge_.Unadmitted(uid); };
    kubernetes_.MakeOwners(plan_.pods, plan_.seed);
    for (auto& machine : machines_) machine->reports_ends = true;
  } else {
    kubernetes_.MakeWorkloads(
        plan_.pods, [](int i) { return i % 3 == 1; }, plan_.mib);
  }
  if (plan_.mib > 0) {
    for (auto& machine : machines_) machine->pod_bytes = int64_t{plan_.mib} << 20;
  }
  store_->pace = int64_t{plan_.pace} << 20;
  store_->Start();
  controllers_.resize(kReplicas);
  agents_.resize(machines_.size());
  for (size_t i = 0; i < kReplicas; ++i) StartController(i);
  for (size_t i = 0; i < agents_.size(); ++i) StartAgent(i);
  std::vector<Thread> parts;
  for (size_t i = 0; i < machines_.size(); ++i) parts.emplace_back([this, i] { RunKubelet(i); });
  parts.emplace_back([this] { Elect(); });
  parts.emplace_back([this] { Disturb(); });
  (void)turns_.Await([this] { return controllers_[0]->ready() || controllers_[1]->ready(); });
  parts.emplace_back([this] { RunControllers(); });
  if ((plan_.world & kOwners) != 0) parts.emplace_back([this] { kubernetes_.TendBarePods(closing_); });
  (void)turns_.Await([this] { return AllRun(); }, turns_.Mono() + minutes(5));
  Tell("all pods run");

  disturbed_ = plan_.faults > 0 && plan_.at.empty();
  if (disturbed_) weather_ = {.lost_requests = 0.002, .lost_answers = 0.002, .broken_watches = 0.002, .most_lag = milliseconds(400)};
  if (plan_.at.empty()) {
    Drains();
  } else {
    PlaySteps();
  }
  Tell("no more drains, no more faults");
  disturbed_ = false;
  store_->Calm();
  weather_ = {};
  if (!turns_.Await([this] { return draining_ == 0; }, turns_.Mono() + minutes(30)))
    judge_.Break("DrainEnds", "a drain has gone on for half an hour");
  if (!turns_.Await([this] { return AllRun() && NotWell().empty(); }, turns_.Mono() + minutes(20))) {
    const std::string well = NotWell();
    judge_.Break("AllQuiet", NotQuiet() + " after 20 minutes without faults" + (well.empty() ? "" : ", and " + well));
  }
  turns_.Pause(seconds(30));  // for events that are still on their way
  judge_.AtTheEnd();
  LookIntoStore();
  closing_ = true;
  parts.clear();
  for (auto& agent : agents_) Bury(std::move(agent));
  for (auto& controller : controllers_) Bury(std::move(controller));
  store_->Stop();
  (void)turns_.Await([this] { return turns_.fibers() == 1; });  // the ends of faults, too
}

// What the API server calls, and who hears of what it writes.
void World::Connect() {
  auto ask = [this](auto call) {
    return [this, call](const kube::AdmissionRequest& request) -> std::optional<kube::AdmissionResponse> {
      if (turns_.Mono() < no_webhook_until_) return std::nullopt;
      const size_t first = turns_.random().Below(kReplicas);
      for (size_t i = 0; i < kReplicas; ++i) {
        auto& controller = controllers_[(first + i) % kReplicas];
        if (controller != nullptr && controller->ready()) return (controller.get()->*call)(request);
      }
      return std::nullopt;
    };
  };
  server_.mutate_pod = ask(&ControllerProcess::MutatePod);
  server_.validate_eviction = ask(&ControllerProcess::ValidateEviction);
  server_.on_event = [this](const Json& event) { judge_.Event(event); };
  server_.on_change = [this](const std::string& collection, const ApiServer::Change& change) {
    Watch(collection, change);
    ReachByChange(collection, change);
  };
  judge_.on_turn = [this](const char* turn, const Container& c) { Reach(c.name + "." + turn, c.pod); };
}

void World::Watch(const std::string& collection, const ApiServer::Change& change) {
  const std::string name = GetString(*change.now, {"metadata", "name"}), type = change.type;
  if (collection == "pods" && type == "ADDED") {
    judge_.PodMade(SeatOf(*change.now), GetString(*change.now, {"metadata", "uid"}));
    Tell("pod " + name + " is made" + (GetArray(*change.now, {"spec", "schedulingGates"}).empty() ? "" : ", behind its gate"));
    if (GetString(*change.now, {"spec", "runtimeClassName"}).empty()) judge_.Unadmitted(GetString(*change.now, {"metadata", "uid"}));
  }
  if (collection == "pods" && type == "DELETED") Tell("pod " + name + " is gone");
  if (collection == "pods" && type == "MODIFIED") {
    const std::string phase = GetString(*change.now, {"status", "phase"});
    const bool over = phase == "Succeeded" || phase == "Failed";
    if (over && phase != GetString(*change.before, {"status", "phase"}))
      Tell("pod " + name + " has " + (phase == "Failed" ? "failed" : "succeeded"));
  }
  if (collection != "holdfast.dev/checkpoints") return;
  const std::string phase = GetString(*change.now, {"status", "phase"});
  const std::string before = change.before ? GetString(*change.before, {"status", "phase"}) : "";
  if (type == "DELETED") return Tell("checkpoint " + name + " is gone");
  if (phase != before || !change.before) Tell("checkpoint " + name + (phase.empty() ? " is made" : " is " + phase));
  const std::string claim = GetString(*change.now, {"status", "claim", "podName"});
  if (change.before && claim != GetString(*change.before, {"status", "claim", "podName"}))
    Tell("checkpoint " + name + (claim.empty() ? " is given back" : " is claimed for " + claim));
}

Verdict World::Play() {
  Connect();
  if (!turns_.Run([this] { Live(); })) {
    std::fputs(story_.c_str(), stderr);
    Die("everybody waits for ever");
  }
  Verdict verdict;
  verdict.broken = judge_.broken();
  verdict.turns = turns_.turns();
  verdict.moved = judge_.moved();
  verdict.cold = judge_.cold();
  verdict.drains = drains_when_broken_.value_or(drains_);
  verdict.faults = faults_;
  for (const Step& step : plan_.at) {
    if (reached_[&step] < step.nth) verdict.missed.push_back(StepText(step));
  }
  verdict.lasted = turns_.Mono().time_since_epoch();
  verdict.story = std::move(story_);
  return verdict;
}

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
