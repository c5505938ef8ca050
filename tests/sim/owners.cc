// The workloads of a world with every kind of owner, and their controllers as Kubernetes has them: pkg/controller/statefulset
// (stateful_set_control.go) and pkg/controller/job (job_controller.go); what they have beside this is not simulated.
#include <algorithm>

#include "api/checkpoint.h"
#include "base/time_format.h"
#include "tests/sim/kubernetes.h"

namespace holdfast::sim {
namespace {

using std::chrono::seconds;

constexpr char kTracking[] = "batch.kubernetes.io/job-tracking";
constexpr Duration kBackoff = seconds(10), kLongestBackoff = std::chrono::minutes(10);
constexpr Duration kPatience = std::chrono::minutes(3);  // of the user of a bare pod

std::string NameOf(const Json& object) { return GetString(object, {"metadata", "name"}); }
std::string UidOf(const Json& object) { return GetString(object, {"metadata", "uid"}); }
std::string PhaseOf(const Json& pod) { return GetString(pod, {"status", "phase"}); }
bool Terminating(const Json& object) { return !GetString(object, {"metadata", "deletionTimestamp"}).empty(); }
bool IsReady(const Json& pod) {
  for (const Json& one : GetArray(pod, {"status", "conditions"})) {
    if (GetString(one, {"type"}) == "Ready") return PhaseOf(pod) == "Running" && GetString(one, {"status"}) == "True";
  }
  return false;
}

Json Controller(const char* version, const char* kind, const Json& owner) {
  return Json::array({{{"apiVersion", version}, {"kind", kind}, {"name", NameOf(owner)}, {"uid", UidOf(owner)}, {"controller", true}}});
}

Json Spec(bool two, const char* policy, const std::string& work = "") {
  Json containers = Json::array();
  for (const char* name : {"main", "side"}) {
    if (!two && std::string_view(name) == "side") continue;
    Json one = {{"name", name}, {"image", std::string(name) + ":1"}};
    if (!work.empty()) one["args"] = {work};
    containers.push_back(std::move(one));
  }
  return {{"containers", std::move(containers)}, {"restartPolicy", policy}, {"terminationGracePeriodSeconds", 30}};
}

Json Meta(const std::string& name) { return {{"namespace", kUserNamespace}, {"name", name}, {"annotations", {{api::kProtect, "true"}}}}; }

}  // namespace

void Kubernetes::MakeOwners(int count, uint64_t seed) {
  MakeNamespaces();
  for (int i = 0; i < count; ++i) {
    Random random(seed * 131 + static_cast<uint64_t>(i));
    (void)random.Next();
    switch (random.Below(5)) {
      case 0:
      case 1:
        MakeStatefulSet(i, random);
        break;
      case 2:
        MakeJob(i, random);
        break;
      case 3:
        bare_["lab-" + std::to_string(i)];
        break;
      default:
        MakeDeployment(i, random.Chance(0.3));
    }
  }
}

void Kubernetes::MakeStatefulSet(int number, Random& random) {
  server_.Put("apps/statefulsets", {{"apiVersion", "apps/v1"},
                                    {"kind", "StatefulSet"},
                                    {"metadata", Meta("db-" + std::to_string(number))},
                                    {"spec",
                                     {{"replicas", random.Chance(0.3) ? 2 : 1},
                                      {"podManagementPolicy", random.Chance(0.3) ? "Parallel" : "OrderedReady"},
                                      {"template", {{"spec", Spec(random.Chance(0.3), "Always")}}}}}});
}

void Kubernetes::MakeJob(int number, Random& random) {
  const int64_t work = static_cast<int64_t>(300 + random.Below(random.Chance(0.5) ? 3000 : 18000));  // of ten a second
  const bool two = random.Chance(0.2);
  Json spec = {{"parallelism", 1},
               {"completions", 1},
               {"backoffLimit", random.Chance(0.5) ? 6 : 30},
               {"podReplacementPolicy", random.Chance(0.5) ? "Failed" : "TerminatingOrFailed"},
               {"template", {{"spec", Spec(two, random.Chance(0.5) ? "Never" : "OnFailure", std::to_string(work))}}}};
  server_.Put("batch/jobs", {{"apiVersion", "batch/v1"},
                             {"kind", "Job"},
                             {"metadata", Meta("job-" + std::to_string(number))},
                             {"spec", std::move(spec)},
                             {"status", Json::object()}});
}

int64_t Kubernetes::Wanted() const {
  int64_t wanted = static_cast<int64_t>(bare_.size());
  for (const char* kind : {"apps/replicasets", "apps/statefulsets"}) {
    for (const ApiServer::Object& one : server_.All(kind)) wanted += GetInt(*one, {"spec", "replicas"});
  }
  for (const ApiServer::Object& job : server_.All("batch/jobs")) wanted += GetArray(*job, {"status", "conditions"}).empty() ? 1 : 0;
  return wanted;
}

std::vector<ApiServer::Object> Kubernetes::PodsOf(const std::string& owner) const {
  std::vector<ApiServer::Object> pods;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    for (const Json& one : GetArray(*pod, {"metadata", "ownerReferences"})) {
      if (GetString(one, {"uid"}) == owner) pods.push_back(pod);
    }
  }
  return pods;
}

