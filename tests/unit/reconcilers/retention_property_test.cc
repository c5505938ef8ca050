// Random histories of pods, workloads, policies and checkpoints, with retention at work in them. What must not go is told here anew, from
// the objects themselves, and not by the code under test.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "api/stores.h"
#include "reconcilers/restorepolicy/survey.h"
#include "tests/this_commit.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

using api::Checkpoint;
using api::Phase;
using api::Trigger;
using std::chrono::hours;
using std::chrono::seconds;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr int kHistories = 10'000, kParts = 8, kSteps = 24;

// Three workloads, two namespaces: a Deployment of replicas, a StatefulSet, a bare pod.
struct App {
  const char *ns, *kind, *name;
};
constexpr App kApps[] = {{"default", "Deployment", "web"}, {"other", "StatefulSet", "db"}, {"default", "Pod", "lone"}};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    for (const App& app : kApps) MakeWorkload(app);
    for (const char* name : {"p", "q"}) SetPolicy(name);
    for (int i = 0; i < 6; ++i) StartPod();
    for (auto& [uid, pod] : pods_) {
      pod.phase = "Running";
      pod.scheduling_gates.clear();
    }
  }

  std::mt19937_64& random() { return random_; }
  size_t Below(size_t n) { return n == 0 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Chance(int percent) { return Below(100) < static_cast<size_t>(percent); }
  WallTime now() const { return now_; }
  const std::map<std::string, Checkpoint>& checkpoints() const { return checkpoints_; }
  const std::map<std::string, api::RestorePolicy>& policies() const { return policies_; }
  const std::map<std::string, int64_t>& quotas() const { return quotas_; }

  // One thing happens.
  void Step() {
    now_ += seconds(1 + Below(600));
    switch (Below(16)) {
      case 0:
      case 1:
        return StartPod();
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        if (Chance(20)) return BeginCut();
        Begin();
        return Chance(80) ? Finish() : void();
      case 7:
        return Finish();
      case 8:
        return EndPod();
      case 9:
        return Claim();
      case 10:
        return RunClaimant();
      case 11:
        return ChangeWorkload();
      case 12:
        return Touch();
      case 13:
        return SetPolicy(Chance(50) ? "p" : "q");
      case 14:
        now_ += hours(Below(60));
        return;
      default:
        return SetQuota();
    }
  }

  // As an API server would show it, in any order.
  FakeView Show(bool shuffled) {
    FakeView view;
    for (const auto& [uid, pod] : pods_) view.pods.push_back(Share(pod));
    for (const auto& [uid, c] : checkpoints_) view.checkpoints.push_back(Share(c));
    for (const auto& [key, policy] : policies_) view.policies.push_back(Share(policy));
    for (const auto& [key, workload] : workloads_) view.workloads[key] = Share(workload);
    for (const auto& [ns, quota] : quotas_) {
      kube::Namespace space;
      space.meta.name = ns;
      space.meta.annotations[api::kQuota] = std::to_string(quota);
      view.namespaces.push_back(Share(space));
    }
    if (shuffled) {
      std::shuffle(view.pods.begin(), view.pods.end(), random_);
      std::shuffle(view.checkpoints.begin(), view.checkpoints.end(), random_);
      std::shuffle(view.policies.begin(), view.policies.end(), random_);
    }
    return view;
  }
  Plan PlanNow(int64_t excess, bool shuffled = false) {
    const FakeView view = Show(shuffled);
    Seen seen = Survey(view, {"default", "other"}, 0, now_);
    seen.excess_bytes[api::kDefaultStore] = excess;
    return MakePlan(std::move(seen), now_);
  }

  void Remove(const std::string& uid) { checkpoints_.erase(uid); }
  void BeginDeletion(const std::string& uid) { checkpoints_.at(uid).meta.deletion_timestamp = FormatTime(now_); }
  void Mark(const Plan& plan) {
    for (const Subject* s : plan.orphaned)
      checkpoints_.at(s->uid).status.conditions.push_back({kOrphanedCondition, "True", "OwnerGone", "", FormatTime(now_), 1});
    for (const Subject* s : plan.adopted) kube::RemoveCondition(checkpoints_.at(s->uid).status.conditions, kOrphanedCondition);
  }

  // --- what must not go ---------------------------------------------------------------------------------------------------------------
  const kube::Pod* PodOf(const std::string& uid) const {
    auto found = pods_.find(uid);
    return found == pods_.end() ? nullptr : &found->second;
  }
  static bool Own(const Checkpoint& c) { return c.status.claim && c.status.claim->pod_uid == c.spec.pod_uid; }
  bool Good(const Checkpoint& c) const { return c.status.phase == Phase::kReady && !Own(c) && !c.meta.terminating() && CutIsWhole(c); }
  // Those that are good only together, itself among them.
  std::vector<const Checkpoint*> Together(const Checkpoint& c) const {
    std::vector<const Checkpoint*> those;
    if (c.spec.cut.none()) return {&c};
    for (const auto& [uid, other] : checkpoints_) {
      if (other.spec.cut.id == c.spec.cut.id) those.push_back(&other);
    }
    return those;
  }
  bool CutIsBroken(const Checkpoint& c) const {
    const auto those = Together(c);
    return those.size() < c.spec.cut.members.size() || std::any_of(those.begin(), those.end(), [](const Checkpoint* o) {
             return o->status.phase == Phase::kFailed || o->meta.terminating();
           });
  }
  bool CutIsWhole(const Checkpoint& c) const {
    const auto those = Together(c);
    return c.spec.cut.none() || (!CutIsBroken(c) && std::all_of(those.begin(), those.end(),
                                                                [](const Checkpoint* o) { return o->status.phase == Phase::kReady; }));
  }
  bool WorkloadExists(const Checkpoint& c) const {
    if (c.status.owner.kind == "Pod") {
      return std::any_of(pods_.begin(), pods_.end(), [&](const auto& p) { return p.second.meta.name == c.status.owner.name.str(); });
    }
    return workloads_.contains(c.status.owner.kind.str() + "/" + c.status.owner.name.str());
  }
  // No good one that `same` holds for is newer.
  template <class Same>
  bool Newest(const Checkpoint& c, Same same) const {
    return Good(c) && std::none_of(checkpoints_.begin(), checkpoints_.end(), [&](const auto& other) {
             return Good(other.second) && same(other.second) && CompletedAt(other.second) > CompletedAt(c);
           });
  }
  bool LastGood(const Checkpoint& c) const {
    auto same_seat = [&](const Checkpoint& o) {
      return o.meta.ns == c.meta.ns && o.status.owner.kind == c.status.owner.kind && o.status.owner.name == c.status.owner.name &&
             o.status.owner.ordinal == c.status.owner.ordinal;
    };
    if (WorkloadExists(c) && Newest(c, same_seat)) return true;
    auto same_pod = [&](const Checkpoint& o) { return o.spec.pod_uid == c.spec.pod_uid; };
    if (PodOf(c.spec.pod_uid) != nullptr && Newest(c, same_pod)) return true;
    if (!c.status.claim || Own(c) || PodOf(c.status.claim->pod_uid) == nullptr) return false;
    const std::string heir = c.status.claim->pod_uid;
    const bool has_own = std::any_of(checkpoints_.begin(), checkpoints_.end(),
                                     [&](const auto& o) { return Good(o.second) && o.second.spec.pod_uid == heir; });
    return !has_own && Newest(c, [&](const Checkpoint& o) { return o.status.claim && o.status.claim->pod_uid == heir; });
  }
  bool ClaimedBeforeItsPodRuns(const Checkpoint& c) const {
    if (!c.status.claim || Own(c)) return false;
    const kube::Pod* heir = PodOf(c.status.claim->pod_uid);
    if (heir != nullptr && heir->phase != "Failed") return heir->phase == "Pending";
    return c.status.restores.empty();  // it never said what became of it
  }
  bool Frozen(const Checkpoint& c) const {
    return c.spec.final && c.status.phase == Phase::kReady && !c.status.claim && PodOf(c.spec.pod_uid) != nullptr;
  }
  std::string MustStay(const Checkpoint& c) const {
    if (const std::string why = MustStayAlone(c); !why.empty() || c.spec.cut.none() || !CutIsWhole(c)) return why;
    for (const Checkpoint* o : Together(c)) {
      if (const std::string why = MustStayAlone(*o); !why.empty()) return "of one cut with " + o->meta.name + ": " + why;
    }
    return "";
  }
  std::string MustStayAlone(const Checkpoint& c) const {
    if (c.spec.pinned) return "pinned";
    if (c.status.phase != Phase::kReady && c.status.phase != Phase::kFailed) return "under way";
    if (c.status.phase == Phase::kReady && !c.spec.cut.none() && !CutIsBroken(c) && !CutIsWhole(c)) return "its cut is under way";
    if (ClaimedBeforeItsPodRuns(c)) return "claimed";
    if (Frozen(c)) return "its pod is frozen";
    if (LastGood(c)) return "last good";
    return "";
  }
  // Whether what the plan calls a protection is one.
  bool Justified(const Stay& stay) const {
    const Checkpoint& c = checkpoints_.at(stay.subject->uid);
    if (Justified(stay.keep, c)) return true;
    const auto those = Together(c);
    return !c.spec.cut.none() && CutIsWhole(c) &&
           std::any_of(those.begin(), those.end(), [&](const Checkpoint* o) { return Justified(stay.keep, *o); });
  }
  bool Justified(Keep keep, const Checkpoint& c) const {
    const kube::Pod* pod = PodOf(c.spec.pod_uid);
    const api::Condition* orphaned = kube::FindCondition(c.status.conditions, kOrphanedCondition);
    switch (keep) {
      case Keep::kHoldsPod:
        return c.spec.final && pod != nullptr;
      case Keep::kAwaited:
        return Good(c) && !c.status.claim && (WorkloadExists(c) || AskedFor(c));
      case Keep::kLastGood:
        // A workload that is gone for a moment may be made anew.
        return LastGood(c) || (Good(c) && !WorkloadExists(c) &&
                               (orphaned == nullptr || now_ - *ParseTime(orphaned->last_transition_time) < kOrphanSettles));
      case Keep::kPassedOn:
        return c.status.claim && !Own(c) && (pod != nullptr || std::any_of(checkpoints_.begin(), checkpoints_.end(), [&](const auto& o) {
                                               return o.second.spec.pod_uid == c.spec.pod_uid && Good(o.second) && !o.second.status.claim;
                                             }));
      default:
        return !MustStay(c).empty();
    }
  }

 private:
  bool AskedFor(const Checkpoint& c) const {
    return std::any_of(pods_.begin(), pods_.end(),
                       [&](const auto& p) { return p.second.meta.Annotation(api::kFromCheckpoint) == c.meta.name; });
  }
  std::string NewUid(const char* what) { return std::string(what) + std::to_string(++made_); }
  template <class Map, class Fn>
  auto Pick(Map& map, Fn fits) -> decltype(&map.begin()->second) {
    std::vector<decltype(&map.begin()->second)> those;
    for (auto& [key, value] : map) {
      if (fits(value)) those.push_back(&value);
    }
    return those.empty() ? nullptr : those[Below(those.size())];
  }
  static App AppOf(const kube::Pod& pod) {
    for (const App& app : kApps) {
      if (pod.meta.labels.at("app") == app.name) return app;
    }
    return kApps[0];
  }

  void MakeWorkload(const App& app) {
    if (app.kind == std::string("Pod")) return;
    kube::Workload workload;
    workload.meta.ns = app.ns;
    workload.meta.name = app.name;
    workload.meta.uid = NewUid("workload");
    workload.meta.annotations[api::kPolicy] = Chance(70) ? "p" : "q";
    workload.replicas = 1 + static_cast<int64_t>(Below(3));
    if (app.kind == std::string("Deployment")) {
      kube::Workload set = workload;
      set.meta.name = std::string(app.name) + "-set";
      kube::OwnerReference owner;
      owner.kind = app.kind;
      owner.name = app.name;
      owner.uid = workload.meta.uid;
      owner.controller = true;
      set.meta.owners = {owner};
      workloads_["ReplicaSet/" + set.meta.name] = set;
    }
    workloads_[std::string(app.kind) + "/" + app.name] = workload;
  }
  void ChangeWorkload() {
    const App& app = kApps[Below(2)];
    if (!workloads_.contains(std::string(app.kind) + "/" + app.name)) return MakeWorkload(app);
    if (!Chance(30)) return;
    workloads_.erase(std::string(app.kind) + "/" + app.name);
    workloads_.erase("ReplicaSet/" + std::string(app.name) + "-set");
    std::erase_if(pods_, [&](const auto& pod) { return pod.second.meta.labels.at("app") == app.name; });
  }
  void SetPolicy(const std::string& name) {
    for (const char* ns : {"default", "other"}) {
      const std::string key = std::string(ns) + "/" + name;
      if (name == "q" && Chance(10)) {
        policies_.erase(key);
        continue;
      }
      api::RestorePolicy policy;
      policy.meta.ns = ns;
      policy.meta.name = name;
      auto& retention = policy.spec.retention;
      retention.keep_last = 1 + static_cast<int64_t>(Below(4));
      if (Chance(30)) retention.keep_within = hours(1 + Below(48));
      if (Chance(30)) retention.keep_daily = 1 + static_cast<int64_t>(Below(4));
      if (Chance(30)) retention.max_bytes = 1 + static_cast<int64_t>(Below(60));
      retention.keep_orphans = hours(1 + Below(48));
      retention.dry_run = Chance(5);
      policies_[key] = policy;
    }
  }
  void SetQuota() {
    const std::string ns = Chance(50) ? "default" : "other";
    quotas_.erase(ns);
    if (Chance(50)) quotas_[ns] = 1 + static_cast<int64_t>(Below(80));
  }

  void StartPod() {
    const App& app = kApps[Below(3)];
    const bool bare = app.kind == std::string("Pod");
    if (!bare && !workloads_.contains(std::string(app.kind) + "/" + app.name)) return;
    const std::string ordinal = std::to_string(Below(2)), uid = NewUid("pod");
    std::string name = app.name;
    if (app.kind == std::string("StatefulSet")) name += "-" + ordinal;
    if (app.kind == std::string("Deployment")) name += "-" + uid;
    if (Pick(pods_, [&](const kube::Pod& p) { return p.meta.name == name; }) != nullptr) return;
    kube::Pod pod = WebPod(name, uid);
    pod.meta.ns = app.ns;
    pod.meta.labels["app"] = app.name;
    pod.meta.owners.clear();
    if (bare) pod.meta.annotations[api::kPolicy] = "p";
    if (!bare) {
      kube::OwnerReference owner;
      const bool set = app.kind == std::string("StatefulSet");
      owner.kind = set ? "StatefulSet" : "ReplicaSet";
      owner.name = set ? std::string(app.name) : std::string(app.name) + "-set";
      owner.uid = workloads_.at(std::string(owner.kind.str()) + "/" + owner.name.str()).meta.uid;
      owner.controller = true;
      pod.meta.owners = {owner};
    }
    if (Chance(60)) {
      pod.phase = "Pending";
      pod.scheduling_gates = {api::kClaimGate};
    }
    pods_[uid] = pod;
  }
  void EndPod() {
    kube::Pod* pod = Pick(pods_, [](const kube::Pod&) { return true; });
    if (pod == nullptr) return;
    switch (Below(4)) {
      case 0:
        pod->meta.deletion_timestamp = FormatTime(now_);
        return;
      case 1:
        pod->phase = "Failed";
        return;
      default:
        pods_.erase(std::string(pod->meta.uid));
    }
  }

  void Begin() {
    if (const kube::Pod* pod = Pick(pods_, [](const kube::Pod& p) { return p.phase == "Running"; })) Begin(pod);
  }
  Checkpoint* Begin(const kube::Pod* pod) {
    const App app = AppOf(*pod);
    Checkpoint c;
    c.meta.ns = pod->meta.ns;
    c.meta.uid = c.meta.name = NewUid("c");
    c.meta.creation_timestamp = FormatTime(now_);
    c.spec.pod_name = pod->meta.name;
    c.spec.pod_uid = pod->meta.uid;
    constexpr Trigger kTriggers[] = {Trigger::kDrain, Trigger::kInterval, Trigger::kInterval, Trigger::kManual};
    c.spec.trigger = kTriggers[Below(4)];
    c.spec.final = c.spec.trigger == Trigger::kDrain;
    if (Chance(5)) c.spec.pinned = true;
    if (Chance(15)) c.spec.ttl = hours(1 + Below(72));
    c.status.phase = Phase::kStoring;
    c.status.owner = {app.kind, app.name, "uid", "h1", ""};
    if (app.kind == std::string("StatefulSet")) c.status.owner.ordinal = pod->meta.name.substr(pod->meta.name.rfind('-') + 1);
    c.status.policy = Chance(70) ? "p" : "q";
    checkpoints_[c.meta.uid] = c;
    return &checkpoints_.at(c.meta.uid);
  }
  // Of some pods of a namespace, at once.
  void BeginCut() {
    std::vector<Checkpoint*> those;
    const kube::Pod* first = Pick(pods_, [](const kube::Pod& p) { return p.phase == "Running"; });
    if (first == nullptr) return;
    for (const auto& [uid, pod] : pods_) {
      if (pod.phase != "Running" || pod.meta.ns != first->meta.ns || Chance(30)) continue;
      Checkpoint* c = Begin(&pod);
      if (c->spec.final) c->spec.trigger = Trigger::kInterval;
      c->spec.final = false;
      those.push_back(c);
    }
    if (those.empty()) return;
    api::Cut cut{"ring", those[0]->meta.uid, {}};
    for (const Checkpoint* c : those) cut.members.push_back({c->spec.pod_name, c->spec.pod_uid, c->meta.name});
    for (Checkpoint* c : those) {
      c->spec.cut = cut;
      if (Chance(85)) End(c);
    }
  }
  void Finish() {
    Checkpoint* c = Pick(checkpoints_, [](const Checkpoint& o) { return o.status.phase == Phase::kStoring && !o.meta.terminating(); });
    if (c != nullptr) End(c);
  }
  void End(Checkpoint* c) {
    c->status.phase = Chance(85) ? Phase::kReady : Phase::kFailed;
    c->status.completed_at = FormatTime(now_);
    if (c->status.phase == Phase::kReady) c->status.stored_bytes = static_cast<int64_t>(Below(20));
  }
  void Claim() {
    Checkpoint* c = Pick(checkpoints_, [this](const Checkpoint& o) { return Good(o) && !o.status.claim; });
    if (c == nullptr) return;
    if (const kube::Pod* own = PodOf(c->spec.pod_uid); own != nullptr && c->spec.final && Chance(30)) {  // it is thawed
      c->status.claim = api::Claim{own->meta.name, own->meta.uid, FormatTime(now_)};
      return;
    }
    kube::Pod* heir = Pick(pods_, [&](const kube::Pod& p) {
      return p.phase == "Pending" && p.meta.ns == c->meta.ns && AppOf(p).name == c->status.owner.name.str() &&
             p.meta.uid != c->spec.pod_uid && std::none_of(checkpoints_.begin(), checkpoints_.end(), [&](const auto& o) {
               return o.second.status.claim && o.second.status.claim->pod_uid == p.meta.uid;
             });
    });
    if (heir == nullptr) return;
    if (Chance(10)) heir->meta.annotations[api::kFromCheckpoint] = c->meta.name;
    c->status.claim = api::Claim{heir->meta.name, heir->meta.uid, FormatTime(now_)};
  }
  void RunClaimant() {
    kube::Pod* heir = Pick(pods_, [](const kube::Pod& p) { return p.phase == "Pending"; });
    if (heir == nullptr) return;
    heir->phase = "Running";
    heir->scheduling_gates.clear();
    for (auto& [uid, c] : checkpoints_) {
      if (c.status.claim && c.status.claim->pod_uid == heir->meta.uid)
        c.status.restores.push_back({heir->meta.name, "node-b", FormatTime(now_), Chance(80) ? "Restored" : "ColdStart", "", 1});
    }
  }
  // A user does something to a checkpoint, or the controller gives an abandoned claim up.
  void Touch() {
    Checkpoint* c = Pick(checkpoints_, [](const Checkpoint&) { return true; });
    if (c == nullptr) return;
    switch (Below(5)) {
      case 0:
        c->spec.pinned = !c->spec.pinned;
        return;
      case 1:
        c->spec.ttl = hours(1 + Below(72));
        return;
      case 2:
        return BeginDeletion(c->meta.uid);
      case 3:
        if (c->meta.terminating()) Remove(c->meta.uid);
        return;
      default:
        if (c->status.claim && !Own(*c) && PodOf(c->status.claim->pod_uid) == nullptr && c->status.restores.empty())
          c->status.claim.reset();
    }
  }

  std::mt19937_64 random_;
  WallTime now_ = kStart;
  int made_ = 0;
  std::map<std::string, kube::Pod> pods_;  // by uid
  std::map<std::string, Checkpoint> checkpoints_;
  std::map<std::string, kube::Workload> workloads_;  // by kind/name
  std::map<std::string, api::RestorePolicy> policies_;
  std::map<std::string, int64_t> quotas_;
};

