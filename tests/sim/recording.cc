#include "tests/sim/recording.h"

#include <algorithm>
#include <fstream>
#include <set>

namespace holdfast::sim {
namespace {

constexpr char kPrefix[] = "holdfast.dev/";

std::string Value(const Json& line, const char* key) { return GetString(line, {key}); }

std::string Ready(const Json& object) {
  for (const Json& one : GetArray(object, {"status", "conditions"})) {
    if (Value(one, "type") == "Ready") return Value(one, "status");
  }
  return "";
}

bool Ends(const Json& object) { return !GetString(object, {"metadata", "deletionTimestamp"}).empty(); }

// "n1" is the recording's "node-1".
std::string NodeName(const std::string& name) { return name.empty() ? "" : "node-" + name.substr(1); }

}  // namespace

Lines ReadRecording(const std::string& file) {
  Lines lines;
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    Result<Json> line = ParseJson(text);
    if (!line.ok()) return {};
    lines.push_back(std::move(*line));
  }
  return lines;
}

// --- of the simulated API server ----------------------------------------------------------------------------------------------------

std::string Normaliser::Known(const std::string& key) const {
  const auto found = names_.find(key);
  return found == names_.end() ? key : found->second;
}

std::string Normaliser::PodName(const Json& pod) {
  const std::string uid = GetString(pod, {"metadata", "uid"}), app = GetString(pod, {"metadata", "labels", "app"});
  if (!names_.contains(uid)) {
    const auto called = apps_.find(app);
    names_[uid] = names_[GetString(pod, {"metadata", "name"})] = Next(called == apps_.end() ? app : called->second);
  }
  return names_[uid];
}

std::string Normaliser::CheckpointName(const Json& checkpoint) {
  const std::string name = GetString(checkpoint, {"metadata", "name"});
  if (!names_.contains(name)) names_[name] = Next("checkpoint of " + Known(GetString(checkpoint, {"spec", "podRef", "uid"})));
  return names_[name];
}

Json Normaliser::Pod(const Json& pod) {
  Json gates = Json::array(), annotations = Json::object();
  for (const Json& gate : GetArray(pod, {"spec", "schedulingGates"})) gates.push_back(Value(gate, "name"));
  for (const auto& [key, value] : GetObject(pod, {"metadata", "annotations"}).items()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string brief = key.substr(sizeof kPrefix - 1);
    annotations[brief] = brief == "restore" ? Known(value.get<std::string>()) : "set";
  }
  return {{"gates", std::move(gates)},
          {"node", NodeName(GetString(pod, {"spec", "nodeName"}))},
          {"class", GetString(pod, {"spec", "runtimeClassName"})},
          {"phase", GetString(pod, {"status", "phase"})},
          {"deleting", Ends(pod)},
          {"finalizers", GetArray(pod, {"metadata", "finalizers"})},
          {"annotations", std::move(annotations)},
          {"conditions", {{"Ready", Ready(pod)}}}};
}

Json Normaliser::Checkpoint(const Json& c) {
  const int64_t term = GetInt(c, {"status", "term"});
  if (term != 0 && !terms_.contains(term)) terms_[term] = "term-" + std::to_string(terms_.size() + 1);
  Json restores = Json::array(), restorable = Json::object(), has = Json::array(), owners = Json::array();
  for (const Json& one : GetArray(c, {"status", "containers"})) restorable[Value(one, "name")] = GetBool(one, {"restorable"});
  for (const auto& [key, value] : GetObject(c, {"status"}).items()) {
    // Its deadline and its queue the recorded release did not write down.
    static const std::set<std::string> left_out = {"progress", "claim", "restores", "deadlineAt", "queue"};
    if (!left_out.contains(key)) has.push_back(key);
  }
  for (const Json& one : GetArray(c, {"metadata", "ownerReferences"})) owners.push_back(Value(one, "kind"));
  for (const Json& one : GetArray(c, {"status", "restores"}))
    restores.push_back({{"pod", Known(Value(one, "podUID"))},
                        {"node", NodeName(Value(one, "node"))},
                        {"outcome", Value(one, "outcome")},
                        {"ran", GetBool(one, {"ran"})}});
  return {{"trigger", GetString(c, {"spec", "trigger"})},
          {"final", GetBool(c, {"spec", "final"})},
          {"phase", GetString(c, {"status", "phase"})},
          {"conditions", {{"Ready", Ready(c)}}},
          {"node", NodeName(GetString(c, {"status", "nodeName"}))},
          {"term", term == 0 ? "" : terms_[term]},
          {"pod", Known(GetString(c, {"status", "podUID"}))},
          {"claim", Known(GetString(c, {"status", "claim", "podUID"}))},
          {"restorable", std::move(restorable)},
          {"restores", std::move(restores)},
          {"owners", std::move(owners)},
          {"has", std::move(has)},
          {"finalizers", GetArray(c, {"metadata", "finalizers"})},
          {"deleting", Ends(c)}};
}

Json Normaliser::Line(const std::string& collection, const ApiServer::Change& change) {
  Json line;
  if (collection == "pods") {
    line = Pod(*change.now);
    line.update({{"kind", "Pod"}, {"name", PodName(*change.now)}});
  } else if (collection == "holdfast.dev/checkpoints") {
    line = Checkpoint(*change.now);
    line.update({{"kind", "Checkpoint"}, {"name", CheckpointName(*change.now)}});
  } else if (collection == "nodes") {
    line = {{"kind", "Node"},
            {"name", NodeName(GetString(*change.now, {"metadata", "name"}))},
            {"cordoned", GetBool(*change.now, {"spec", "unschedulable"})}};
  } else {
    return nullptr;
  }
  Json& last = last_[Value(line, "kind") + " " + Value(line, "name")];
  if (std::string_view(change.type) != "DELETED" && last == line) return nullptr;
  last = line;
  line["verb"] = change.type;
  return line;
}

Json Normaliser::EventLine(const Json& event) const {
  return {{"kind", "Event"},
          {"about", GetString(event, {"regarding", "kind"}) + " " + Known(GetString(event, {"regarding", "name"}))},
          {"reason", Value(event, "reason")},
          {"type", Value(event, "type")},
          {"by", Value(event, "reportingController")}};
}

}  // namespace holdfast::sim
