#include "kube/list_cutter.h"

namespace holdfast::kube {
namespace {

constexpr size_t kKeptCapacity = 1 << 20;  // a buffer that one huge item made larger is given back

Status Malformed(std::string_view what) { return {Code::kInvalidArgument, "not a JSON list: " + std::string(what)}; }

}  // namespace

Status ListCutter::Feed(std::string_view chunk, const OnItem& on_item) {
  while (!chunk.empty()) {
    Result<size_t> taken = where_ == Where::kRest           ? FeedRest(chunk)
                           : where_ == Where::kBetweenItems ? FeedBetween(chunk)
                                                            : FeedItem(chunk, on_item);
    if (!taken.ok()) return taken.status();
    chunk.remove_prefix(*taken);
  }
  return Status::Ok();
}

Result<size_t> ListCutter::FeedRest(std::string_view chunk) {
  for (size_t i = 0; i < chunk.size(); ++i) {
    const char c = chunk[i];
    if (rest_.size() >= limits_.rest_bytes) {
      return Status(Code::kResourceExhausted, "a list has more than " + std::to_string(limits_.rest_bytes) + " bytes beside its items");
    }
    rest_ += c;
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      continue;
    }
    HF_RETURN_IF_ERROR(Structure(c));
    if (where_ == Where::kBetweenItems) return i + 1;
  }
  return chunk.size();
}

Status ListCutter::Structure(char c) {
  switch (c) {
    case '"':
      in_string_ = true;
      if (depth_ == 1) string_begin_ = rest_.size();
      break;
    case ':':
      if (depth_ == 1) key_is_items_ = std::string_view(rest_).substr(string_begin_).starts_with("items\"");
      break;
    case ',':
      if (depth_ == 1) key_is_items_ = false;
      break;
    case '[':
      if (depth_ == 1 && key_is_items_) {
        if (has_items_) return Malformed("\"items\" twice");
        has_items_ = true;
        where_ = Where::kBetweenItems;
        return Status::Ok();
      }
      [[fallthrough]];
    case '{':
      if (++depth_ > limits_.depth) return Malformed("nested deeper than " + std::to_string(limits_.depth) + " levels");
      break;
    case ']':
    case '}':
      if (--depth_ < 0) return Malformed("a bracket closes that was not opened");
      break;
    default:
      break;
  }
  return Status::Ok();
}

Result<size_t> ListCutter::FeedBetween(std::string_view chunk) {
  for (size_t i = 0; i < chunk.size(); ++i) {
    const char c = chunk[i];
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '{' && !after_item_) {
      where_ = Where::kInItem;
      return i;
    }
    if (c == ',' && after_item_) {
      after_item_ = false;
      after_comma_ = true;
    } else if (c == ']' && !after_comma_) {
      rest_ += c;
      where_ = Where::kRest;
      return i + 1;
    } else {
      return Malformed("an item is not an object");
    }
  }
  return chunk.size();
}

Result<size_t> ListCutter::FeedItem(std::string_view chunk, const OnItem& on_item) {
  // In local variables, or each byte would write them to memory.
  int depth = item_depth_;
  bool in_string = in_string_, escaped = escaped_;
  size_t i = 0;
  bool whole = false;
  for (; i < chunk.size() && !whole; ++i) {
    const char c = chunk[i];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits_.depth) return Malformed("an item is nested deeper than " + std::to_string(limits_.depth) + " levels");
    } else if (c == '}' || c == ']') {
      whole = --depth == 0;
    }
  }
  item_depth_ = depth;
  in_string_ = in_string;
  escaped_ = escaped;
  std::string_view piece = chunk.substr(0, i);
  if (item_.size() + piece.size() > limits_.item_bytes) {
    return Status(Code::kResourceExhausted, "a list's item is longer than " + std::to_string(limits_.item_bytes) + " bytes");
  }
  if (!whole) {
    item_.append(piece);
    return i;
  }
  where_ = Where::kBetweenItems;
  after_item_ = true;
  after_comma_ = false;
  if (item_.empty()) {
    HF_RETURN_IF_ERROR(on_item(piece));
  } else {
    item_.append(piece);
    HF_RETURN_IF_ERROR(on_item(item_));
    item_.clear();
    if (item_.capacity() > kKeptCapacity) item_ = std::string();
  }
  return i;
}

Result<Json> ListCutter::Finish() const {
  if (where_ != Where::kRest || depth_ != 0 || in_string_) return Malformed("it is cut off");
  return ParseJson(rest_);
}

}  // namespace holdfast::kube
