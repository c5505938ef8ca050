// AdmissionReview v1 on the wire, to and from our values.
#pragma once

#include "kube/admission.h"

namespace holdfast::kube {

// kInvalidArgument when it is no admission.k8s.io/v1 request.
Result<AdmissionRequest> ReadAdmissionReview(std::string_view body);
std::string WriteAdmissionReview(const std::string& uid, const AdmissionResponse& response);

}  // namespace holdfast::kube
