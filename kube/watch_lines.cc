#include "kube/watch_lines.h"

namespace holdfast::kube {

bool WatchLines::Feed(std::string_view chunk, const std::function<bool(std::string_view)>& on_line) {
  while (!chunk.empty()) {
    size_t end = chunk.find('\n');
    std::string_view piece = chunk.substr(0, end);
    if (rest_.size() + piece.size() > max_line_bytes_) {
      too_long_ = true;
      return false;
    }
    if (end == std::string_view::npos) {
      rest_.append(piece);
      return true;
    }
    chunk.remove_prefix(end + 1);
    bool go_on = true;
    if (rest_.empty()) {
      if (!piece.empty()) go_on = on_line(piece);
    } else {
      rest_.append(piece);
      go_on = on_line(rest_);
      rest_.clear();
    }
    if (!go_on) return false;
  }
  return true;
}

}  // namespace holdfast::kube
