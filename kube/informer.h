// A cache of one resource, kept current by list + watch. It relists on 410, on a dead stream and after errors with backoff (800 ms to
// 30 s, jittered), and never goes back in time. Readers see immutable snapshots of single objects; handlers get one object's events in
// order, on the informer's thread, and must not block (enqueue a key). synced() means: the first list was processed by all handlers.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "kube/client.h"

namespace holdfast::kube {

// Untyped engine: drives `sink` with one object at a time, so that no more than a page of JSON is in memory. All calls come on its own
// thread. See informer.cc for the life of a watch event.
class Reflector {
 public:
  struct Sink {
    std::function<void(const Json& object)> list_item;
    std::function<void()> list_restart;  // forget the items since the last list_done
    // The list is whole: objects that were there before and are not in it are gone, unless they are newer than `resource_version`.
    // `rolled_back`: the server's storage was restored to an older state; the list is right although its versions are older.
    std::function<void(const std::string& resource_version, bool rolled_back)> list_done;
    std::function<void(const Json& object)> upsert;
    std::function<void(const Json& object)> remove;
  };
  Reflector(Client& client, Resource resource, ListOptions scope, Sink sink);
  ~Reflector();
  void Start();
  void Stop();  // joins the thread; never call it from the sink
  bool synced() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class T>
class Informer {
 public:
  using Ptr = std::shared_ptr<const T>;
  // old is null for a new object, now is null for a deleted one. A deleted and re-created object may look like one update.
  using Handler = std::function<void(const Ptr& old, const Ptr& now)>;
  using IndexFn = std::function<std::vector<std::string>(const T&)>;

  explicit Informer(Client& client, ListOptions scope = {});
  ~Informer();
  // Before Start only.
  void AddHandler(Handler handler);
  void AddIndex(const std::string& name, IndexFn fn);
  void Start();
  void Stop();  // not from a handler
  bool synced() const;
  bool WaitForSync(Duration timeout, std::stop_token stop) const;

  Ptr Get(const std::string& ns, const std::string& name) const;  // null when not in the cache
  std::vector<Ptr> List() const;
  std::vector<Ptr> ByIndex(const std::string& index, const std::string& value) const;
  size_t size() const;
  // Puts what a write returned into the cache unless it already has something newer: read-your-own-writes. Handlers hear of it when the
  // watch brings it.
  void Observe(const Json& object);

 private:
  struct Entry {
    Ptr now;   // what readers see
    Ptr told;  // what handlers saw last; older than `now` after Observe
  };
  struct Index {
    IndexFn fn;
    std::unordered_map<std::string, std::map<std::string, Ptr>> values;  // value → key → object
  };
  struct Change {
    Ptr old, now;
  };

  static Ptr Decode(const Json& object);  // null and a logged error when it has no name or cannot be read
  void Upsert(const Json& object);
  void Remove(const Json& object);
  void ListDone(const std::string& resource_version, bool rolled_back);
  void Tell(const Change& change);
  // With mutex_ held for writing:
  void Put(const std::string& key, Entry& entry, Ptr now);
  void Reindex(const std::string& key, const Ptr& old, const Ptr& now);
  void Advance(const std::string& resource_version);

  Client& client_;
  const std::string namespace_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Entry> objects_;
  std::map<std::string, Index> indexes_;
  std::string seen_version_;                     // everything up to it is in objects_
  std::unordered_map<std::string, Ptr> listed_;  // the list that is coming in; reflector's thread only
  std::vector<Handler> handlers_;
  mutable std::mutex sync_mutex_;
  mutable std::condition_variable_any sync_changed_;
  bool synced_ = false;
  std::unique_ptr<Reflector> reflector_;
};

}  // namespace holdfast::kube

#include "kube/informer_inl.h"
