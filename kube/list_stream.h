// A paged LIST whose items are handed on one by one as they arrive: the list is never in memory, and neither is a page. Blocks the calling
// thread. A page after the first that could not be read is asked for again a few times, so an item may come twice; the last one counts.
#pragma once

#include <functional>

#include "kube/client.h"
#include "kube/refusal.h"

namespace holdfast::kube {

struct ListSpec {
  Resource resource;
  ListOptions scope{};
  std::string version{};  // not older than this; empty: the newest (a quorum read)
  int page_size = 500;    // 0: everything in one answer
  bool metadata_only = false;
};

struct ListCalls {
  std::function<void(const Json& item)> on_item;
  std::function<void()> on_restart;  // forget the items so far, the list starts over
};

struct ListEnd {
  Status status;
  Refusal refusal{};      // when the server refused
  std::string version{};  // of the whole list: that of its first page
};

// When the server has forgotten a later page's snapshot, the whole is listed once more, without pages, at the version asked for.
ListEnd StreamList(Client& client, const ListSpec& spec, const ListCalls& calls, std::stop_token stop);

// The Accept header for objects of a list or watch as they are, or reduced to their metadata where the server can.
std::string AcceptHeader(bool metadata_only, bool list);

}  // namespace holdfast::kube