std::string Text(const Plan& plan) {
  std::string text;
  for (const Removal& drop : plan.drops) text += drop.subject->name + " goes: " + std::string(DropName(drop.why)) + ", " + drop.text + "\n";
  for (const Stay& stay : plan.stays) text += stay.subject->name + " stays: " + std::string(KeepName(stay.keep)) + ", " + stay.text + "\n";
  return text;
}

void NothingGoesThatMustStay(const History& history, const Plan& plan) {
  std::set<std::string> gone;
  for (const Removal& drop : plan.drops) {
    const Checkpoint& c = history.checkpoints().at(drop.subject->uid);
    EXPECT_EQ(history.MustStay(c), "") << c.meta.name << " goes: " << drop.text;
    EXPECT_FALSE(c.meta.terminating());
    EXPECT_TRUE(gone.insert(c.meta.uid).second) << c.meta.name << " goes twice";
  }
  for (const std::string& uid : gone) {
    const Checkpoint& c = history.checkpoints().at(uid);
    if (c.spec.cut.none() || !history.CutIsWhole(c)) continue;
    for (const Checkpoint* o : history.Together(c))
      EXPECT_TRUE(gone.contains(o->meta.uid)) << c.meta.name << " goes without " << o->meta.name;
  }
  for (const Stay& stay : plan.stays) {
    EXPECT_TRUE(!Protects(stay.keep) || history.Justified(stay)) << stay.subject->name << ": " << KeepName(stay.keep);
  }
}

