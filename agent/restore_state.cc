#include "agent/restore_state.h"

#include <algorithm>
#include <array>

#include "api/checkpoint.h"
#include "api/security.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr std::array<std::string_view, 5> kPhases = {"Waiting", "Fetching", "Ready", "Cold", "Failed"};
constexpr std::array<std::string_view, 5> kStates = {"Pending", "Trying", "Restored", "Cold", "Failed"};

template <class Enum, size_t N>
bool Read(const std::array<std::string_view, N>& names, const std::string& text, Enum* out) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return *out = static_cast<Enum>(i), true;
  }
  return false;
}

runtime::CreateAnswer Answer(const std::string& action, const std::string& reason) {
  runtime::CreateAnswer answer;
  answer.action = action;
  answer.reason = reason;
  return answer;
}

const kube::Container* Named(const std::vector<kube::Container>& containers, const std::string& name) {
  for (const kube::Container& container : containers) {
    if (container.name == name) return &container;
  }
  return nullptr;
}

bool MayTryAgain(const RestoreState& state, const RestoreContainer& c) {
  return state.options.on_failure == api::OnFailure::kRetry || c.attempts < state.options.attempts;
}

// While containers are still to be restored, whatever starts beside them finds the pod's volumes filled (runtime/volumes.h), also an init
// container that runs again. Nothing of the pod runs in one that is skipped.
void AddVolumes(const RestoreState& state, const kube::Pod& pod, const Layout& layout, const std::string& container,
                runtime::CreateAnswer* answer) {
  answer->more = false;
  answer->first = true;
  for (const auto& [name, c] : state.containers) {
    if (name != container && (c.state == ContainerRestore::kPending || c.state == ContainerRestore::kTrying)) answer->more = true;
    if (c.state == ContainerRestore::kRestored) answer->first = false;
  }
  const bool beside = answer->action == "cold" && answer->more && state.phase == RestoreState::Phase::kReady;
  if (answer->action != "restore" && !beside) return;
  answer->dir = layout.RestoreFolder(state.pod_uid);
  for (const kube::Volume& volume : pod.volumes) {
    if (volume.type == "emptyDir" && std::find(state.volumes.begin(), state.volumes.end(), volume.name) != state.volumes.end()) {
      answer->volumes.push_back({volume.name, layout.EmptyDir(state.pod_uid, volume.name)});
    }
  }
}

// There is no other try: what the pod's policy says happens then.
runtime::CreateAnswer GiveUp(const RestoreState& state, RestoreContainer& c, const std::string& why) {
  if (state.options.on_failure == api::OnFailure::kColdStart) {
    c.state = ContainerRestore::kCold;
    return Answer("cold", why);
  }
  c.state = ContainerRestore::kFailed;
  return Answer("refuse", why + MustNotStartCold(state.options));
}

}  // namespace

std::string MustNotStartCold(const api::RestoreOptions& options) {
  return " (it does not start cold: restore.onFailure is " + std::string(api::OnFailureName(options.on_failure)) + ")";
}

Json RestoreState::ToJson() const {
  Json list = Json::object();
  for (const auto& [name, c] : containers) {
    list[name] = {{"state", kStates[static_cast<size_t>(c.state)]},
                  {"attempts", c.attempts},
                  {"id", c.id},
                  {"seconds", c.seconds},
                  {"message", c.message},
                  {"imageDigest", c.image_digest},
                  {"ran", c.ran}};
  }
  return {{"podUID", pod_uid},
          {"namespace", ns},
          {"pod", pod},
          {"checkpoint", checkpoint},
          {"checkpointUID", checkpoint_uid},
          {"fromNode", from_node},
          {"takenAt", taken_at},
          {"frozenMs", frozen_ms},
          {"fetchFailures", fetch_failures},
          {"phase", kPhases[static_cast<size_t>(phase)]},
          {"coldReason", why},
          {"options", options.ToJson()},
          {"containers", list},
          {"volumes", volumes},
          {"bootID", boot_id},
          {"started", started},
          {"reported", reported}};
}

