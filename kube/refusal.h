// What the API server said when it refused a list or a watch, or ended one with an ERROR event, as far as a reflector tells cases apart.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "kube/http.h"

namespace holdfast::kube {

struct Refusal {
  Status status;                   // never OK
  int code = 0;                    // HTTP's
  bool version_too_large = false;  // this server has not reached the version that was asked for
  bool internal = false;           // reason InternalError: of etcd for the most part, and short
  Duration retry_after{0};

  bool expired() const { return status.code() == Code::kGone; }
  static Refusal FromResponse(const HttpResponse& response, std::string_view what);
  static Refusal FromEvent(const Json& object, std::string_view what);  // the metav1.Status in an ERROR event
};

}  // namespace holdfast::kube
