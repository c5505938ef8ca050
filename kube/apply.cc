#include "kube/apply.h"

#include <algorithm>

namespace holdfast::kube {
namespace {

constexpr size_t kMaxFieldManagerBytes = 128;

// What the API server sets itself and refuses, or would count as ours.
constexpr const char* kServersOwn[] = {"managedFields", "creationTimestamp", "generation", "selfLink"};

}  // namespace

Status ValidateFieldManager(const std::string& name) {
  if (name.empty() || name.size() > kMaxFieldManagerBytes)
    return {Code::kInvalidArgument, "a field manager's name has 1 to 128 characters: \"" + name + "\""};
  if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7F; }))
    return {Code::kInvalidArgument, "a field manager's name has printable ASCII characters only"};
  return Status::Ok();
}

Result<Json> Applier::Apply(const Resource& resource, const std::string& ns, const Json& intent, CallOptions options, bool force) {
  HF_RETURN_IF_ERROR(ValidateFieldManager(field_manager_));
  const std::string name = GetString(intent, {"metadata", "name"});
  if (name.empty()) return Status(Code::kInvalidArgument, "what is applied to " + resource.plural + " needs a metadata.name");
  Json body = intent;
  body["apiVersion"] = resource.ApiVersion();
  body["kind"] = resource.kind;
  for (const char* key : kServersOwn) body["metadata"].erase(key);
  options.field_manager = field_manager_;
  options.force = force;
  Result<Json> applied = client_.Patch(resource, ns, name, PatchType::kApply, body, options);
  // The API server calls another uid a conflict when it has no object of the name, but an invalid change when it has one.
  if (applied.status().code() == Code::kInvalidArgument && applied.status().message().find("metadata.uid") != std::string::npos)
    return Status(Code::kConflict, applied.status().message());
  return applied;
}

Result<Json> Applier::ApplyStatus(const Resource& resource, const std::string& ns, const Json& intent, CallOptions options, bool force) {
  options.subresource = "status";
  return Apply(resource, ns, intent, std::move(options), force);
}

}  // namespace holdfast::kube