// Within `limit`, or all that is left and counts is protected.
template <class Has>
void LimitIsMet(const Plan& plan, const char* what, int64_t limit, Has has) {
  int64_t left = 0;
  bool protects = true;
  for (const Stay& stay : plan.stays) {
    if (!has(*stay.subject)) continue;
    left += stay.subject->bytes;
    protects &= stay.subject->bytes == 0 || Protects(stay.keep);
  }
  EXPECT_TRUE(left <= limit || protects) << what << ": " << left << " of " << limit << "\n" << Text(plan);
}
void LimitsAreMet(const History& history, const Plan& plan, int64_t excess) {
  for (const auto& [key, policy] : history.policies()) {
    const auto& retention = policy.spec.retention;
    if (retention.max_bytes == 0 || retention.dry_run) continue;
    LimitIsMet(plan, "maxBytes", retention.max_bytes, [&, &key = key](const Subject& s) { return s.ns + "/" + s.policy == key; });
  }
  for (const auto& [ns, quota] : history.quotas()) {
    LimitIsMet(plan, "quota", quota, [&, &ns = ns](const Subject& s) { return s.ns == ns; });
  }
  if (excess <= 0) return;
  const int64_t all =
      std::accumulate(plan.subjects.begin(), plan.subjects.end(), int64_t{0}, [](int64_t sum, const Subject& s) { return sum + s.bytes; });
  LimitIsMet(plan, "volume", all - excess, [](const Subject&) { return true; });
}

