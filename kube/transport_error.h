// What a failed transfer means to the person who reads it: what, where, and what to do.
#pragma once

#include <curl/curl.h>

#include "base/status.h"
#include "kube/exchange.h"

namespace holdfast::kube {

// `detail` is libcurl's own text, "" for none.
Status TransportError(CURL* easy, CURLcode code, const char* detail, const Order& order);

}  // namespace holdfast::kube