int Kubernetes::Ask(const std::string& method, const std::string& path, const Json& body, const std::string& user) {
  kube::HttpRequest request;
  request.method = method;
  request.path = path;
  if (method == "PATCH") request.headers["content-type"] = "application/merge-patch+json";
  request.body = DumpJson(body);
  return server_.Handle(request, user).status;
}

// --- StatefulSets: in the order of their ordinals; one that is gone is made anew under its name -----------------------------------------

void Kubernetes::Order(const Json& set) {
  const std::string name = NameOf(set), user = "system:serviceaccount:kube-system:statefulset-controller";
  const bool in_order = GetString(set, {"spec", "podManagementPolicy"}) != "Parallel";
  for (int64_t i = 0; i < GetInt(set, {"spec", "replicas"}); ++i) {
    const std::string pod_name = name + "-" + std::to_string(i);
    const ApiServer::Object pod = server_.Find("pods", std::string(kUserNamespace) + "/" + pod_name);
    if (!pod) {
      Json spec = GetObject(set, {"spec", "template", "spec"});
      spec["hostname"] = pod_name;
      (void)Ask("POST", kPods,
                {{"apiVersion", "v1"},
                 {"kind", "Pod"},
                 {"metadata",
                  {{"name", pod_name},
                   {"labels",
                    {{"app", name},
                     {"controller-revision-hash", name + "-1"},
                     {"statefulset.kubernetes.io/pod-name", pod_name},
                     {"apps.kubernetes.io/pod-index", std::to_string(i)}}},
                   {"ownerReferences", Controller("apps/v1", "StatefulSet", set)}}},
                 {"spec", std::move(spec)}},
                user);
      if (in_order) return;
      continue;
    }
    if (PhaseOf(*pod) == "Failed" || PhaseOf(*pod) == "Succeeded") {
      if (!Terminating(*pod)) (void)Ask("DELETE", kPods + "/" + pod_name, {{"preconditions", {{"uid", UidOf(*pod)}}}}, user);
      if (in_order) return;
      continue;
    }
    if (in_order && (Terminating(*pod) || !IsReady(*pod))) return;
  }
}

// --- Jobs of one completion
// ---------------------------------------------------------------------------------------------------------------

void Kubernetes::Work(const Json& job) {
  const std::string name = NameOf(job), key = std::string(kUserNamespace) + "/" + name,
                    user = "system:serviceaccount:kube-system:job-controller";
  const bool only_failed = GetString(job, {"spec", "podReplacementPolicy"}) == "Failed",
             over = !GetArray(job, {"status", "conditions"}).empty();
  int64_t failed = GetInt(job, {"status", "failed"}), active = 0, terminating = 0;
  bool done = false;
  WallTime last;
  for (const ApiServer::Object& pod : PodsOf(UidOf(job))) {
    const std::string phase = PhaseOf(*pod);
    const bool ends = Terminating(*pod), ended = phase == "Failed" || phase == "Succeeded";
    const bool fails = phase == "Failed" || (!only_failed && ends && phase != "Succeeded");
    if (!ended && !ends) ++active;
    if (!ended && ends) ++terminating;
    done = done || phase == "Succeeded";
    const std::vector<Json> finalizers = GetArray(*pod, {"metadata", "finalizers"});
    if (!(fails || phase == "Succeeded" || over) || std::find(finalizers.begin(), finalizers.end(), kTracking) == finalizers.end())
      continue;
    if (fails && !over) ++failed;
    (void)Ask("PATCH", kPods + "/" + NameOf(*pod), {{"metadata", {{"finalizers", nullptr}}}}, user);
  }
  if (over) {
    // What still runs of a Job that has failed is deleted.
    for (const ApiServer::Object& pod : PodsOf(UidOf(job))) {
      if (PhaseOf(*pod) != "Failed" && PhaseOf(*pod) != "Succeeded" && !Terminating(*pod))
        (void)Ask("DELETE", kPods + "/" + NameOf(*pod), {{"preconditions", {{"uid", UidOf(*pod)}}}}, user);
    }
    return;
  }
  const bool too_many = failed > GetInt(job, {"spec", "backoffLimit"});
  const int64_t before = GetInt(job, {"status", "failed"});
  server_.Update("batch/jobs", key, [&](Json& now) {
    now["status"]["active"] = active;
    now["status"]["failed"] = failed;
    if (failed != before) now["status"]["lastFailure"] = FormatTime(turns_.Wall());
    if (done || too_many) now["status"]["conditions"] = {{{"type", done ? "Complete" : "Failed"}, {"status", "True"}}};
  });
  if (done || too_many) return tell_(name + (done ? " is complete" : " has failed"));
  if (active > 0 || (only_failed && terminating > 0) || failed != before) return;
  // After the n-th failure in a row: 10 s, 20 s, …
  if (const auto at = ParseTime(GetString(job, {"status", "lastFailure"})); at && failed > 0) {
    Duration backoff = kBackoff;
    for (int64_t i = 1; i < failed && backoff < kLongestBackoff; ++i) backoff *= 2;
    if (turns_.Wall() < *at + std::min<Duration>(backoff, kLongestBackoff)) return;
  }
  (void)Ask("POST", kPods,
            {{"apiVersion", "v1"},
             {"kind", "Pod"},
             {"metadata",
              {{"generateName", name + "-"},
               {"labels", {{"app", name}, {"batch.kubernetes.io/job-name", name}, {"batch.kubernetes.io/controller-uid", UidOf(job)}}},
               {"finalizers", {kTracking}},
               {"ownerReferences", Controller("batch/v1", "Job", job)}}},
             {"spec", GetObject(job, {"spec", "template", "spec"})}},
            user);
}

