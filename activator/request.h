// What the first bytes of a connection say: is it HTTP, and what does it ask for? Pure, and for hostile bytes.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::activator {

inline constexpr size_t kMaxHead = 16 << 10;  // bytes of a request's head that are looked at
inline constexpr char kStatusPath[] = "/.holdfast/status";

enum class Protocol {
  kUnknown,  // too little to tell
  kHttp,     // HTTP/1.x
  kOther,
};

struct Request {
  Protocol protocol = Protocol::kUnknown;
  bool complete = false;  // of kHttp: the whole head is there, or more than kMaxHead of it
  // Of kHttp, once the head is there as a whole; what is longer than kMaxHead says nothing.
  std::string method{}, path{}, user_agent{};  // path: without what follows '?'
  bool accepts_html = false;

  bool asks_status() const { return method == "GET" && path == kStatusPath; }
  bool is_navigation() const { return method == "GET" && accepts_html; }  // of a browser
};

Request ReadRequest(std::string_view bytes);

}  // namespace holdfast::activator
