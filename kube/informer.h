// A cache of one resource, kept current by list + watch. It relists on 410, on a dead stream and after errors with backoff (800 ms to
// 30 s, jittered), and never goes back in time. Readers see immutable snapshots of single objects; handlers get one object's events in
// order, on the informer's thread, and must not block (enqueue a key). synced() means: the first list was processed by all handlers.
#pragma once

#include <functional>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "kube/client.h"

namespace holdfast::kube {

// Untyped engine: drives `sink` with Replace/Upsert/Delete of JSON objects. See informer.cc for the life of a watch event.
class Reflector {
 public:
  struct Sink {
    // The whole list: objects that were there before and are not in it are gone. Called with the cache's new resourceVersion.
    std::function<void(std::vector<Json> items)> replace;
    std::function<void(const Json& object)> upsert;
    std::function<void(const Json& object)> remove;
  };
  Reflector(Client& client, Resource resource, ListOptions scope, Sink sink);
  ~Reflector();
  void Start();
  void Stop();  // joins the thread
  bool synced() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class T>
class Informer {
 public:
  using Ptr = std::shared_ptr<const T>;
  // old is null for a new object, now is null for a deleted one.
  using Handler = std::function<void(const Ptr& old, const Ptr& now)>;
  using IndexFn = std::function<std::vector<std::string>(const T&)>;

  Informer(Client& client, ListOptions scope = {});
  // Before Start only.
  void AddHandler(Handler handler);
  void AddIndex(const std::string& name, IndexFn fn);
  void Start();
  void Stop();
  bool synced() const;
  bool WaitForSync(Duration timeout, std::stop_token stop) const;

  Ptr Get(const std::string& ns, const std::string& name) const;  // null when not in the cache
  std::vector<Ptr> List() const;
  std::vector<Ptr> ByIndex(const std::string& index, const std::string& value) const;
  size_t size() const;
  // Puts what a write returned into the cache unless it already has something newer: read-your-own-writes.
  void Observe(const Json& object);

 private:
  Ptr Apply(const Json& object, bool removed);

  struct Index {
    IndexFn fn;
    std::unordered_map<std::string, std::map<std::string, Ptr>> values;  // value → key → object
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Ptr> objects_;
  std::map<std::string, Index> indexes_;
  std::vector<Handler> handlers_;
  std::unique_ptr<Reflector> reflector_;
};

}  // namespace holdfast::kube

#include "kube/informer_inl.h"
