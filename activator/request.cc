#include "activator/request.h"

#include <algorithm>

namespace holdfast::activator {
namespace {

constexpr size_t kLongestMethod = 20;

bool SameWithoutCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
    return lower(x) == lower(y);
  });
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// Where the method ends; npos: it is none.
size_t MethodLength(std::string_view bytes) {
  const size_t end = std::min(bytes.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ-"), bytes.size());
  return end > kLongestMethod ? std::string_view::npos : end;
}

void ReadLine(std::string_view line, Request* request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon), value = Trimmed(line.substr(colon + 1));
  if (SameWithoutCase(name, "user-agent")) request->user_agent = value;
  if (SameWithoutCase(name, "accept") && value.find("text/html") != std::string_view::npos) request->accepts_html = true;
}

}  // namespace

Request ReadRequest(std::string_view bytes) {
  Request request;
  const size_t method = MethodLength(bytes);
  if (method == 0 && bytes.empty()) return request;
  if (method == 0 || method == std::string_view::npos || (method < bytes.size() && bytes[method] != ' ')) {
    request.protocol = Protocol::kOther;
    return request;
  }
  const size_t line_end = bytes.find('\n');
  const std::string_view first = Trimmed(bytes.substr(0, line_end));
  const size_t version = first.rfind(' ');
  if (line_end == std::string_view::npos) {
    // A first line that goes on for so long: whatever it is, it is not looked at any more.
    if (bytes.size() >= kMaxHead) request.protocol = Protocol::kOther;
    return request;
  }
  if (version == std::string_view::npos || version <= method || !first.substr(version + 1).starts_with("HTTP/1.")) {
    request.protocol = Protocol::kOther;
    return request;
  }
  request.protocol = Protocol::kHttp;
  size_t at = line_end + 1;
  while (true) {
    const size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos) {
      request.complete = bytes.size() >= kMaxHead;
      return request.complete ? Request{.protocol = Protocol::kHttp, .complete = true} : request;
    }
    const std::string_view line = Trimmed(bytes.substr(at, end - at));
    if (line.empty()) break;
    ReadLine(line, &request);
    at = end + 1;
  }
  request.complete = true;
  request.method = first.substr(0, method);
  const std::string_view target = Trimmed(first.substr(method, version - method));
  request.path = target.substr(0, target.find_first_of("?#"));
  return request;
}

}  // namespace holdfast::activator
