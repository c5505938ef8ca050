#include "kube/admission_review.h"

#include "kube/base64.h"

namespace holdfast::kube {

Result<AdmissionRequest> ReadAdmissionReview(std::string_view body) {
  HF_ASSIGN_OR_RETURN(Json review, ParseJson(body));
  std::string version = GetString(review, {"apiVersion"});
  if (version != "admission.k8s.io/v1" || GetString(review, {"kind"}) != "AdmissionReview") {
    return Status(Code::kInvalidArgument,
                  "not an AdmissionReview of admission.k8s.io/v1 but \"" + GetString(review, {"kind"}) + "\" of \"" + version + "\"");
  }
  const Json& json = GetObject(review, {"request"});
  AdmissionRequest request;
  request.uid = GetString(json, {"uid"});
  if (request.uid.empty()) return Status(Code::kInvalidArgument, "the AdmissionReview has no request.uid");
  request.operation = GetString(json, {"operation"});
  request.ns = GetString(json, {"namespace"});
  request.name = GetString(json, {"name"});
  request.subresource = GetString(json, {"subResource"});
  request.username = GetString(json, {"userInfo", "username"});
  request.resource = {GetString(json, {"resource", "group"}), GetString(json, {"resource", "version"}),
                      GetString(json, {"resource", "resource"}), GetString(json, {"kind", "kind"}), !request.ns.empty()};
  request.dry_run = GetBool(json, {"dryRun"});
  auto take = [&json](const char* key) {
    const Json* found = Find(json, {key});
    return found == nullptr ? Json() : *found;
  };
  request.object = take("object");
  request.old_object = take("oldObject");
  request.options = take("options");
  return request;
}

std::string WriteAdmissionReview(const std::string& uid, const AdmissionResponse& response) {
  Json json = {{"uid", uid}, {"allowed", response.allowed}};
  if (!response.allowed) {
    json["status"] = {{"code", response.code != 0 ? response.code : 403},
                      {"reason", response.reason.empty() ? "Forbidden" : response.reason},
                      {"message", response.message},
                      {"status", "Failure"}};
  } else if (!response.patch.is_null()) {
    json["patchType"] = "JSONPatch";
    json["patch"] = EncodeBase64(DumpJson(response.patch));
  }
  if (!response.warnings.empty()) json["warnings"] = response.warnings;
  return DumpJson({{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"response", std::move(json)}});
}

}  // namespace holdfast::kube
