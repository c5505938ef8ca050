#include "tests/sim/replay.h"

#include <algorithm>
#include <filesystem>

#include "tests/sim/play.h"

namespace holdfast::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const std::map<std::string, std::string> kApps = {{"web-0-1", "counter"}, {"web-1-1", "two-containers"}};

class RecordedWorld final : public World {
 public:
  RecordedWorld(const Plan& plan, const Lines& recorded) : World(plan), recorded_(recorded), names_(kApps) {}
  Replayed End(Verdict verdict) { return {std::move(lines_), std::move(missing_), std::move(verdict)}; }

 private:
  void Connect() override;
  void Drains() override;
  void Do(const Json& mark, size_t at);
  void Kill(const Json& mark, size_t at);
  void Keep(Json line) {
    if (!over_ && !line.is_null()) lines_.push_back(std::move(line));
  }
  void Await(const std::string& what, const std::function<bool()>& ready) {
    if (!turns_.Await(ready, turns_.Mono() + minutes(10))) missing_.push_back(what + ": not within 10 minutes; " + NotQuiet());
  }
  std::string Pod(const std::string& app) const;
  size_t Number(const std::string& node) const { return static_cast<size_t>(node.back() - '1'); }  // of "node-1"

  const Lines& recorded_;
  Normaliser names_;
  Lines lines_;
  std::vector<std::string> missing_;
  bool over_ = false;
};

void RecordedWorld::Connect() {
  World::Connect();
  server_.on_change = [this, heard = server_.on_change](const std::string& collection, const ApiServer::Change& change) {
    heard(collection, change);
    Keep(names_.Line(collection, change));
  };
  server_.on_event = [this, heard = server_.on_event](const Json& event) {
    heard(event);
    Keep(names_.EventLine(event));
  };
  kubernetes_.place = [this](const Json& pod, const std::vector<std::string>& fit) {
    const std::string name = names_.PodName(pod);
    for (const Json& line : recorded_) {
      if (GetString(line, {"kind"}) != "Pod" || GetString(line, {"name"}) != name || GetString(line, {"node"}).empty()) continue;
      const std::string node = machines_[Number(GetString(line, {"node"}))]->name();
      if (std::find(fit.begin(), fit.end(), node) != fit.end()) return node;
    }
    return fit[0];
  };
}

void RecordedWorld::Drains() {
  for (size_t i = 0; i < recorded_.size(); ++i) {
    if (recorded_[i].contains("do")) Do(recorded_[i], i);
  }
  over_ = true;
}

// As record.py did it.
void RecordedWorld::Do(const Json& mark, size_t at) {
  const std::string what = GetString(mark, {"do"}), node = GetString(mark, {"node"});
  const std::string on = node.empty() ? "" : machines_[Number(node)]->name();
  if (what == "drain") {
    ++drains_;
    ++draining_;
    (void)turns_.Start([this, on] {
      kubernetes_.Empty(on, closing_);
      --draining_;
    });
  } else if (what == "kill") {
    Kill(mark, at);
  } else if (what == "drained") {
    Await(on + " is empty", [this] { return draining_ == 0; });
  } else if (what == "uncordoned") {
    Await("all pods run", [this] { return AllRun(); });
    kubernetes_.Cordon(on, false);
    Await("everybody is there", [this] { return NotWell().empty() && std::count(agents_.begin(), agents_.end(), nullptr) == 0; });
    turns_.Pause(seconds(3));
  } else if (what == "delete") {
    const std::string pod = Pod(GetString(mark, {"app"}));
    const ApiServer::Object was = server_.Find("pods", std::string(kUserNamespace) + "/" + pod);
    Tell("somebody deletes " + pod);
    judge_.Discarded(GetString(*was, {"metadata", "uid"}));
    kubernetes_.DeletePod(pod, GetString(mark, {"how"}).find("--force") != std::string::npos);
    // The ReplicaSet's controller is quicker than the kubelet and than the watches of others, as it was. Left to the seed, it is either.
    kubernetes_.Look();
    Await("another pod runs instead of " + pod, [this] { return AllRun(); });
    turns_.Pause(seconds(3));
  }
}

// When the Checkpoint that was written last before it has come as far.
void RecordedWorld::Kill(const Json& mark, size_t at) {
  while (at > 0 && GetString(recorded_[at], {"kind"}) != "Checkpoint") --at;
  const std::string name = GetString(recorded_[at], {"name"}), phase = GetString(recorded_[at], {"phase"});
  Await(name + " is " + phase, [&] {
    return std::any_of(lines_.rbegin(), lines_.rend(),
                       [&](const Json& line) { return GetString(line, {"name"}) == name && GetString(line, {"phase"}) == phase; });
  });
  const std::string who = GetString(mark, {"who"});
  Tell(who + " is killed");
  if (who == "agent") return agents_[Number(GetString(mark, {"node"}))]->Kill();
  controllers_[leader_]->Kill();
}

std::string RecordedWorld::Pod(const std::string& app) const {
  for (const ApiServer::Object& pod : server_.All("pods")) {
    const auto called = kApps.find(GetString(*pod, {"metadata", "labels", "app"}));
    if (called != kApps.end() && called->second == app) return GetString(*pod, {"metadata", "name"});
  }
  Die("no pod of an app of the recording");
}

}  // namespace

Replayed Replay(const Lines& recorded, uint64_t seed, const std::string& folder) {
  std::filesystem::remove_all(folder);
  RecordedWorld world({.seed = seed, .nodes = 2, .pods = 2, .drains = 0, .mib = 60, .faults = 0, .folder = folder}, recorded);
  Verdict verdict = world.Play();
  std::filesystem::remove_all(folder);
  return world.End(std::move(verdict));
}

}  // namespace holdfast::sim
