#include "kube/resource.h"

namespace holdfast::kube {
namespace {

constexpr size_t kSharedAnnotationBytes = 32;  // longer values are seldom alike

}  // namespace

std::string UrlEscape(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::string UrlQuery(const std::vector<std::pair<std::string_view, std::string>>& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (value.empty()) continue;
    query += query.empty() ? '?' : '&';
    query.append(name).append("=").append(UrlEscape(value));
  }
  return query;
}

StringMap ReadStrings(const Json& object) {
  StringMap out;
  if (!object.is_object()) return out;
  out.reserve(object.size());
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) out[key] = value.get_ref<const std::string&>();
  }
  return out;
}

bool IsOlderVersion(std::string_view a, std::string_view b) {
  auto number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos && (text.size() == 1 || text[0] != '0');
  };
  if (!number(a) || !number(b)) return false;
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::string Resource::Path(const std::string& ns, const std::string& name, const std::string& subresource) const {
  std::string path = group.empty() ? "/api/" + version : "/apis/" + group + "/" + version;
  if (namespaced && !ns.empty()) path += "/namespaces/" + UrlEscape(ns);
  path += "/" + plural;
  if (!name.empty()) path += "/" + UrlEscape(name);
  // A subresource may have a path of its own below it ("proxy/metrics"), so its slashes stay.
  if (!subresource.empty()) path += "/" + subresource;
  return path;
}

ObjectMeta ObjectMeta::FromJson(const Json& object) {
  const Json& json = GetObject(object, {"metadata"});
  ObjectMeta meta;
  meta.name = GetString(json, {"name"});
  meta.generate_name = GetString(json, {"generateName"});
  meta.ns = GetString(json, {"namespace"});
  meta.uid = GetString(json, {"uid"});
  meta.resource_version = GetString(json, {"resourceVersion"});
  meta.generation = GetInt(json, {"generation"});
  meta.creation_timestamp = GetString(json, {"creationTimestamp"});
  meta.deletion_timestamp = GetString(json, {"deletionTimestamp"});
  meta.labels = ReadStrings(GetObject(json, {"labels"}));
  meta.annotations = ReadStrings(GetObject(json, {"annotations"}));
  meta.owners.reserve(GetArray(json, {"ownerReferences"}).size());
  for (const Json& owner : GetArray(json, {"ownerReferences"})) {
    meta.owners.push_back({GetString(owner, {"apiVersion"}), GetString(owner, {"kind"}), GetString(owner, {"name"}),
                           GetString(owner, {"uid"}), GetBool(owner, {"controller"})});
  }
  for (const Json& finalizer : GetArray(json, {"finalizers"})) {
    if (finalizer.is_string()) meta.finalizers.push_back(finalizer.get<std::string>());
  }
  return meta;
}

void ObjectMeta::Share(StringPool* pool) {
  pool->Share(&generate_name);
  pool->Share(&creation_timestamp);
  labels.Share(pool);
  annotations.Share(pool, kSharedAnnotationBytes);
  for (OwnerReference& owner : owners) {
    for (SharedString* text : {&owner.api_version, &owner.kind, &owner.name, &owner.uid}) pool->Share(text);
  }
}

const OwnerReference* ObjectMeta::Controller() const {
  for (const OwnerReference& owner : owners) {
    if (owner.controller) return &owner;
  }
  return nullptr;
}

std::string ObjectMeta::Annotation(const std::string& key) const {
  auto found = annotations.find(key);
  return found == annotations.end() ? std::string() : found->second.str();
}

ObjectKey ObjectKey::Parse(const std::string& key) {
  size_t slash = key.find('/');
  if (slash == std::string::npos) return {"", key};
  return {key.substr(0, slash), key.substr(slash + 1)};
}

}  // namespace holdfast::kube
