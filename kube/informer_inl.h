// The typed half of informer.h. What is not obvious: Observe may put an object into the cache before the watch brings it, so an entry
// knows both what readers see and what handlers were told, and the cache remembers up to which version it is complete, so that an object
// that the watch already deleted does not come back.
#pragma once

#include "base/log.h"
#include "kube/informer.h"

namespace holdfast::kube {

template <class T>
Informer<T>::Informer(Client& client, ListOptions scope) : client_(client), namespace_(scope.ns) {
  Reflector::Sink sink;
  sink.list_item = [this](const Json& object) {
    if (Ptr item = Decode(object)) listed_[item->meta.Key()] = item;
  };
  sink.list_restart = [this] { listed_.clear(); };
  sink.list_done = [this](const std::string& version, bool rolled_back) { ListDone(version, rolled_back); };
  sink.upsert = [this](const Json& object) { Upsert(object); };
  sink.remove = [this](const Json& object) { Remove(object); };
  reflector_ = std::make_unique<Reflector>(client, T::kResource, std::move(scope), std::move(sink));
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
void Informer<T>::Start() {
  reflector_->Start();
}

template <class T>
void Informer<T>::Stop() {
  reflector_->Stop();
}

template <class T>
bool Informer<T>::synced() const {
  std::lock_guard lock(sync_mutex_);
  return synced_;
}

template <class T>
bool Informer<T>::WaitForSync(Duration timeout, std::stop_token stop) const {
  std::unique_lock lock(sync_mutex_);
  return client_.clock().WaitUntil(lock, sync_changed_, client_.clock().Mono() + timeout, std::move(stop), [this] { return synced_; });
}

template <class T>
typename Informer<T>::Ptr Informer<T>::Get(const std::string& ns, const std::string& name) const {
  std::shared_lock lock(mutex_);
  auto found = objects_.find(ObjectKey{ns, name}.ToString());
  return found == objects_.end() ? nullptr : found->second.now;
}

template <class T>
std::vector<typename Informer<T>::Ptr> Informer<T>::List() const {
  std::shared_lock lock(mutex_);
  std::vector<Ptr> out;
  out.reserve(objects_.size());
  for (const auto& [key, entry] : objects_) out.push_back(entry.now);
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
void Informer<T>::Observe(const Json& object) {
  Ptr now = Decode(object);
  if (!now || (!namespace_.empty() && now->meta.ns != namespace_)) return;
  const std::string key = now->meta.Key(), &version = now->meta.resource_version;
  std::unique_lock lock(mutex_);
  auto found = objects_.find(key);
  if (found == objects_.end()) {
    // The watch is past this version, so the object was deleted meanwhile (or never was in our scope).
    if (!IsOlderVersion(seen_version_, version) && !seen_version_.empty()) return;
    found = objects_.try_emplace(key).first;
  } else if (!IsOlderVersion(found->second.now->meta.resource_version, version)) {
    return;
  }
  Put(key, found->second, std::move(now));
}

template <class T>
typename Informer<T>::Ptr Informer<T>::Decode(const Json& object) {
  try {
    auto value = std::make_shared<const T>(T::FromJson(object));
    if (!value->meta.name.empty()) return value;
    LogError("an object without a name was skipped", {{"resource", T::kResource.plural}, {"kind", GetString(object, {"kind"})}});
  } catch (const std::exception& e) {
    LogError("an object that cannot be read was skipped", {{"resource", T::kResource.plural}, {"error", e.what()}});
  }
  return nullptr;
}

template <class T>
void Informer<T>::Upsert(const Json& object) {
  Ptr now = Decode(object);
  if (!now) return;
  const std::string key = now->meta.Key(), version = now->meta.resource_version;
  Change change;
  {
    std::unique_lock lock(mutex_);
    Advance(version);
    Entry& entry = objects_[key];
    // Observe was ahead of the watch: the event of that version, or a newer one, will follow.
    if (entry.now && IsOlderVersion(version, entry.now->meta.resource_version)) return;
    if (entry.told && entry.told->meta.resource_version == version) return;
    change = {entry.told, now};
    Put(key, entry, now);
    entry.told = now;
  }
  Tell(change);
}

template <class T>
void Informer<T>::Remove(const Json& object) {
  Ptr last = Decode(object);
  if (!last) return;
  const std::string key = last->meta.Key(), &version = last->meta.resource_version;
  Change change;
  {
    std::unique_lock lock(mutex_);
    Advance(version);
    auto found = objects_.find(key);
    if (found == objects_.end()) return;
    Entry& entry = found->second;
    if (IsOlderVersion(version, entry.now->meta.resource_version)) return;  // re-created, and Observe was ahead of the watch
    change = {last, nullptr};
    Reindex(key, entry.now, nullptr);
    objects_.erase(found);
  }
  Tell(change);
}

template <class T>
void Informer<T>::ListDone(const std::string& version, bool rolled_back) {
  std::vector<Change> changes;
  {
    std::unique_lock lock(mutex_);
    if (rolled_back) seen_version_.clear();
    Advance(version);
    for (auto at = objects_.begin(); at != objects_.end();) {
      const auto& [key, entry] = *at;
      bool newer = !rolled_back && IsOlderVersion(version, entry.now->meta.resource_version);
      if (newer || listed_.contains(key)) {
        ++at;
        continue;
      }
      changes.push_back({entry.told ? entry.told : entry.now, nullptr});
      Reindex(key, entry.now, nullptr);
      at = objects_.erase(at);
    }
    for (auto& [key, now] : listed_) {
      Entry& entry = objects_[key];
      if (!rolled_back && entry.now && IsOlderVersion(now->meta.resource_version, entry.now->meta.resource_version)) continue;
      if (entry.told && entry.told->meta.resource_version == now->meta.resource_version) continue;
      changes.push_back({entry.told, now});
      Put(key, entry, now);
      entry.told = now;
    }
    listed_.clear();
  }
  for (const Change& change : changes) Tell(change);
  std::lock_guard lock(sync_mutex_);
  synced_ = true;
  sync_changed_.notify_all();
}

template <class T>
void Informer<T>::Tell(const Change& change) {
  for (const Handler& handler : handlers_) {
    try {
      handler(change.old, change.now);
    } catch (const std::exception& e) {
      LogError("an informer's handler threw", {{"resource", T::kResource.plural}, {"error", e.what()}});
    }
  }
}

template <class T>
void Informer<T>::Put(const std::string& key, Entry& entry, Ptr now) {
  Reindex(key, entry.now, now);
  entry.now = std::move(now);
}

template <class T>
void Informer<T>::Reindex(const std::string& key, const Ptr& old, const Ptr& now) {
  for (auto& [name, index] : indexes_) {
    if (old) {
      for (const std::string& value : index.fn(*old)) {
        auto found = index.values.find(value);
        if (found == index.values.end()) continue;
        found->second.erase(key);
        if (found->second.empty()) index.values.erase(found);
      }
    }
    if (now) {
      for (const std::string& value : index.fn(*now)) index.values[value][key] = now;
    }
  }
}

template <class T>
void Informer<T>::Advance(const std::string& version) {
  if (seen_version_.empty() || IsOlderVersion(seen_version_, version)) seen_version_ = version;
}

}  // namespace holdfast::kube
