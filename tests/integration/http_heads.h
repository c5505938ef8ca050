// Splits what an HTTP/1.1 client sends into requests, for FaultProxy: the head of each is shown to the test, and either the request goes
// on to the server or the test's answer goes back. Bodies are those of Content-Length, which is how our client sends.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>

namespace holdfast::testing {

class HttpHeads {
 public:
  // Gets "METHOD /path?query"; returns the whole answer, or "" to let the server answer.
  explicit HttpHeads(std::function<std::string(const std::string&)> on_request) : on_request_(std::move(on_request)) {}

  void Feed(std::string* from_client, std::string* to_upstream, std::string* to_client) {
    while (!from_client->empty()) {
      if (body_left_ > 0) {
        const size_t n = std::min(body_left_, from_client->size());
        if (answer_.empty()) to_upstream->append(*from_client, 0, n);
        from_client->erase(0, n);
        body_left_ -= n;
        if (body_left_ == 0) to_client->append(std::exchange(answer_, ""));
        continue;
      }
      const size_t end = from_client->find("\r\n\r\n");
      if (end == std::string::npos) return;
      const std::string head = from_client->substr(0, end + 4);
      from_client->erase(0, end + 4);
      const size_t space = head.find(' ');
      answer_ = on_request_(head.substr(0, head.find(' ', space + 1)));
      body_left_ = ContentLength(head);
      if (answer_.empty()) {
        to_upstream->append(head);
      } else if (body_left_ == 0) {
        to_client->append(std::exchange(answer_, ""));
      }
    }
  }

 private:
  static size_t ContentLength(std::string head) {
    std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string name = "\r\ncontent-length:";
    const size_t at = head.find(name);
    return at == std::string::npos ? 0 : strtoull(head.c_str() + at + name.size(), nullptr, 10);
  }
  const std::function<std::string(const std::string&)> on_request_;
  std::string answer_;  // what goes back once the body is read
  size_t body_left_ = 0;
};

}  // namespace holdfast::testing
