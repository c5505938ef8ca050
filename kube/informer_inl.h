// The typed half of informer.h. What is not obvious: Observe may put an object into the cache before the watch brings it, so an entry
// knows both what readers see and what handlers were told, and the cache remembers up to which version it is complete, so that an object
// that the watch already deleted does not come back.
#pragma once

#include "base/log.h"
#include "kube/informer.h"

namespace holdfast::kube {

inline ObjectKey KeyOf(const Json& object) {
  return {GetString(object, {"metadata", "namespace"}), GetString(object, {"metadata", "name"})};
}

// Whether `object` is what `known` was read from.
inline bool IsUnchanged(const ObjectMeta& known, const Json& object) {
  return !known.resource_version.empty() && known.resource_version == GetString(object, {"metadata", "resourceVersion"}) &&
         known.uid == GetString(object, {"metadata", "uid"});
}

template <class T>
Informer<T>::Informer(Private, Client& client, Resource resource, ListOptions scope, ReflectorOptions options)
    : client_(client), resource_(resource), namespace_(scope.ns) {
  if constexpr (requires { T::kMetadataOnly; }) options.metadata_only = T::kMetadataOnly;
  Reflector::Sink sink;
  sink.list_item = [this](const Json& object) { ListItem(object); };
  sink.list_remove = [this](const Json& object) { ListRemove(object); };
  sink.list_restart = [this] { ListRestart(); };
  sink.list_done = [this](const std::string& version, bool rolled_back) { ListDone(version, rolled_back); };
  sink.upsert = [this](const Json& object) { Upsert(object); };
  sink.remove = [this](const Json& object) { Remove(object); };
  sink.bookmark = [this](const std::string& version) { Bookmark(version); };
  reflector_ = std::make_unique<Reflector>(client, std::move(resource), std::move(scope), std::move(sink), std::move(options));
}

template <class T>
Informer<T>::~Informer() {
  Stop();
}

template <class T>
void Informer<T>::AddHandler(Handler handler) {
  handlers_.push_back(std::move(handler));
}

template <class T>
void Informer<T>::AddIndex(const std::string& name, IndexFn fn) {
  indexes_[name].fn = std::move(fn);
}

template <class T>
void Informer<T>::SetTransform(Transform transform) {
  transform_ = std::move(transform);
}

template <class T>
void Informer<T>::Start() {
  reflector_->Start();
}

template <class T>
void Informer<T>::Stop() {
  reflector_->Stop();
}

template <class T>
bool Informer<T>::synced() const {
  std::lock_guard lock(wait_mutex_);
  return synced_;
}

template <class T>
bool Informer<T>::WaitForSync(Duration timeout, std::stop_token stop) const {
  std::unique_lock lock(wait_mutex_);
  return client_.clock().WaitUntil(lock, wait_changed_, client_.clock().Mono() + timeout, std::move(stop), [this] { return synced_; });
}

template <class T>
typename Informer<T>::Ptr Informer<T>::Get(const std::string& ns, const std::string& name) const {
  std::shared_lock lock(mutex_);
  const Entry* found = objects_.Find({ns, name});
  return found == nullptr ? nullptr : found->now;
}

template <class T>
std::vector<typename Informer<T>::Ptr> Informer<T>::List() const {
  std::shared_lock lock(mutex_);
  std::vector<Ptr> out;
  out.reserve(objects_.size());
  objects_.ForEach([&out](const Entry* entry) { out.push_back(entry->now); });
  return out;
}

template <class T>
std::vector<typename Informer<T>::Ptr> Informer<T>::ByIndex(const std::string& index, const std::string& value) const {
  std::shared_lock lock(mutex_);
  std::vector<Ptr> out;
  auto found = indexes_.find(index);
  if (found == indexes_.end()) return out;
  auto objects = found->second.values.find(value);
  if (objects == found->second.values.end()) return out;
  for (const auto& [key, object] : objects->second) out.push_back(object);
  return out;
}

template <class T>
size_t Informer<T>::size() const {
  std::shared_lock lock(mutex_);
  return objects_.size();
}

template <class T>
InformerStats Informer<T>::stats() const {
  return {.reflector = reflector_->stats(), .unreadable = unreadable_, .waits = waits_, .waits_in_vain = waits_in_vain_};
}

template <class T>
void Informer<T>::Observe(const Json& object) {
  Ptr now = Decode(object);
  if (!now || (!namespace_.empty() && now->meta.ns != namespace_)) return;
  const std::string& version = now->meta.resource_version;
  std::unique_lock lock(mutex_);
  Entry* found = objects_.Find(Name(now));
  if (found == nullptr) {
    // The watch is past this version, so the object was deleted meanwhile (or never was in our scope).
    if (!IsOlderVersion(seen_version_, version) && !seen_version_.empty()) return;
    Reindex(nullptr, now);
    objects_.FindOrAdd(Name(now), now);
  } else if (IsOlderVersion(found->now->meta.resource_version, version)) {
    Put(found, std::move(now));
  }
}

template <class T>
bool Informer<T>::Has(const std::string& version) const {
  std::shared_lock lock(mutex_);
  return !seen_version_.empty() && !IsOlderVersion(seen_version_, version);
}

template <class T>
bool Informer<T>::WaitFor(const std::string& version, Duration timeout, std::stop_token stop) const {
  if (Has(version)) return true;
  ++waits_;
  const MonoTime deadline = client_.clock().Mono() + timeout;
  std::unique_lock lock(wait_mutex_);
  ++waiters_;  // before Has looks again, or the event in between would wake nobody
  const bool has = client_.clock().WaitUntil(lock, wait_changed_, deadline, std::move(stop), [&] { return Has(version); });
  --waiters_;
  if (!has) ++waits_in_vain_;
  return has;
}

template <class T>
void Informer<T>::WakeWaiters() const {
  if (waiters_ == 0) return;
  std::lock_guard lock(wait_mutex_);
  wait_changed_.notify_all();
}

template <class T>
typename Informer<T>::Ptr Informer<T>::Decode(const Json& object) const {
  std::string why = "it has no name";
  try {
    T value = T::FromJson(object);
    if (!value.meta.name.empty()) {
      if (transform_) transform_(value);
      if constexpr (requires { value.Share(&strings_); }) {
        value.Share(&strings_);
      } else {
        value.meta.Share(&strings_);
      }
      return std::make_shared<const T>(std::move(value));
    }
  } catch (const std::exception& e) {
    why = e.what();
  }
  const uint64_t count = ++unreadable_;
  if ((count & (count - 1)) == 0) {
    LogError("an object that cannot be read was skipped", {{"resource", resource_.plural}, {"error", why}, {"skipped", count}});
  }
  return nullptr;
}

template <class T>
void Informer<T>::ListItem(const Json& object) {
  const ObjectKey key = KeyOf(object);
  if (Entry* again = listed_->Find({key.ns, key.name})) listed_->Erase(again);
  {
    std::shared_lock lock(mutex_);  // Observe may add entries meanwhile; nobody else looks at the mark
    Entry* found = objects_.Find({key.ns, key.name});
    if (found != nullptr && found->told && IsUnchanged(found->told->meta, object)) {
      found->list = list_;
      return;
    }
  }
  if (Ptr item = Decode(object)) listed_->FindOrAdd(Name(item), item);
}

template <class T>
void Informer<T>::ListRemove(const Json& object) {
  const ObjectKey key = KeyOf(object);
  if (Entry* listed = listed_->Find({key.ns, key.name})) listed_->Erase(listed);
  std::shared_lock lock(mutex_);
  if (Entry* found = objects_.Find({key.ns, key.name})) found->list = 0;
}

template <class T>
void Informer<T>::ListRestart() {
  listed_ = std::make_unique<Objects>();
  ++list_;
}

template <class T>
void Informer<T>::ListDone(const std::string& version, bool rolled_back) {
  std::vector<Change> changes;
  {
    std::unique_lock lock(mutex_);
    if (rolled_back) seen_version_.clear();
    Advance(version);
    objects_.ForEach([&](Entry* entry) {
      const bool newer = !rolled_back && IsOlderVersion(version, entry->now->meta.resource_version);
      if (newer || entry->list == list_ || listed_->Find(Name(entry->now)) != nullptr) {
        if (rolled_back && entry->list == list_) Put(entry, entry->told);  // not what Observe brought from a lost future
        return;
      }
      changes.push_back({entry->told ? entry->told : entry->now, nullptr});
      Reindex(entry->now, nullptr);
      objects_.Erase(entry);
    });
    objects_.Reserve(objects_.size() + listed_->size());
    listed_->ForEach([&](Entry* item) {
      const Ptr now = item->now;
      listed_->Erase(item);  // two tables never hold all of it
      const auto [entry, is_new] = objects_.FindOrAdd(Name(now), now);
      if (is_new) {
        Reindex(nullptr, now);
      } else if (!rolled_back && IsOlderVersion(now->meta.resource_version, entry->now->meta.resource_version)) {
        return;
      } else {
        Put(entry, now);
      }
      changes.push_back({entry->told, now});
      entry->told = now;
    });
    listed_ = std::make_unique<Objects>();
    ++list_;
  }
  for (const Change& change : changes) Tell(change);
  std::lock_guard lock(wait_mutex_);
  synced_ = true;
  wait_changed_.notify_all();
}

template <class T>
void Informer<T>::Upsert(const Json& object) {
  Ptr now = Decode(object);
  if (!now) return;
  const std::string& version = now->meta.resource_version;
  Change change;
  {
    std::unique_lock lock(mutex_);
    Advance(version);
    const auto [entry, added] = objects_.FindOrAdd(Name(now), now);
    // Observe was ahead of the watch: the event of that version, or a newer one, will follow.
    const bool late = IsOlderVersion(version, entry->now->meta.resource_version);
    const bool known = entry->told && entry->told->meta.resource_version == version;
    if (!late && !known) {
      change = {entry->told, now};
      Reindex(added ? nullptr : entry->now, now);
      entry->now = entry->told = now;
    }
  }
  WakeWaiters();
  if (change.now) Tell(change);
}

template <class T>
void Informer<T>::Remove(const Json& object) {
  Ptr last = Decode(object);
  if (!last) return;
  const std::string& version = last->meta.resource_version;
  Change change;
  {
    std::unique_lock lock(mutex_);
    Advance(version);
    Entry* found = objects_.Find(Name(last));
    // What is newer was created again, and Observe was ahead of the watch.
    if (found != nullptr && !IsOlderVersion(version, found->now->meta.resource_version)) {
      Reindex(found->now, nullptr);
      objects_.Erase(found);
      change.old = std::move(last);
    }
  }
  WakeWaiters();
  if (change.old) Tell(change);
}

template <class T>
void Informer<T>::Bookmark(const std::string& version) {
  {
    std::unique_lock lock(mutex_);
    Advance(version);
  }
  WakeWaiters();
}

template <class T>
void Informer<T>::Tell(const Change& change) const {
  for (const Handler& handler : handlers_) {
    try {
      handler(change.old, change.now);
    } catch (const std::exception& e) {
      LogError("an informer's handler threw", {{"resource", resource_.plural}, {"error", e.what()}});
    } catch (...) {
      LogError("an informer's handler threw", {{"resource", resource_.plural}, {"error", "no std::exception"}});
    }
  }
}

template <class T>
void Informer<T>::Put(Entry* entry, Ptr now) {
  Reindex(entry->now, now);
  entry->now = std::move(now);
}

template <class T>
std::vector<std::string> Informer<T>::ValuesOf(const Index& index, const T& object) const {
  try {
    return index.fn(object);
  } catch (const std::exception& e) {
    LogError("an informer's index function threw", {{"resource", resource_.plural}, {"error", e.what()}});
    return {};
  }
}

template <class T>
void Informer<T>::Reindex(const Ptr& old, const Ptr& now) {
  if (indexes_.empty()) return;
  const std::string key = (now ? now : old)->meta.Key();
  for (auto& [name, index] : indexes_) {
    if (old) {
      for (const std::string& value : ValuesOf(index, *old)) {
        auto found = index.values.find(value);
        if (found == index.values.end()) continue;
        found->second.erase(key);
        if (found->second.empty()) index.values.erase(found);
      }
    }
    if (now) {
      for (const std::string& value : ValuesOf(index, *now)) index.values[value][key] = now;
    }
  }
}

template <class T>
void Informer<T>::Advance(const std::string& version) {
  if (seen_version_.empty() || IsOlderVersion(seen_version_, version)) seen_version_ = version;
}

}  // namespace holdfast::kube
