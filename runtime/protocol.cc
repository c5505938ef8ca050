#include "runtime/protocol.h"

#include <algorithm>
#include <span>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxItems = 1024;    // containers, volumes, addresses
constexpr size_t kMaxText = 1 << 16;  // any one string

// Reads the fields of one object and remembers the first thing that is wrong with it.
class Reader {
 public:
  Reader(const Json& json, const char* what) : json_(json), what_(what) {
    if (!json.is_object()) Fail("is not an object");
  }

  std::string Text(const char* key, std::string_view otherwise = "") {
    const Json* value = At(key);
    if (value == nullptr) return std::string(otherwise);
    if (!value->is_string()) return Fail(std::string(key) + " is not a string"), std::string();
    std::string text = value->get<std::string>();
    if (text.size() > kMaxText || text.find('\0') != std::string::npos) Fail(std::string(key) + " is too long or has a NUL");
    return text;
  }
  // A name that becomes one path component.
  std::string Name(const char* key) {
    std::string text = Text(key);
    if (!IsSafeName(text)) Fail(std::string(key) + " is missing or not a plain name");
    return text;
  }
  std::string Path(const char* key, std::string_view otherwise = "") {
    std::string text = Text(key, otherwise);
    if (!text.starts_with('/') || (text + "/").find("/../") != std::string::npos) Fail(std::string(key) + " is not an absolute path");
    return text;
  }
  std::string OneOf(const char* key, std::span<const std::string_view> allowed, std::string_view otherwise = "") {
    std::string text = Text(key, otherwise);
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      Fail(std::string(key) + " has the unknown value \"" + text.substr(0, 64) + "\"");
    return text;
  }
  bool Flag(const char* key) {
    const Json* value = At(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return Fail(std::string(key) + " is not true or false"), false;
    return value->get<bool>();
  }
  int64_t Count(const char* key) {
    const Json* value = At(key);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) || value->get<int64_t>() < 0) {
      return Fail(std::string(key) + " is not a whole number from 0"), 0;
    }
    return value->get<int64_t>();
  }
  double Number(const char* key) {
    const Json* value = At(key);
    if (value == nullptr) return 0;
    if (!value->is_number()) return Fail(std::string(key) + " is not a number"), 0.0;
    return value->get<double>();
  }
  template <class Each>
  void Items(const char* key, Each each) {
    const Json* value = At(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kMaxItems) return Fail(std::string(key) + " is not a list of at most 1024");
    for (const Json& item : *value) each(item);
  }
  void Volumes(std::vector<DumpVolume>* volumes) {
    Items("volumes", [&](const Json& item) {
      Reader volume(item, "volume");
      volumes->push_back({volume.Name("name"), volume.Path("path")});
      Merge(volume);
    });
  }
  void Merge(const Reader& inner) {
    if (status_.ok()) status_ = inner.status_;
  }
  void Fail(const std::string& why) {
    if (status_.ok()) status_ = Status(Code::kInvalidArgument, std::string(what_) + ": " + why);
  }
  template <class T>
  Result<T> Finish(T value) {
    if (!status_.ok()) return status_;
    return value;
  }

 private:
  const Json* At(const char* key) const { return Find(json_, {key}); }

  const Json& json_;
  const char* what_;
  Status status_;
};

constexpr std::string_view kEstablished[] = {"KeepLoopback", "CloseAll"};
constexpr std::string_view kActions[] = {"restore", "cold", "refuse", "skip"};
constexpr std::string_view kWaitStates[] = {"waiting", "fetching", "ready", "cold", "failed"};
constexpr std::string_view kVerdicts[] = {"ok", "warn", "fail"};

Json VolumesJson(const std::vector<DumpVolume>& volumes) {
  Json list = Json::array();
  for (const DumpVolume& volume : volumes) list.push_back({{"name", volume.name}, {"path", volume.path}});
  return list;
}

}  // namespace

Json Intent::ToJson() const {
  return {{"checkpoint_uid", checkpoint_uid},
          {"pod_uid", pod_uid},
          {"container", container},
          {"landing", landing},
          {"final", final},
          {"kubelet", kubelet}};
}

