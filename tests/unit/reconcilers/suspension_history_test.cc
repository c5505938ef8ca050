// Random histories of a workload that is suspended and resumed: pods, agents, an owner's controller, users who interfere, leaders that die
// before a write, see the past, or whose write comes late. In every second one it is to be suspended when it is idle, too, of which the
// leader hears late. Whatever happens, no process is ended by us whose state is not stored, none is frozen for its idleness that is used,
// nothing is restored twice, and in the end everything runs.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "reconcilers/suspendedworkload/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

struct SimPod {
  kube::Pod pod;
  int process = 0;  // which one runs in it
  bool frozen = false;
  std::optional<WallTime> quiet_since;  // nothing: it is used
};

struct SimCheckpoint {
  api::Checkpoint c;
  int process = 0;
  int version = 0;
};

class History {
 public:
  explicit History(unsigned seed) : random_(seed) {
    object_ = {{"metadata",
                {{"name", "nb"},
                 {"namespace", "default"},
                 {"uid", "uid-nb"},
                 {"generation", 1},
                 {"finalizers", {api::SuspendedWorkload::kFinalizer}}}},
               {"spec", {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", "Running"}}}};
    if (seed % 2 == 0) object_["spec"]["idle"] = {{"after", "20s"}};
    target_.meta.ns = "default";
    target_.meta.name = "web";
    target_.meta.uid = "uid-web";
    target_.replicas = 1 + Dice(3);
    while (Alive() < target_.replicas) Owner();
    for (auto& pod : pods_) pod.pod.phase = "Running";
  }

  void Play() {
    for (int i = 0; i < 150; ++i) {
      now_ += std::chrono::seconds(Dice(8));
      switch (Dice(10)) {
        case 0:
          User();
          break;
        case 1:
        case 2:
        case 3:
          Agent();
          break;
        case 4:
        case 5:
          Owner();
          break;
        default:
          Leader();
      }
      Remember();
    }
    // Nobody interferes any more; it is to run, and is used.
    Want("Running");
    late_.clear();
    past_.clear();
    calm_ = true;
    for (int i = 0; i < 400; ++i) {
      for (SimPod& pod : pods_) pod.quiet_since.reset();
      now_ += std::chrono::seconds(1);
      Agent();
      Owner();
      Leader();
    }
    EXPECT_EQ(GetString(object_, {"status", "phase"}), "Running") << Describe();
    EXPECT_FALSE(api::AsleepMark(target_.meta)) << Describe();
    EXPECT_EQ(static_cast<int64_t>(pods_.size()), target_.replicas) << Describe();
    for (const SimPod& pod : pods_) EXPECT_FALSE(pod.frozen) << Describe();
    EXPECT_TRUE(user_stopped_ || target_.replicas > 0) << Describe();
  }
  int slept() const { return slept_; }
  int taken_back() const { return taken_back_; }
  int overridden() const { return overridden_; }
  int idled() const { return idled_; }
  int used_again() const { return used_again_; }

 private:
  int Dice(int sides) { return static_cast<int>(random_() % static_cast<unsigned>(sides)); }
  int64_t Alive() const {
    return std::count_if(pods_.begin(), pods_.end(), [](const SimPod& p) { return !p.pod.meta.terminating(); });
  }
  SimPod* PodOf(const std::string& uid) {
    for (SimPod& pod : pods_) {
      if (pod.pod.meta.uid == uid) return &pod;
    }
    return nullptr;
  }
  std::string Describe() const {
    std::string text = object_.dump() + "\nreplicas " + std::to_string(target_.replicas);
    for (const SimPod& pod : pods_)
      text +=
          "\npod " + pod.pod.meta.uid + (pod.frozen ? " frozen" : "") + (pod.pod.meta.terminating() ? " ending" : "") + " " + pod.pod.phase;
    for (const auto& [name, c] : checkpoints_)
      text += "\n" + name + " " + std::string(api::PhaseName(c.c.status.phase)) + (c.c.status.claim ? " claimed" : "") +
              (c.c.meta.terminating() ? " leaving" : "");
    return text;
  }

  // --- the world as it is
  World Look() {
    World w;
    object_["metadata"]["resourceVersion"] = std::to_string(object_version_);
    w.object = Share(api::SuspendedWorkload::FromJson(object_));
    kube::Workload target = target_;
    target.meta.resource_version = std::to_string(target_version_);
    target.pods = target.updated_pods = static_cast<int64_t>(pods_.size());
    w.target = Share(target);
    w.protection = {true, Share(api::RestorePolicy()), ""};
    for (const SimPod& pod : pods_) {
      Member member{Share(pod.pod), WebOwner(), Share(ReadyNode()), {}};
      for (const auto& [name, c] : checkpoints_) {
        if (c.c.spec.pod_uid == pod.pod.meta.uid) member.checkpoints.push_back(Share(c.c));
      }
      w.members.push_back(std::move(member));
    }
    for (const api::SuspendedPod& kept : w.object->status.checkpoints) {
      auto found = checkpoints_.find(kept.checkpoint.str());
      w.kept.push_back(found == checkpoints_.end() ? nullptr : Share(found->second.c));
    }
    for (const auto& [name, c] : checkpoints_) w.of_owner.push_back(Share(c.c));
    return w;
  }
  void Remember() {
    past_.push_back(Look());
    if (past_.size() > 6) past_.pop_front();
  }

  // --- who leads
  void Leader() {
    if (!late_.empty() && Dice(3) == 0) {
      auto write = std::move(late_.front());
      late_.pop_front();
      write();
      return;
    }
    World w = !past_.empty() && Dice(4) == 0 ? past_[static_cast<size_t>(Dice(static_cast<int>(past_.size())))] : Look();
    Step step = Next(w, now_);
    if (step.live) {
      World live = Look();
      if (live.object->meta.resource_version != w.object->meta.resource_version) return;
      w = std::move(live);
      step = Next(w, now_);
    }
    if (!calm_ && Dice(8) == 0) return;  // died
    auto write = [this, w, step] { Carry(w, step); };
    const bool may_be_late =
        step.action == Action::kPatchStatus || step.action == Action::kPatchTarget || step.action == Action::kCheckpoint;
    if (!calm_ && may_be_late && Dice(8) == 0) return void(late_.push_back(write));  // an old leader, of whom somebody else knows nothing
    write();
  }
  void Carry(const World& w, const Step& step) {
    switch (step.action) {
      case Action::kPatchPod:
        if (SimPod* pod = PodOf(step.pod->meta.uid)) {
          for (const auto& [key, value] : GetObject(step.patch, {"metadata", "annotations"}).items()) {
            if (value.is_string()) pod->pod.meta.annotations[key] = value.get<std::string>();
          }
        }
        return;
      case Action::kPatchObject:
        if (w.object->meta.resource_version != std::to_string(object_version_)) return;
        Want(GetString(step.patch, {"spec", "state"}));
        object_.merge_patch(step.patch);
        ++object_version_;
        return;
      case Action::kPatchStatus:
        if (w.object->meta.resource_version != std::to_string(object_version_)) return;
        if (GetString(step.patch, {"status", "phase"}) == "Suspended") ++slept_;
        if (!GetString(step.patch, {"status", "attempt", "reason"}).empty()) ++taken_back_;
        object_.merge_patch(step.patch);
        ++object_version_;
        return;
      case Action::kPatchTarget:
        if (w.target->meta.resource_version != std::to_string(target_version_)) return;
        for (const auto& [key, value] : GetObject(step.patch, {"metadata", "annotations"}).items()) {
          if (value.is_null()) {
            target_.meta.annotations.erase(key);
          } else {
            target_.meta.annotations[key] = value.get<std::string>();
          }
        }
        if (const Json* replicas = Find(step.patch, {"spec", "replicas"})) Scale(replicas->get<int64_t>(), false);
        ++target_version_;
        return;
      case Action::kCheckpoint:
        for (const auto& [pod, name] : step.names) {
          SimCheckpoint made;
          made.c = WebDrain(pod->meta.name, pod->meta.uid);
          made.c.meta.name = name;
          made.c.meta.uid = "ckpt-" + name;
          made.c.meta.creation_timestamp = FormatTime(now_);
          made.c.spec.trigger = api::IdledMark(w.object->meta) ? api::Trigger::kIdle : api::Trigger::kSuspend;
          checkpoints_.try_emplace(name, made);
        }
        return;
      case Action::kDiscard:
        for (const CheckpointPtr& c : step.checkpoints) {
          auto found = checkpoints_.find(c->meta.name);
          if (found != checkpoints_.end()) found->second.c.meta.deletion_timestamp = FormatTime(now_);
        }
        return;
      default:
        return;
    }
  }

  // --- everybody else
  void Scale(int64_t replicas, bool user) {
    if (user) {
      user_stopped_ = replicas == 0;
      if (api::AsleepMark(target_.meta) && replicas > 0) ++overridden_;
    } else if (replicas > 0) {
      user_stopped_ = false;
    }
    target_.replicas = replicas;
    stopped_by_us_ = !user && replicas == 0;
    if (!stopped_by_us_) return;
    for (SimPod& pod : pods_) {
      if (pod.pod.meta.terminating()) continue;
      EXPECT_TRUE(pod.frozen && Stored(pod.pod.meta.uid)) << "stopped a pod whose state is not stored\n" << Describe();
    }
  }
  bool Stored(const std::string& uid) const {
    return std::any_of(checkpoints_.begin(), checkpoints_.end(),
                       [&](const auto& c) { return c.second.c.spec.pod_uid == uid && Unclaimed(c.second.c); });
  }
  void Want(const std::string& state) {
    if (object_["spec"]["state"] == state) return;
    object_["spec"]["state"] = state;
    object_["metadata"]["generation"] = GetInt(object_, {"metadata", "generation"}) + 1;
    ++object_version_;
  }
  void User() {
    switch (Dice(8)) {
      case 0:
      case 1:
      case 2:
        return Want("Suspended");
      case 3:
        return Want("Running");
      case 4:
        Scale(Dice(4), true);
        ++target_version_;
        return;
      case 5:  // a pod is deleted, or evicted when it is frozen and stored
        if (!pods_.empty()) pods_[static_cast<size_t>(Dice(static_cast<int>(pods_.size())))].pod.meta.deletion_timestamp = FormatTime(now_);
        return;
      case 6: {
        auto c = checkpoints_.begin();
        if (checkpoints_.empty()) return;
        std::advance(c, Dice(static_cast<int>(checkpoints_.size())));
        c->second.c.meta.deletion_timestamp = FormatTime(now_);
        return;
      }
      default:
        now_ += std::chrono::seconds(Dice(300));  // nobody was there for a while
    }
  }
  void Agent() {
    for (SimPod& pod : pods_) {
      if (pod.frozen || calm_) continue;
      if (pod.quiet_since && Dice(8) == 0) pod.quiet_since.reset();
      if (!pod.quiet_since && Dice(6) == 0) pod.quiet_since = now_;
    }
    for (SimPod& pod : pods_) {
      // What it says may be late.
      if (pod.frozen || pod.pod.meta.Annotation(api::kIdleWatch).empty() || Dice(3) == 0) continue;
      pod.pod.conditions = {{api::kIdle, pod.quiet_since ? "True" : "False", pod.quiet_since ? "Idle" : "Active", "so it is",
                             FormatTime(pod.quiet_since.value_or(now_)), 0}};
    }
    for (auto it = checkpoints_.begin(); it != checkpoints_.end();) {
      SimCheckpoint& c = it->second;
      SimPod* pod = PodOf(c.c.spec.pod_uid);
      const bool alive = pod != nullptr && !pod->pod.meta.terminating();
      auto& phase = c.c.status.phase;
      if (c.c.meta.terminating()) {
        // Reclaimed where its pod is there, unless that is just being ended for it; never where somebody goes on from it.
        if (alive && GetBool(object_, {"status", "durable"}) && GetString(object_, {"status", "phase"}) == "Suspending") {
          ++it;
          continue;
        }
        if (alive && !c.c.status.claim) pod->frozen = false;
        it = checkpoints_.erase(it);
        continue;
      }
      ++it;
      if (c.c.done() || Dice(2) == 0) continue;
      if (!alive) {
        Fail(&c);
      } else if (phase == Phase::kPending && c.c.spec.trigger == api::Trigger::kIdle && !pod->quiet_since) {
        Fail(&c, api::reason::kNotIdle);
        ++used_again_;
      } else if (phase == Phase::kPending) {
        phase = Phase::kDumping;
        c.c.status.owner = WebOwner();
        pod->frozen = true;
        if (c.c.spec.trigger == api::Trigger::kIdle) ++idled_;
      } else if (!calm_ && Dice(6) == 0) {
        pod->frozen = false;
        Fail(&c);
      } else if (phase == Phase::kDumping) {
        phase = Phase::kReady;
        c.c.status.completed_at = FormatTime(now_);
        c.process = pod->process;
      }
    }
  }
  void Fail(SimCheckpoint* c, const char* reason = "DumpFailed") {
    c->c.status.phase = Phase::kFailed;
    c->c.status.completed_at = FormatTime(now_);
    c->c.status.conditions = {{"Ready", "False", reason, "no", FormatTime(now_), 1}};
  }
  // The owner's controller, the kubelet, the claim at the gate.
  void Owner() {
    if (Alive() > target_.replicas) {
      for (SimPod& pod : pods_) {
        if (!pod.pod.meta.terminating() && Alive() > target_.replicas) pod.pod.meta.deletion_timestamp = FormatTime(now_);
      }
    }
    // Its status shows what became of its pods, so they are of another version then.
    if (std::erase_if(pods_, [&](const SimPod& pod) { return pod.pod.meta.terminating() && (calm_ || Dice(2) == 0); }) > 0)
      ++target_version_;
    if (Alive() < target_.replicas) {
      ++target_version_;
      const std::string uid = "p" + std::to_string(++made_);
      SimPod pod{WebPod("web-" + std::to_string(made_), uid), 0, false};
      pod.pod.phase = "Pending";
      pods_.push_back(pod);
    }
    for (SimPod& pod : pods_) {
      if (pod.pod.phase == "Running" || pod.pod.meta.terminating()) continue;
      SimCheckpoint* best = nullptr;
      for (auto& [name, c] : checkpoints_) {
        const SimPod* old = PodOf(c.c.spec.pod_uid);
        if (!Unclaimed(c.c) || (old != nullptr && !old->pod.meta.terminating())) continue;
        if (best == nullptr || CompletedAt(c.c) > CompletedAt(best->c)) best = &c;
      }
      if (best != nullptr) {
        best->c.status.claim = api::Claim{pod.pod.meta.name, pod.pod.meta.uid, FormatTime(now_)};
        best->c.status.restores = {{pod.pod.meta.name, "node-a", FormatTime(now_), "Restored", "", 1}};
        pod.process = best->process;
        EXPECT_TRUE(restored_.insert(best->c.meta.uid).second) << "restored twice";
        for (const SimPod& other : pods_) {
          const bool twice = &other != &pod && other.process == pod.process && !other.frozen && !other.pod.meta.terminating();
          EXPECT_FALSE(twice) << "two copies of one process run\n" << Describe();
        }
      } else {
        pod.process = ++processes_;
      }
      pod.pod.phase = "Running";
    }
  }

  std::mt19937 random_;
  WallTime now_ = kStart;
  Json object_;
  kube::Workload target_;
  int object_version_ = 1, target_version_ = 1;
  std::vector<SimPod> pods_;
  std::map<std::string, SimCheckpoint> checkpoints_;
  std::deque<World> past_;
  std::deque<std::function<void()>> late_;
  std::set<std::string> restored_;
  bool stopped_by_us_ = false, user_stopped_ = false, calm_ = false;
  int made_ = 0, processes_ = 0, slept_ = 0, taken_back_ = 0, overridden_ = 0, idled_ = 0, used_again_ = 0;
};

TEST(SuspensionHistory, NothingIsLostOrRunsTwiceAndInTheEndAllOfItRuns) {
  int slept = 0, taken_back = 0, overridden = 0, idled = 0, used_again = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    history.Play();
    if (::testing::Test::HasFailure()) return;
    slept += history.slept();
    taken_back += history.taken_back();
    overridden += history.overridden();
    idled += history.idled();
    used_again += history.used_again();
  }
  // The histories are worth their time.
  EXPECT_GT(slept, 20);
  EXPECT_GT(taken_back, 20);
  EXPECT_GT(overridden, 2);
  EXPECT_GT(idled, 10);
  EXPECT_GT(used_again, 2);
}

}  // namespace
}  // namespace holdfast::reconcilers::suspendedworkload
