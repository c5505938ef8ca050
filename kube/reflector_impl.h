// What reflector.cc (lists) and reflector_watch.cc (streams) share.
#pragma once

#include <atomic>
#include <optional>

#include "base/thread.h"
#include "kube/initial_events_timer.h"
#include "kube/list_stream.h"
#include "kube/reflector.h"
#include "kube/refusal.h"

namespace holdfast::kube {

class ReflectorMetrics;

struct Reflector::Impl {
  enum class Next {
    kWatch,      // from `version`
    kList,       // as the server likes it best
    kPagedList,  // WatchList has just failed
  };
  // One watch while it is open.
  struct Stream {
    bool staging = false;  // of a WatchList, until the bookmark that ends the initial events
    bool quiet = true;     // no event yet
    size_t events = 0;     // with an object of ours, bookmarks apart
    MonoTime start{};
    Status broken{};                   // what came is no event, or too much
    std::optional<Refusal> refusal{};  // an ERROR event
    Duration lasted{};
    InitialEventsTimer* timer = nullptr;
  };
  struct Counters {
    std::atomic<uint64_t> lists{0}, watch_lists{0}, events{0}, skipped{0};
  };

  Impl(Client& client, Resource resource, ListOptions scope, Sink sink, ReflectorOptions options);

  Client& client;
  const Resource resource;
  const ListOptions scope;
  const Sink sink;
  const ReflectorOptions options;
  ReflectorMetrics* const metrics;  // may be null
  ReflectorBackoff backoff;
  RetryWindow internal_errors;
  std::atomic<bool> synced{false};
  Counters counters{};

  // Of the reflector's thread.
  std::string version{};       // of the last list or event
  bool version_lost = false;   // the server has forgotten it, or has not reached it: list the newest
  bool whole_objects = false;  // the server refused to send metadata only
  size_t list_items = 0;       // of the list that comes in
  MonoTime list_start{};
  int old_lists = 0;
  int cut_streams = 0;         // WatchLists in a row that ended before their bookmark
  MonoTime watch_list_from{};  // do not try WatchList before: the server could not
  Thread thread{};             // last: it uses the others

  void Run(const std::stop_token& stop);
  Next List(const std::stop_token& stop);
  ListEnd ListPages(const std::stop_token& stop);
  void Restart();
  Status TakeOver(const std::string& listed);
  bool IsOurs(const Json& object);
  bool metadata_only() const { return options.metadata_only && !whole_objects; }
  const std::string& list_version() const;

  Next Watch(const std::stop_token& stop);
  Next WatchList(const std::stop_token& stop);
  std::string WatchPath(bool initial_events);
  Result<HttpResponse> Open(Stream* stream, const std::stop_token& stop);
  bool OnLine(Stream* stream, std::string_view line);
  Status OnEvent(Stream* stream, const std::string& type, const Json& object);
  Status OnBookmark(Stream* stream, const Json& object);
  Next Judge(const Stream& stream, const Result<HttpResponse>& result, const std::stop_token& stop);
  Next JudgeRefusal(const Stream& stream, const Refusal& refusal, bool opened, const std::stop_token& stop);
  Next JudgeStaging(const Stream& stream, const Result<HttpResponse>& result, bool gave_up, const std::stop_token& stop);

  void Pause(const Status& why, const std::stop_token& stop, Duration at_least = Duration(0));
};

}  // namespace holdfast::kube
