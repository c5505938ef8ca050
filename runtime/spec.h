// A container's OCI spec: bundle/config.json, read and edited. Unknown fields stay as they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace holdfast::runtime {

struct Identity {  // from containerd's CRI annotations
  std::string pod_uid, ns, pod, container, sandbox_id;
  bool is_container = false;  // false: a sandbox, or not made by the CRI
};

class Spec {
 public:
  struct Mount {
    std::string destination, source, type;
  };

  static Result<Spec> Load(const std::string& bundle);
  explicit Spec(Json json) : json_(std::move(json)) {}
  Status Save(const std::string& bundle) const;  // whole or not at all

  Identity identity() const;
  std::string Annotation(std::string_view key) const;
  std::vector<Mount> Mounts() const;
  std::string RootPath(const std::string& bundle) const;
  // The path of the namespace that the container joins; nothing when it gets a new one or shares the host's.
  std::optional<std::string> NamespacePath(std::string_view type) const;
  const Json& json() const { return json_; }

  void AddTimeNamespace();  // once; not when the spec has no list of namespaces
  void SetAnnotation(const std::string& key, const std::string& value);
  void AddReadOnlyBind(const std::string& source, const std::string& destination);
  void SetArgs(const std::vector<std::string>& args);

 private:
  Json json_;
};

}  // namespace holdfast::runtime
