// The head of an HTTP/1.1 request, as far as a server must know it before a thread is given to it: where it ends, and how long its body is.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace holdfast::kube {

struct RequestHead {
  size_t bytes = 0;  // with the empty line that ends it
  size_t body_bytes = 0;
};

// Of what has come so far; nothing: it has no end yet. kInvalidArgument: no length of the body can be told (it is chunked, has two lengths,
// or one that is no number), so what follows could be anything.
Result<std::optional<RequestHead>> ReadRequestHead(std::string_view bytes);

}  // namespace holdfast::kube
