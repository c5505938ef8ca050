// Which REST resource a request means, and the metadata that every object has.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "kube/shared_string.h"

namespace holdfast::kube {

// Percent-encodes everything but unreserved characters (RFC 3986), for one path component or query value.
std::string UrlEscape(std::string_view text);

// "?name=value&…" of the parameters whose value is not empty, or "".
std::string UrlQuery(const std::vector<std::pair<std::string_view, std::string>>& parameters);

// Whether resource version `a` is older than `b`. Both are decimal numbers that grow with every write to the resource (KEP-5504); false
// when one of them is not.
bool IsOlderVersion(std::string_view a, std::string_view b);

// The members of an object whose values are strings.
StringMap ReadStrings(const Json& object);

struct Resource {
  std::string group;    // "" for core
  std::string version;  // "v1"
  std::string plural;   // "pods"
  std::string kind;     // "Pod"
  bool namespaced = true;

  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  // "/api/v1/namespaces/ns/pods/name/subresource"; empty parts are left out.
  std::string Path(const std::string& ns, const std::string& name = "", const std::string& subresource = "") const;
};

struct OwnerReference {
  SharedString api_version, kind, name, uid;
  bool controller = false;
};

struct ObjectMeta {
  std::string name, ns, uid, resource_version;
  SharedString generate_name;
  int64_t generation = 0;
  SharedString creation_timestamp, deletion_timestamp;  // RFC 3339, empty when absent
  StringMap labels, annotations;
  std::vector<OwnerReference> owners;
  std::vector<std::string> finalizers;

  static ObjectMeta FromJson(const Json& object);  // `object` has a "metadata"
  std::string Key() const { return ns.empty() ? name : ns + "/" + name; }
  const OwnerReference* Controller() const;              // the owner with controller: true, or nullptr
  std::string Annotation(const std::string& key) const;  // "" when absent
  bool terminating() const { return !deletion_timestamp.empty(); }
  // Stores what other objects have too only once.
  void Share(StringPool* pool);
};

// Key of an object: "namespace/name", or "name" for cluster-scoped ones.
struct ObjectKey {
  std::string ns, name;
  static ObjectKey Parse(const std::string& key);
  std::string ToString() const { return ns.empty() ? name : ns + "/" + name; }
};

}  // namespace holdfast::kube
