// A Transport that counts what passes through it.
#pragma once

#include "kube/http.h"
#include "kube/metrics.h"

namespace holdfast::kube {

// `transport`, with rest_client_requests_total{code,method,host} in `metrics`: one for each request as it was sent (so a retry counts
// again), a stream when its answer begins; code "<error>" when no answer came. `host` as in ClientConfig::server.
std::shared_ptr<Transport> CountRequests(std::shared_ptr<Transport> transport, RuntimeMetrics& metrics, const std::string& server);

}  // namespace holdfast::kube
