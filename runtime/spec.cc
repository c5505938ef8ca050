#include "runtime/spec.h"

#include "base/file.h"

namespace holdfast::runtime {

Result<Spec> Spec::Load(const std::string& bundle) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(bundle + "/config.json"));
  Result<Json> json = ParseJson(text);
  if (!json.ok()) return json.status().With(bundle + "/config.json");
  if (!json->is_object()) return Status(Code::kInvalidArgument, bundle + "/config.json is not an object");
  return Spec(std::move(*json));
}

Status Spec::Save(const std::string& bundle) const { return WriteFileAtomically(bundle + "/config.json", DumpJson(json_), 0600); }

Identity Spec::identity() const {
  const Json& notes = GetObject(json_, {"annotations"});
  Identity identity;
  identity.pod_uid = GetString(notes, {"io.kubernetes.cri.sandbox-uid"});
  identity.ns = GetString(notes, {"io.kubernetes.cri.sandbox-namespace"});
  identity.pod = GetString(notes, {"io.kubernetes.cri.sandbox-name"});
  identity.container = GetString(notes, {"io.kubernetes.cri.container-name"});
  identity.sandbox_id = GetString(notes, {"io.kubernetes.cri.sandbox-id"});
  identity.is_container = GetString(notes, {"io.kubernetes.cri.container-type"}) == "container" && IsSafeName(identity.pod_uid) &&
                          IsSafeName(identity.container);
  return identity;
}

std::string Spec::Annotation(std::string_view key) const { return GetString(json_, {"annotations", key}); }

std::vector<Spec::Mount> Spec::Mounts() const {
  std::vector<Mount> mounts;
  for (const Json& mount : GetArray(json_, {"mounts"})) {
    mounts.push_back({GetString(mount, {"destination"}), GetString(mount, {"source"}), GetString(mount, {"type"})});
  }
  return mounts;
}

std::string Spec::RootPath(const std::string& bundle) const {
  std::string path = GetString(json_, {"root", "path"}, "rootfs");
  return path.starts_with('/') ? path : bundle + "/" + path;
}

std::optional<std::string> Spec::NamespacePath(std::string_view type) const {
  for (const Json& space : GetArray(json_, {"linux", "namespaces"})) {
    if (GetString(space, {"type"}) == type && !GetString(space, {"path"}).empty()) return GetString(space, {"path"});
  }
  return std::nullopt;
}

void Spec::AddTimeNamespace() {
  const Json* spaces = Find(json_, {"linux", "namespaces"});
  if (spaces == nullptr || !spaces->is_array()) return;
  for (const Json& space : *spaces) {
    if (GetString(space, {"type"}) == "time") return;
  }
  json_["linux"]["namespaces"].push_back({{"type", "time"}});
}

void Spec::SetAnnotation(const std::string& key, const std::string& value) {
  Json& notes = json_["annotations"];
  if (!notes.is_object()) notes = Json::object();
  notes[key] = value;
}

void Spec::AddReadOnlyBind(const std::string& source, const std::string& destination) {
  Json& mounts = json_["mounts"];
  if (!mounts.is_array()) mounts = Json::array();
  mounts.push_back({{"destination", destination},
                    {"type", "bind"},
                    {"source", source},
                    {"options", Json::array({"rbind", "rprivate", "ro", "nosuid", "nodev"})}});
}

void Spec::SetArgs(const std::vector<std::string>& args) {
  Json& process = json_["process"];
  if (!process.is_object()) process = Json::object();
  process["args"] = args;
}

}  // namespace holdfast::runtime
