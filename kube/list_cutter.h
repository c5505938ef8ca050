// Cuts the items out of a list ({"kind": …, "metadata": …, "items": [{…}, …]}) as its bytes arrive, so that no page is ever whole in
// memory. Each byte is looked at once, however small the pieces are; nesting, one item and everything around the items are bounded. What is
// cut out looks like a JSON object but is not checked further: its reader parses it. Thread-compatible.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace holdfast::kube {

class ListCutter {
 public:
  struct Limits {
    size_t item_bytes = 32 << 20;
    size_t rest_bytes = 1 << 20;  // all but the items
    int depth = 128;
  };
  using OnItem = std::function<Status(std::string_view item)>;

  ListCutter() : ListCutter(Limits()) {}
  explicit ListCutter(Limits limits) : limits_(limits) {}
  // Calls `on_item` for each item that is whole now. Fails with what on_item said, kResourceExhausted (a limit), or kInvalidArgument;
  // the cutter is of no use afterwards.
  Status Feed(std::string_view chunk, const OnItem& on_item);
  // After the last byte: the list without its items ("items" is an empty array). kInvalidArgument when it is not whole or not JSON.
  Result<Json> Finish() const;
  bool has_items() const { return has_items_; }  // there was an array "items", if only an empty one

 private:
  enum class Where { kRest, kBetweenItems, kInItem };

  // Each takes what it can from `chunk` and says how many bytes that was.
  Result<size_t> FeedRest(std::string_view chunk);
  Result<size_t> FeedBetween(std::string_view chunk);
  Result<size_t> FeedItem(std::string_view chunk, const OnItem& on_item);
  Status Structure(char c);  // of the part around the items

  const Limits limits_;
  Where where_ = Where::kRest;
  std::string rest_, item_;  // item_: the item that has begun, when it began in an earlier chunk
  size_t string_begin_ = 0;  // in rest_, of the last string at depth 1
  int depth_ = 0, item_depth_ = 0;
  bool in_string_ = false, escaped_ = false;
  bool key_is_items_ = false, has_items_ = false;
  bool after_item_ = false, after_comma_ = false;
};

}  // namespace holdfast::kube
