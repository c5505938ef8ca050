// What goes wrong in a World. Each fault that its seed says has a number, by which a shrunk plan names it; all that it draws comes from
// that number, so that it is the same whatever became of the others.
#include "tests/sim/play.h"

namespace holdfast::sim {
namespace {

constexpr int kFirstAct = 10'000'000;  // numbers from here on are of acts

}  // namespace

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

bool World::Plays(int number) {
  if (plan_.only && !plan_.only->contains(number)) return false;
  faults_.push_back(number);
  return true;
}

void World::After(Duration duration, std::function<void()> then) {
  (void)turns_.Start([this, duration, then = std::move(then)] {
    turns_.Pause(duration);
    then();
  });
}

// Faults while there are any; and whoever died is started anew, some time later.
void World::Disturb() {
  while (!closing_) {
    if (disturbed_ && whens_.Chance(plan_.faults / 1000)) OneFault(++drawn_);
    if (disturbed_ && plan_.world != 0 && acts_.Chance(plan_.faults / 8000)) OneAct(kFirstAct + ++acted_);
    for (size_t i = 0; i < controllers_.size(); ++i) {
      if (controllers_[i] != nullptr && controllers_[i]->dead()) Bury(std::move(controllers_[i]));
      if (controllers_[i] == nullptr && turns_.random().Chance(0.05)) StartController(i);
    }
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i] != nullptr && agents_[i]->dead()) Bury(std::move(agents_[i]));
      if (agents_[i] == nullptr && machines_[i]->up() && turns_.random().Chance(0.05)) StartAgent(i);
    }
    store_->Look();
    turns_.Pause(kTurn);
  }
}

void World::OneFault(int number) {
  Random random(plan_.seed * 31 + static_cast<uint64_t>(number));
  const size_t node = random.Below(agents_.size()), replica = random.Below(kReplicas);
  const std::string& on = machines_[node]->name();
  const int of_store = plan_.real_store ? RealStore::kKindsOfFaults : 0;
  const uint64_t kind = random.Below(static_cast<uint64_t>(plan_.kinds + of_store));
  if (!Plays(number)) return;
  auto tell = [&](const std::string& what) { Tell("fault " + std::to_string(number) + ": " + what); };
  if (kind >= static_cast<uint64_t>(plan_.kinds)) {
    tell("at the store");
    return store_->Disturb(static_cast<int>(kind) - plan_.kinds, random);
  }
  const bool agent_lives = agents_[node] != nullptr && !agents_[node]->dead();
  switch (kind) {
    case 0:
      if (!agent_lives) return;
      tell("the agent of " + on + " dies");
      return agents_[node]->Kill();
    case 1:
      if (controllers_[replica] == nullptr || controllers_[replica]->dead()) return;
      tell("controller " + std::to_string(replica) + " dies");
      return controllers_[replica]->Kill();
    case 2:
      if (!store_->reachable()) return;
      tell("the store is out of reach");
      store_->Away(turns_.Mono());
      return After(random.Between(milliseconds(200), random.Chance(0.2) ? seconds(random.Chance(0.3) ? 900 : 60) : seconds(5)), [this] {
        store_->Back();
        Tell("the store answers again");
      });
    case 3:
      if (!agent_lives) return;
      tell(on + " is cut off from the API server");
      return CutOff(node, random.Between(milliseconds(200), seconds(random.Chance(0.2) ? 40 : 5)));
    case 4:
      // Its election's thread got no time: it goes on for a while in a term that is over.
      if (leader_ == kReplicas || controllers_[leader_] == nullptr || controllers_[leader_]->dead()) return;
      tell("controller " + std::to_string(leader_) + " does not know that its lease is over");
      return OldLeader(random);
    case 5:
      tell("the API server forgets old events");
      return server_.Compact();
    case 6:
    case 7:
      tell("the next dump on " + on + " fails");
      machines_[node]->failing_dumps = 1;
      return After(seconds(2), [this, node] { machines_[node]->failing_dumps = 0; });
    case 8:
    case 9:
      if (!machines_[node]->up()) return;
      tell(on + " loses power");
      return PowerLost(node, random.Between(seconds(3), seconds(60)));
    case 10: {
      const std::vector<std::string> pods = kubernetes_.PodNames();
      if (pods.empty()) return;
      const std::string pod = pods[random.Below(pods.size())];
      const bool force = random.Chance(0.3);
      tell("somebody deletes " + pod + (force ? " by force" : ""));
      const ApiServer::Object was = server_.Find("pods", std::string(kUserNamespace) + "/" + pod);
      judge_.Discarded(GetString(*was, {"metadata", "uid"}));
      return kubernetes_.DeletePod(pod, force);
    }
    case 11: {
      Duration by = random.Between(seconds(1), random.Chance(0.5) ? minutes(15) : seconds(30));
      if (random.Chance(0.5)) by = -by;
      tell("the clock of " + on + " is set " + std::to_string(by / seconds(1)) + " s on");
      machines_[node]->clock().wrong += by;
      return After(random.Between(seconds(1), minutes(5)), [this, node, by] { machines_[node]->clock().wrong -= by; });
    }
    default:
      tell("the image of \"side\" cannot be pulled on " + on);
      machines_[node]->missing_images = {"side:1"};
      return After(random.Between(seconds(1), minutes(3)), [this, node] { machines_[node]->missing_images.clear(); });
  }
}

// What containers and users do in a wider world.
void World::OneAct(int number) {
  Random random(plan_.seed * 31 + static_cast<uint64_t>(number));
  const size_t node = random.Below(machines_.size());
  if (!Plays(number)) return;
  const std::string crashed = machines_[node]->CrashOne(random);
  if (!crashed.empty()) Tell("fault " + std::to_string(number) + ": " + crashed + " crashes");
}

void World::CutOff(size_t node, Duration lasts) {
  Wire& wire = agents_[node]->wire();
  wire.Cut(true);
  After(lasts, [this, node, cut = &wire] {
    if (agents_[node] != nullptr && &agents_[node]->wire() == cut) cut->Cut(false);
    Tell(machines_[node]->name() + " is connected again");
  });
}

void World::OldLeader(Random& random) {
  // Not by its wire: the next one's may lie where this one's lay.
  const int life = lives_[leader_];
  past_ = leader_;
  leader_ = kReplicas;
  After(random.Between(seconds(1), seconds(40)), [this, life, index = past_] {
    if (controllers_[index] != nullptr && lives_[index] == life && !controllers_[index]->dead()) {
      Tell("controller " + std::to_string(index) + " learns of it, and ends");
      controllers_[index]->Kill();
    }
    if (past_ == index) past_ = kReplicas;
  });
}

void World::PowerLost(size_t node, Duration lasts) {
  if (agents_[node] != nullptr && !agents_[node]->dead()) agents_[node]->Kill();
  machines_[node]->LosePower();
  After(lasts, [this, node] {
    Tell(machines_[node]->name() + " is up again");
    machines_[node]->Boot();
  });
}

}  // namespace holdfast::sim
