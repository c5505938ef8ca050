// Cuts a watch's byte stream into lines. Each byte is looked at once, however small the pieces are.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace holdfast::kube {

class WatchLines {
 public:
  explicit WatchLines(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}
  // Calls `on_line` for every line that is whole now, without its end. False when on_line said so, or a line is too long (too_long()).
  bool Feed(std::string_view chunk, const std::function<bool(std::string_view)>& on_line);
  bool too_long() const { return too_long_; }

 private:
  const size_t max_line_bytes_;
  std::string rest_;  // the line that has begun
  bool too_long_ = false;
};

}  // namespace holdfast::kube
