// A typed cache of one resource, kept current by a Reflector. Readers see immutable snapshots of single objects; handlers get one object's
// events in order, on the informer's thread, and must not block (enqueue a key). While a new list comes in, everybody keeps the whole old
// view. synced() means: the first list was processed by all handlers.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "kube/key_table.h"
#include "kube/reflector.h"

namespace holdfast::kube {

struct InformerStats {
  ReflectorStats reflector;
  uint64_t unreadable = 0;     // objects without a name, or that threw while they were read
  uint64_t waits = 0;          // WaitFor that had to wait
  uint64_t waits_in_vain = 0;  // … and ran out of time
};

// T has FromJson(const Json&) and an ObjectMeta meta; kResource unless the constructor is given one; kMetadataOnly if metadata is all it
// reads; Share(StringPool*) if more of it than its metadata repeats from object to object.
template <class T>
class Informer {
 public:
  using Ptr = std::shared_ptr<const T>;
  // old is null for a new object, now is null for a deleted one (old is then its last known state). A deleted and re-created object may
  // look like one update: compare uids. What a handler throws is logged; the other handlers still hear of the change.
  using Handler = std::function<void(const Ptr& old, const Ptr& now)>;
  using IndexFn = std::function<std::vector<std::string>(const T&)>;
  using Transform = std::function<void(T&)>;

  explicit Informer(Client& client, ListOptions scope = {}, ReflectorOptions options = {}) requires requires {
    T::kResource;
  } : Informer(Private(), client, T::kResource, std::move(scope), std::move(options)) {
  }
  Informer(Client& client, Resource resource, ListOptions scope, ReflectorOptions options = {}) requires(!requires { T::kResource; })
      : Informer(Private(), client, std::move(resource), std::move(scope), std::move(options)) {}
  ~Informer();
  // Before Start only.
  void AddHandler(Handler handler);
  void AddIndex(const std::string& name, IndexFn fn);
  // Applied to each object once, before anybody sees it. It may drop what nobody needs, but not name, namespace, uid or resource version.
  void SetTransform(Transform transform);
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
  // Waits until everything up to `resource_version` is in the cache, by an event, a list or a bookmark: whoever wrote that version and
  // then reads the cache sees its own write, and whatever else happened before it. False when that takes longer than `timeout`, or when
  // stopped. Not from a handler. A version that is no number cannot be compared and is not waited for.
  bool WaitFor(const std::string& resource_version, Duration timeout, std::stop_token stop) const;
  InformerStats stats() const;

 private:
  struct Private {};
  struct Name {
    Name(std::string_view its_ns, std::string_view its_name) : ns(its_ns), name(its_name) {}
    explicit Name(const Ptr& object) : Name(object->meta.ns, object->meta.name) {}
    bool operator==(const Name&) const = default;
    std::string_view ns, name;
  };
  // Found by the name of `now`, so no key is stored beside it. All but that name may change in place.
  struct Entry {
    explicit Entry(Ptr object) : now(std::move(object)) {}
    bool Is(const Name& name) const { return Name(now) == name; }
    static size_t Hash(const Name& name) { return std::hash<std::string_view>()(name.ns) * 31 + std::hash<std::string_view>()(name.name); }

    // The object's metadata and, once that is here, its name.
    [[gnu::always_inline]] void FetchFirst() const {
      const auto* object = reinterpret_cast<const char*>(now.get());
      for (size_t at = 0; at < sizeof(ObjectMeta); at += 64) __builtin_prefetch(object + at);
    }
    [[gnu::always_inline]] void FetchRest() const { __builtin_prefetch(now->meta.name.data()); }

    Ptr now;            // what readers see; never null
    Ptr told{};         // what handlers saw last; older than `now` after Observe
    uint32_t list = 0;  // the last list that had it unchanged; reflector's thread only
    uint32_t hash = 0;  // the table's
  };
  using Objects = KeyTable<Entry, Name>;
  struct Index {
    IndexFn fn;
    std::unordered_map<std::string, std::map<std::string, Ptr>> values;  // value → key → object
  };
  struct Change {
    Ptr old, now;
  };

  Informer(Private, Client& client, Resource resource, ListOptions scope, ReflectorOptions options);
  Ptr Decode(const Json& object) const;  // null and a logged error when it has no name or cannot be read
  void ListItem(const Json& object);
  void ListRemove(const Json& object);
  void ListRestart();
  void ListDone(const std::string& resource_version, bool rolled_back);
  void Upsert(const Json& object);
  void Remove(const Json& object);
  void Bookmark(const std::string& resource_version);
  void Tell(const Change& change) const;
  bool Has(const std::string& resource_version) const;
  void WakeWaiters() const;
  // With mutex_ held for writing:
  void Put(Entry* entry, Ptr now);
  std::vector<std::string> ValuesOf(const Index& index, const T& object) const;
  void Reindex(const Ptr& old, const Ptr& now);
  void Advance(const std::string& resource_version);

  Client& client_;
  const Resource resource_;
  const std::string namespace_;
  std::vector<Handler> handlers_;
  Transform transform_;
  mutable StringPool strings_;

  mutable std::shared_mutex mutex_;  // never held while a handler runs or an object is read from JSON
  Objects objects_;
  std::map<std::string, Index> indexes_;
  std::string seen_version_;  // everything up to it is in objects_

  // The list that is coming in; reflector's thread only. What it has unchanged is only marked, so a list costs what changed.
  std::unique_ptr<Objects> listed_ = std::make_unique<Objects>();
  uint32_t list_ = 1;

  mutable std::mutex wait_mutex_;  // before mutex_
  mutable std::condition_variable_any wait_changed_;
  bool synced_ = false;
  mutable std::atomic<int> waiters_{0};
  mutable std::atomic<uint64_t> unreadable_{0}, waits_{0}, waits_in_vain_{0};
  std::unique_ptr<Reflector> reflector_;
};

}  // namespace holdfast::kube

#include "kube/informer_inl.h"