Result<RestoreState> RestoreState::FromJson(const Json& json) {
  RestoreState s;
  s.pod_uid = GetString(json, {"podUID"});
  s.ns = GetString(json, {"namespace"});
  s.pod = GetString(json, {"pod"});
  s.checkpoint = GetString(json, {"checkpoint"});
  s.checkpoint_uid = GetString(json, {"checkpointUID"});
  if (!Read(kPhases, GetString(json, {"phase"}), &s.phase)) return Status(Code::kDataLoss, "not a restore state: unknown phase");
  const bool none_given = s.checkpoint.empty() && s.phase == Phase::kCold;
  for (const std::string* name : {&s.pod_uid, &s.ns, &s.pod, &s.checkpoint}) {
    if (none_given && name == &s.checkpoint) continue;
    if (!IsSafeName(*name)) return Status(Code::kDataLoss, "not a restore state: a name is missing or unsafe");
  }
  s.from_node = GetString(json, {"fromNode"});
  s.taken_at = GetString(json, {"takenAt"});
  s.frozen_ms = GetInt(json, {"frozenMs"});
  s.fetch_failures = static_cast<int>(GetInt(json, {"fetchFailures"}));
  s.why = GetString(json, {"coldReason"});
  s.options = api::RestoreOptions::FromJson(GetObject(json, {"options"}));
  s.started = GetBool(json, {"started"});
  s.reported = GetBool(json, {"reported"});
  s.boot_id = GetString(json, {"bootID"});
  for (const auto& [name, c] : GetObject(json, {"containers"}).items()) {
    RestoreContainer out;
    if (!IsSafeName(name) || !Read(kStates, GetString(c, {"state"}), &out.state)) {
      return Status(Code::kDataLoss, "not a restore state: a container cannot be read");
    }
    out.attempts = static_cast<int>(GetInt(c, {"attempts"}));
    out.id = GetString(c, {"id"});
    out.seconds = GetDouble(c, {"seconds"});
    out.message = GetString(c, {"message"});
    out.image_digest = GetString(c, {"imageDigest"});
    out.ran = GetBool(c, {"ran"});
    s.containers[name] = std::move(out);
  }
  for (const Json& v : GetArray(json, {"volumes"})) {
    if (v.is_string() && IsSafeName(v.get_ref<const std::string&>())) s.volumes.push_back(v.get<std::string>());
  }
  return s;
}

Status RestoreState::Save(const Layout& layout) const {
  if (!IsSafeName(pod_uid)) return Status(Code::kInvalidArgument, "unsafe pod uid");
  return WriteFileDurably(layout.RestoreFile(pod_uid), DumpJson(ToJson()));
}

Result<RestoreState> RestoreState::Load(const Layout& layout, const std::string& pod_uid) {
  if (!IsSafeName(pod_uid)) return Status(Code::kInvalidArgument, "unsafe pod uid");
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(layout.RestoreFile(pod_uid), 1 << 20));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  HF_ASSIGN_OR_RETURN(RestoreState state, FromJson(json));
  if (state.pod_uid != pod_uid) return Status(Code::kDataLoss, "restore state " + pod_uid + " is of another pod");
  return state;
}

bool RestoreState::settled() const {
  if (phase == Phase::kCold || phase == Phase::kFailed) return true;
  return phase == Phase::kReady && std::none_of(containers.begin(), containers.end(), [](const auto& c) {
           return c.second.state == ContainerRestore::kPending || c.second.state == ContainerRestore::kTrying;
         });
}

bool RestoreState::failed() const {
  return phase == Phase::kFailed ||
         std::any_of(containers.begin(), containers.end(), [](const auto& c) { return c.second.state == ContainerRestore::kFailed; });
}

bool RestoreState::restored() const {
  return phase == Phase::kReady && !containers.empty() &&
         std::all_of(containers.begin(), containers.end(), [](const auto& c) { return c.second.state == ContainerRestore::kRestored; });
}

double RestoreState::seconds() const {
  double longest = 0;
  for (const auto& [name, c] : containers) longest = std::max(longest, c.seconds);
  return longest;
}

int RestoreState::FailedAttempts() const {
  int most = 0;
  for (const auto& [name, c] : containers) {
    const bool in_vain = c.state == ContainerRestore::kFailed || c.state == ContainerRestore::kPending;
    if (in_vain && !c.message.empty()) most = std::max(most, c.attempts);
  }
  return most;
}

std::string RestoreState::LastFailure() const {
  for (const auto& [name, c] : containers) {
    if (c.attempts > 0 && c.state != ContainerRestore::kRestored && !c.message.empty()) return "container " + name + ": " + c.message;
  }
  return "";
}

std::string RestoreState::WhyNotRestored() const {
  std::string text = why;
  for (const auto& [name, c] : containers) {
    if (c.state == ContainerRestore::kCold || c.state == ContainerRestore::kFailed)
      text += (text.empty() ? "" : "; ") + ("container " + name + ": " + c.message);
  }
  return text;
}

bool AsksForRestore(const kube::Pod& pod) {
  return pod.runtime_class == api::kRuntimeClass && IsSafeName(pod.meta.Annotation(api::kRestore)) && IsSafeName(pod.meta.uid);
}

bool WasLetGoCold(const kube::Pod& pod) {
  return pod.runtime_class == api::kRuntimeClass && pod.meta.Annotation(api::kRestore).empty() && IsSafeName(pod.meta.uid) &&
         Named(pod.init_containers, runtime::kWaitContainer) != nullptr;
}