// --- pods that nobody owns
// ----------------------------------------------------------------------------------------------------------------

void Kubernetes::TendBarePods(const bool& closing) {
  while (!closing) {
    for (auto& [name, bare] : bare_) TendBarePod(name, bare);
    turns_.Pause(turns_.random().Between(seconds(1), seconds(5)));
  }
}

void Kubernetes::TendBarePod(const std::string& name, Bare& bare) {
  const ApiServer::Object pod = server_.Find("pods", std::string(kUserNamespace) + "/" + name);
  const bool waits = pod && !GetArray(*pod, {"spec", "schedulingGates"}).empty();
  if (bare.since == MonoTime() || (pod && !waits)) bare.since = turns_.Mono();
  if (pod) {
    bare.last = waits ? bare.last : UidOf(*pod);
    // Whoever waits for a state that does not come does without.
    if (waits && turns_.Mono() - bare.since > kPatience) DeletePod(name, false);
    return;
  }
  std::string from;
  for (const ApiServer::Object& c : server_.All("holdfast.dev/checkpoints")) {
    if (bare.last.empty() || GetString(*c, {"spec", "podRef", "uid"}) != bare.last) continue;
    const std::string phase = GetString(*c, {"status", "phase"});
    if (phase == "Failed" || phase == "Deleting" || Terminating(*c) || !GetString(*c, {"status", "claim", "podUID"}).empty()) continue;
    if (phase != "Ready" && turns_.Mono() - bare.since < kPatience) return;
    if (phase == "Ready") from = NameOf(*c);
  }
  if (turns_.Mono() - bare.since > kPatience) from.clear();
  Json meta = Meta(name);
  if (!from.empty()) meta["annotations"][api::kFromCheckpoint] = from;
  tell_("somebody makes " + name + (from.empty() ? "" : " anew, from " + from));
  if (Ask("POST", kPods, {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(meta)}, {"spec", Spec(false, "Always")}},
          "kubectl") != 201)
    return;
  const ApiServer::Object made = server_.Find("pods", std::string(kUserNamespace) + "/" + name);
  if (made && from.empty()) made_without_state(UidOf(*made));
}

// --- kubectl drain
// ------------------------------------------------------------------------------------------------------------------------

void Kubernetes::EmptyByName(const std::string& node, const bool& closing) {
  tell_("somebody drains " + node);
  Cordon(node, true);
  struct Pod {
    std::string uid;
    bool evicted = false;
  };
  while (!closing) {
    std::map<std::string, Pod> pods;
    for (const ApiServer::Object& pod : server_.All("pods")) {
      if (GetString(*pod, {"spec", "nodeName"}) == node) pods[NameOf(*pod)] = {UidOf(*pod), Terminating(*pod)};
    }
    if (pods.empty()) break;
    while (!pods.empty() && !closing) {
      for (auto at = pods.begin(); at != pods.end();) {
        const auto& [name, one] = *at;
        const ApiServer::Object pod = server_.Find("pods", std::string(kUserNamespace) + "/" + name);
        bool gone = one.evicted && (!pod || UidOf(*pod) != one.uid);
        if (!one.evicted) {
          const int status =
              Ask("POST", kPods + "/" + name + "/eviction",
                  {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", name}, {"namespace", kUserNamespace}}}},
                  "kubectl");
          at->second.evicted = status == 201;
          gone = status != 201 && status != 429;  // gone already; or kubectl gives up, and its user begins anew
        }
        at = gone ? pods.erase(at) : std::next(at);
      }
      if (!pods.empty()) turns_.Pause(seconds(5));
    }
    turns_.Pause(seconds(1));
  }
  tell_(node + " is empty");
}

}  // namespace holdfast::sim
