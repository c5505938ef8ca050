#include "kube/request_head.h"

#include <strings.h>

#include <charconv>

namespace holdfast::kube {
namespace {

bool Is(std::string_view name, std::string_view wanted) {
  return name.size() == wanted.size() && strncasecmp(name.data(), wanted.data(), name.size()) == 0;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::optional<RequestHead>> ReadRequestHead(std::string_view bytes) {
  constexpr std::string_view kLine = "\r\n", kEnd = "\r\n\r\n";
  const size_t end = bytes.find(kEnd);
  if (end == std::string_view::npos) return std::optional<RequestHead>();
  RequestHead head{.bytes = end + kEnd.size()};
  bool has_length = false;
  for (size_t at = bytes.find(kLine) + kLine.size(); at < end + kLine.size();) {
    const size_t stop = bytes.find(kLine, at);
    const std::string_view line = bytes.substr(at, stop - at);
    at = stop + kLine.size();
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = Trim(line.substr(0, colon)), value = Trim(line.substr(colon + 1));
    if (Is(name, "transfer-encoding")) return Status(Code::kInvalidArgument, "send the body with its Content-Length, not chunked");
    if (!Is(name, "content-length")) continue;
    auto [last, error] = std::from_chars(value.data(), value.data() + value.size(), head.body_bytes);
    if (has_length || value.empty() || error != std::errc() || last != value.data() + value.size())
      return Status(Code::kInvalidArgument, "Content-Length is not one number");
    has_length = true;
  }
  return std::optional(head);
}

}  // namespace holdfast::kube
