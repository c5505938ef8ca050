// Keeps a copy of one resource current by list + watch. The list is asked for as a stream (WatchList) where the server can, else in pages;
// it is made again only when events may be missing: after 410, a dead stream, or an event that cannot be read. Versions never go back.
#pragma once

#include <functional>
#include <memory>

#include "kube/client.h"
#include "kube/reflector_backoff.h"

namespace holdfast::kube {

struct ReflectorOptions {
  RandomFn random{};           // of pauses and watch lengths; default: MakeRandom()
  bool watch_list = true;      // try WatchList before LIST
  int page_size = 500;         // of a LIST that goes to etcd
  bool metadata_only = false;  // ask for PartialObjectMetadata; a server that has none sends whole objects
  // A watch that ends with InternalError is opened again for so long before everything is listed.
  Duration internal_error_retry{0};
};

struct ReflectorStats {
  uint64_t lists = 0;        // lists taken over, those of WatchList too
  uint64_t watch_lists = 0;  // of these, the ones that came as a stream
  uint64_t events = 0;       // ADDED, MODIFIED, DELETED
  uint64_t skipped = 0;      // objects of another kind, and Tables
};

// Untyped engine: hands one object at a time to `sink`. All calls come on its own thread. See reflector_watch.cc for the life of an event.
class Reflector {
 public:
  struct Sink {
    // A new list comes in, beside what is there: nothing of it counts before list_done. The same object may come more than once.
    std::function<void(const Json& object)> list_item;
    std::function<void(const Json& object)> list_remove;  // deleted while the list came in
    std::function<void()> list_restart;                   // forget the items since the last list_done
    // The list is whole: objects that were there before and are not in it are gone, unless they are newer than `resource_version`.
    // `rolled_back`: the server's storage was restored to an older state; the list is right although its versions are older.
    std::function<void(const std::string& resource_version, bool rolled_back)> list_done;
    std::function<void(const Json& object)> upsert;
    std::function<void(const Json& object)> remove;
    std::function<void(const std::string& resource_version)> bookmark;  // every event up to it was delivered
  };
  Reflector(Client& client, Resource resource, ListOptions scope, Sink sink, ReflectorOptions options = {});
  ~Reflector();
  void Start();
  void Stop();  // joins the thread; never call it from the sink. Start goes on from the last version.
  bool synced() const;
  ReflectorStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