// Carries plans out, `at_once` deletions at a time, until none is left; returns who is left. Nothing else happens meanwhile.
std::set<std::string> Settled(History history, int64_t excess, size_t at_once) {
  for (int round = 0; round < 1000; ++round) {
    const Plan plan = history.PlanNow(excess);
    if (plan.drops.empty()) break;
    for (size_t i = 0; i < plan.drops.size() && i < at_once; ++i) {
      history.Remove(plan.drops[i].subject->uid);
      excess -= plan.drops[i].subject->bytes;
    }
  }
  std::set<std::string> left;
  for (const auto& [uid, c] : history.checkpoints()) left.insert(uid);
  EXPECT_TRUE(history.PlanNow(excess).drops.empty());
  return left;
}

// Parts of the histories, so that a machine's cores share them.
class RetentionHistories : public ::testing::TestWithParam<int> {};

TEST_P(RetentionHistories, NeverDeleteWhatMustStayMeetTheLimitsThatAllowItAndKnowNoOrder) {
  if (holdfast::testing::IsLeftToOtherCommits(static_cast<size_t>(GetParam()), 4)) GTEST_SKIP() << "make test-all runs it";
  size_t dropped = 0, protections = 0;
  for (int seed = GetParam(); seed < kHistories && !HasFailure(); seed += kParts) {
    SCOPED_TRACE("history " + std::to_string(seed));
    History history(static_cast<uint64_t>(seed));
    for (int step = 0; step < kSteps; ++step) {
      history.Step();
      if (!history.Chance(20)) continue;
      const int64_t excess = history.Chance(20) ? static_cast<int64_t>(history.Below(60)) : 0;
      const Plan plan = history.PlanNow(excess);
      NothingGoesThatMustStay(history, plan);
      LimitsAreMet(history, plan, excess);
      dropped += plan.drops.size();
      for (const Stay& stay : plan.stays) protections += Protects(stay.keep) ? 1 : 0;
      // The leader may die after any deletion; content goes later than the deletion is asked for.
      history.Mark(plan);
      const size_t done = history.Below(plan.drops.size() + 1);
      for (size_t i = 0; i < done; ++i) {
        if (history.Chance(30)) {
          history.BeginDeletion(plan.drops[i].subject->uid);
        } else {
          history.Remove(plan.drops[i].subject->uid);
        }
      }
    }
    const int64_t excess = static_cast<int64_t>(history.Below(40));
    EXPECT_EQ(Text(history.PlanNow(excess)), Text(history.PlanNow(excess, /*shuffled=*/true)));
  }
  EXPECT_GT(dropped, size_t{kHistories / kParts}) << "the histories give retention nothing to do";
  EXPECT_GT(protections, size_t{kHistories / kParts});
}
INSTANTIATE_TEST_SUITE_P(Part, RetentionHistories, ::testing::Range(0, kParts));