namespace {

CreateDecision Decide(RestoreState& state, const kube::Pod& pod, const runtime::CreateQuestion& question, bool previous_restored,
                      const std::vector<std::string>& image) {
  using Phase = RestoreState::Phase;
  if (question.container == runtime::kWaitContainer) return {Answer("cold", "it waits for the restore"), ""};
  const kube::Container* init = Named(pod.init_containers, question.container);
  const bool sidecar = init != nullptr && init->restart_always;
  if (init != nullptr && !sidecar) {
    if (state.phase == Phase::kCold) return {Answer("cold", state.why), ""};
    if (state.phase == Phase::kFailed) return {Answer("refuse", state.why + MustNotStartCold(state.options)), ""};
    if (state.phase != Phase::kReady) return {};
    if (api::MaySetUpNetwork(*init)) return {Answer("cold", "what it sets up in the pod's network is in no checkpoint"), ""};
    return {Answer("skip", "what it prepared is in the checkpoint"), ""};
  }
  if (!sidecar && Named(pod.containers, question.container) == nullptr)
    return {Answer("cold", "it is no regular container of the pod"), ""};
  auto at = state.containers.find(question.container);
  if (at != state.containers.end()) {
    RestoreContainer& c = at->second;
    if (c.state == ContainerRestore::kTrying && c.id != question.container_id) {
      c.state = previous_restored ? ContainerRestore::kRestored : ContainerRestore::kPending;
    }
    if (c.state == ContainerRestore::kRestored) {
      return {
          Answer("cold", "it was restored once already"),
          "container " + question.container + " restarted cold: it had been restored from " + state.checkpoint + " and has ended since"};
    }
    if (c.state == ContainerRestore::kCold) return {Answer("cold", "restoring failed: " + c.message), ""};
    if (c.state == ContainerRestore::kFailed)
      return {Answer("refuse", "restoring failed: " + c.message + MustNotStartCold(state.options)), ""};
  }
  if (state.phase == Phase::kCold) return {Answer("cold", state.why), ""};
  if (state.phase == Phase::kFailed) return {Answer("refuse", state.why + MustNotStartCold(state.options)), ""};
  if (state.phase != Phase::kReady) return {};
  if (at == state.containers.end()) return {Answer("cold", "it is not in the checkpoint"), ""};
  RestoreContainer& c = at->second;
  if (!MayTryAgain(state, c)) {  // the outcome of the last try was lost
    runtime::CreateAnswer answer = GiveUp(state, c, "restoring failed: " + c.message);
    if (c.state != ContainerRestore::kCold) return {answer, ""};
    return {answer, "container " + question.container + " starts cold after " + std::to_string(c.attempts) + " failed restores"};
  }
  if (!api::SameImage(c.image_digest, image)) {
    c.message = "it ran the image " + c.image_digest + ", and this pod's is " + image.front() +
                ": a process goes on only in the image in which it began (where a tag has moved, name the image by its digest)";
    return {GiveUp(state, c, c.message), ""};
  }
  c.attempts += 1;
  c.state = ContainerRestore::kTrying;
  c.id = question.container_id;
  runtime::CreateAnswer answer = Answer("restore", "");
  answer.container = question.container;
  answer.established = api::EstablishedName(state.options.established);
  return {answer, ""};
}

}  // namespace

CreateDecision DecideCreate(RestoreState& state, const kube::Pod& pod, const runtime::CreateQuestion& question, bool previous_restored,
                            const Layout& layout, const std::vector<std::string>& image) {
  CreateDecision decision = Decide(state, pod, question, previous_restored, image);
  if (decision.answer) AddVolumes(state, pod, layout, question.container, &*decision.answer);
  return decision;
}

void EndTryOfAnotherBoot(const RestoreState& state, RestoreContainer& c) {
  c.ran = true;
  c.message = "its node was restarted while it was restored, and its processes may have run";
  GiveUp(state, c, c.message);
}

runtime::CreateAnswer DecideOutcome(RestoreState& state, const runtime::RestoreOutcome& outcome) {
  auto at = state.containers.find(outcome.container);
  if (at == state.containers.end()) return Answer(outcome.ok ? "restore" : "refuse", "no restore of this container is known");
  RestoreContainer& c = at->second;
  if (c.state == ContainerRestore::kRestored && c.id == outcome.container_id && outcome.ok) {  // found before it was told
    c.seconds = outcome.seconds;
    return Answer("restore", "");
  }
  if (c.state != ContainerRestore::kTrying || c.id != outcome.container_id) {
    return Answer(c.state == ContainerRestore::kCold ? "cold" : outcome.ok ? "restore" : "refuse", "this try is not the current one");
  }
  if (outcome.ok) {
    c.state = ContainerRestore::kRestored;
    c.seconds = outcome.seconds;
    return Answer("restore", "");
  }
  c.message = outcome.message.substr(0, 1000);
  if (outcome.ran) {
    c.ran = true;
    return GiveUp(state, c, "restoring failed: " + c.message);
  }
  const std::string tries = std::to_string(c.attempts);
  if (!MayTryAgain(state, c)) return GiveUp(state, c, "restoring failed " + tries + " times: " + c.message);
  c.state = ContainerRestore::kPending;
  const bool last_known = state.options.on_failure != api::OnFailure::kRetry;
  return Answer("refuse",
                "restore " + tries + (last_known ? " of " + std::to_string(state.options.attempts) : "") + " failed: " + c.message);
}

}  // namespace holdfast::agent