Result<Intent> Intent::FromJson(const Json& json) {
  Reader in(json, "intent");
  Intent intent;
  intent.checkpoint_uid = in.Name("checkpoint_uid");
  intent.pod_uid = in.Name("pod_uid");
  intent.container = in.Name("container");
  intent.landing = in.Path("landing");
  intent.final = in.Flag("final");
  intent.kubelet = in.Flag("kubelet");
  return in.Finish(std::move(intent));
}

Json DumpRequest::ToJson() const {
  Json list = Json::array();
  for (const DumpContainer& container : containers) list.push_back({{"name", container.name}, {"id", container.id}});
  return {{"checkpoint_uid", checkpoint_uid},
          {"pod_uid", pod_uid},
          {"namespace", ns},
          {"pod", pod},
          {"runc_root", runc_root},
          {"task_dir", task_dir},
          {"final", final},
          {"barrier_ms", barrier_ms},
          {"hold_ms", hold_ms},
          {"deadline_unix_ms", deadline_unix_ms},
          {"containers", list},
          {"volumes", VolumesJson(volumes)}};
}

Result<DumpRequest> DumpRequest::FromJson(const Json& json) {
  Reader in(json, "dump request");
  DumpRequest request;
  request.checkpoint_uid = in.Name("checkpoint_uid");
  request.pod_uid = in.Name("pod_uid");
  request.ns = in.Text("namespace");
  request.pod = in.Text("pod");
  request.runc_root = in.Path("runc_root", request.runc_root);
  request.task_dir = in.Path("task_dir", request.task_dir);
  request.final = in.Flag("final");
  request.barrier_ms = in.Count("barrier_ms");
  request.hold_ms = in.Count("hold_ms");
  request.deadline_unix_ms = in.Count("deadline_unix_ms");
  in.Items("containers", [&](const Json& item) {
    Reader container(item, "container");
    request.containers.push_back({container.Name("name"), container.Name("id")});
    in.Merge(container);
  });
  in.Volumes(&request.volumes);
  if (request.containers.empty()) in.Fail("has no containers");
  for (size_t i = 0; i < request.containers.size(); ++i) {
    const std::string& name = request.containers[i].name;
    // These lie beside the containers' folders.
    if (name == "volumes" || name.ends_with(".tar") || name.ends_with(".json"))
      in.Fail("container name " + name + " is taken by the layout");
    for (size_t j = 0; j < i; ++j) {
      if (request.containers[j].name == name) in.Fail("container " + name + " is named twice");
    }
  }
  return in.Finish(std::move(request));
}

Json DumpResult::ToJson() const {
  return {{"ok", ok},
          {"reason", reason},
          {"message", message},
          {"no_space", no_space},
          {"frozen_ms", frozen_ms},
          {"dump_ms", dump_ms},
          {"barrier_ms", barrier_ms},
          {"frozen_at_unix_ms", frozen_at_unix_ms},
          {"memory_bytes", memory_bytes},
          {"files_bytes", files_bytes},
          {"pod_ips", pod_ips},
          {"hostname", hostname}};
}

Result<DumpResult> DumpResult::FromJson(const Json& json) {
  Reader in(json, "dump result");
  DumpResult result;
  result.ok = in.Flag("ok");
  result.reason = in.Text("reason");
  result.message = in.Text("message");
  result.no_space = in.Flag("no_space");
  result.frozen_ms = in.Count("frozen_ms");
  result.dump_ms = in.Count("dump_ms");
  result.barrier_ms = in.Count("barrier_ms");
  result.frozen_at_unix_ms = in.Count("frozen_at_unix_ms");
  result.memory_bytes = in.Count("memory_bytes");
  result.files_bytes = in.Count("files_bytes");
  in.Items("pod_ips", [&](const Json& item) {
    if (!item.is_string() || item.get_ref<const std::string&>().size() > 64) return in.Fail("pod_ips holds what is not an address");
    result.pod_ips.push_back(item.get<std::string>());
  });
  result.hostname = in.Text("hostname");
  if (result.hostname.size() > 64) in.Fail("hostname is longer than 64 bytes");
  return in.Finish(std::move(result));
}

Json CreateQuestion::ToJson() const {
  return {{"op", "create"},         {"pod_uid", pod_uid},           {"namespace", ns},          {"pod", pod},
          {"container", container}, {"container_id", container_id}, {"sandbox_id", sandbox_id}, {"init", init}};
}