TEST(RetentionProperty, ManyDeletionsAtOnceOrOneAtATimeLeaveTheSame) {
  for (int seed = 0; seed < kHistories / 40 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("history " + std::to_string(seed));
    History history(static_cast<uint64_t>(seed) << 40);
    for (int step = 0; step < kSteps; ++step) history.Step();
    const int64_t excess = static_cast<int64_t>(history.Below(40));
    const auto all = Settled(history, excess, SIZE_MAX);
    EXPECT_EQ(all, Settled(history, excess, 1));
    EXPECT_EQ(all, Settled(history, excess, 3));
  }
}

// A series of one pod, and retention that looks after each of them, now and then, or only in the end.
TEST(RetentionProperty, HowOftenItLooksDoesNotChangeWhatIsLeft) {
  for (int seed = 0; seed < kHistories / 20 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("history " + std::to_string(seed));
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
    Rules rules;
    rules.keep_last = 1 + static_cast<int64_t>(below(5));
    if (seed % 2 == 0) {
      rules.keep_daily = static_cast<int64_t>(below(5));
      if (below(2) == 0) rules.keep_within = hours(1 + below(100));
    } else {
      rules.max_bytes = static_cast<int64_t>(1 + below(40));
    }
    std::vector<Subject> always, rarely, once;
    auto look = [&](std::vector<Subject>* all, WallTime now) {
      Seen seen;
      seen.subjects = *all;
      seen.policies["default/p"] = rules;
      seen.pods = {"pod"};
      std::set<std::string> gone;
      const Plan plan = MakePlan(std::move(seen), now);
      for (const Removal& drop : plan.drops) gone.insert(drop.subject->name);
      std::erase_if(*all, [&](const Subject& s) { return gone.contains(s.name); });
    };
    WallTime now = kStart;
    for (int i = 0; i < 20; ++i) {
      now += seconds(1 + below(20 * 3600));
      Subject s;
      s.ns = "default";
      s.name = s.uid = "c" + std::to_string(i);
      s.policy = "p";
      s.workload = "StatefulSet/db/0";
      s.pod_uid = "pod";
      s.at = now;
      s.bytes = static_cast<int64_t>(below(10));
      s.good = s.workload_exists = true;
      for (auto* all : {&always, &rarely, &once}) all->push_back(s);
      look(&always, now);
      if (below(3) == 0) look(&rarely, now);
    }
    auto names = [&](std::vector<Subject>* all) {
      look(all, now);
      std::set<std::string> left;
      for (const Subject& s : *all) left.insert(s.name);
      return left;
    };
    const auto in_the_end = names(&once);
    EXPECT_EQ(names(&always), in_the_end);
    EXPECT_EQ(names(&rarely), in_the_end);
  }
}

}  // namespace
}  // namespace holdfast::reconcilers::restorepolicy
