// A paged LIST whose items are handed on one by one as they arrive: the list is never in memory, and neither is a page. Blocks the calling
// thread. A page after the first that could not be read is asked for again a few times, so an item may come twice; the last one counts.
#pragma once

#include <functional>
#include <map>

#include "kube/client.h"
#include "kube/refusal.h"

namespace holdfast::kube {

struct ListSpec {
  Resource resource;
  ListOptions scope{};
  std::string version{};  // not older than this; empty: the newest (a quorum read)
  int page_size = 500;    // 0: everything in one answer
  bool metadata_only = false;
  Duration timeout = std::chrono::seconds(60);  // until each answer begins
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

// What `keep` makes of the items that it takes (an optional T of each), by namespace and name: so much is in memory, however long the list.
template <class T, class Keep>
Result<std::vector<T>> Gather(Client& client, const ListSpec& spec, Keep keep, std::stop_token stop) {
  std::map<std::pair<std::string, std::string>, T> kept;
  auto take = [&](const Json& item) {
    const std::pair key(GetString(item, {"metadata", "namespace"}), GetString(item, {"metadata", "name"}));
    kept.erase(key);
    if (std::optional<T> made = keep(item)) kept.emplace(key, std::move(*made));
  };
  const ListEnd end = StreamList(client, spec, {.on_item = take, .on_restart = [&] { kept.clear(); }}, std::move(stop));
  if (!end.status.ok()) return end.status;
  std::vector<T> all;
  all.reserve(kept.size());
  for (auto& [key, made] : kept) all.push_back(std::move(made));
  return all;
}

// The Accept header for objects of a list or watch as they are, or reduced to their metadata where the server can.
std::string AcceptHeader(bool metadata_only, bool list);

}  // namespace holdfast::kube