Result<CreateQuestion> CreateQuestion::FromJson(const Json& json) {
  Reader in(json, "create question");
  CreateQuestion question;
  question.pod_uid = in.Name("pod_uid");
  question.ns = in.Text("namespace");
  question.pod = in.Text("pod");
  question.container = in.Name("container");
  question.container_id = in.Name("container_id");
  question.sandbox_id = in.Text("sandbox_id");
  question.init = in.Flag("init");
  return in.Finish(std::move(question));
}

Json CreateAnswer::ToJson() const {
  return {{"action", action},           {"reason", reason}, {"dir", dir},   {"container", container},
          {"established", established}, {"first", first},   {"more", more}, {"volumes", VolumesJson(volumes)}};
}

Result<CreateAnswer> CreateAnswer::FromJson(const Json& json) {
  Reader in(json, "create answer");
  CreateAnswer answer;
  answer.action = in.OneOf("action", kActions);
  answer.reason = in.Text("reason");
  if (answer.action == "restore") answer.container = in.Name("container");
  if (answer.action == "restore" || !in.Text("dir").empty()) answer.dir = in.Path("dir");
  answer.established = in.OneOf("established", kEstablished, answer.established);
  answer.first = in.Flag("first");
  answer.more = in.Flag("more");
  in.Volumes(&answer.volumes);
  return in.Finish(std::move(answer));
}

Json StopQuestion::ToJson() const {
  return {{"op", "stop"}, {"pod_uid", pod_uid}, {"namespace", ns}, {"pod", pod}, {"container", container}, {"container_id", container_id}};
}

Result<StopQuestion> StopQuestion::FromJson(const Json& json) {
  Reader in(json, "stop question");
  StopQuestion question;
  question.pod_uid = in.Name("pod_uid");
  question.ns = in.Text("namespace");
  question.pod = in.Text("pod");
  question.container = in.Name("container");
  question.container_id = in.Name("container_id");
  return in.Finish(std::move(question));
}

Json StopAnswer::ToJson() const { return {{"action", action}, {"reason", reason}}; }

Json RestoreOutcome::ToJson() const {
  return {{"op", "restored"}, {"pod_uid", pod_uid}, {"container", container}, {"container_id", container_id},
          {"ok", ok},         {"ran", ran},         {"seconds", seconds},     {"message", message}};
}

Result<RestoreOutcome> RestoreOutcome::FromJson(const Json& json) {
  Reader in(json, "restore outcome");
  RestoreOutcome outcome;
  outcome.pod_uid = in.Name("pod_uid");
  outcome.container = in.Name("container");
  outcome.container_id = in.Name("container_id");
  outcome.ok = in.Flag("ok");
  outcome.ran = in.Flag("ran");
  outcome.seconds = in.Number("seconds");
  outcome.message = in.Text("message");
  return in.Finish(std::move(outcome));
}

Json NodeCheck::ToJson() const {
  Json json = {{"name", name}, {"verdict", kVerdicts[static_cast<size_t>(verdict)]}, {"seen", seen}};
  if (verdict != Verdict::kOk) json["fix"] = fix;
  if (!value.empty()) json["value"] = value;
  if (!features.empty()) json["features"] = features;
  if (passes) json["passes"] = true;
  return json;
}

Result<NodeCheck> NodeCheck::FromJson(const Json& json) {
  Reader in(json, "check");
  NodeCheck check;
  check.name = in.Name("name");
  const std::string verdict = in.OneOf("verdict", kVerdicts);
  check.verdict = verdict == kVerdicts[0] ? Verdict::kOk : verdict == kVerdicts[1] ? Verdict::kWarn : Verdict::kFail;
  check.seen = in.Text("seen");
  check.fix = in.Text("fix");
  check.value = in.Text("value");
  check.features = in.Text("features");
  check.passes = in.Flag("passes");
  return in.Finish(std::move(check));
}

Json WaitState::ToJson() const { return {{"state", state}, {"message", message}, {"bytes", bytes}, {"total", total}}; }

Result<WaitState> WaitState::FromJson(const Json& json) {
  Reader in(json, "wait state");
  WaitState state;
  state.state = in.OneOf("state", kWaitStates);
  state.message = in.Text("message");
  state.bytes = in.Count("bytes");
  state.total = in.Count("total");
  return in.Finish(std::move(state));
}

}  // namespace holdfast::runtime
