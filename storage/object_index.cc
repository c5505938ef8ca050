#include "storage/object_index.h"

namespace holdfast::storage {

ObjectInfo* ObjectIndex::Find(const std::string& ns, const IdKey& key) {
  auto objects = namespaces_.find(ns);
  return objects == namespaces_.end() ? nullptr : objects->second.Find(key);
}

void ObjectIndex::Erase(const std::string& ns, const IdKey& key) {
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return;
  objects->second.Erase(key);
  if (objects->second.size() == 0) namespaces_.erase(objects);
}

std::vector<IdKey> ObjectIndex::Unneeded(const std::string& ns) {
  std::vector<IdKey> keys;
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return keys;
  objects->second.ForEach([&](const ObjectInfo& object) {
    if (!object.needed()) keys.push_back(object.key);
  });
  return keys;
}

std::vector<IdKey> ObjectIndex::In(const std::string& ns, uint32_t pack) {
  std::vector<IdKey> keys;
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return keys;
  objects->second.ForEach([&](const ObjectInfo& object) {
    if (object.pack == pack) keys.push_back(object.key);
  });
  return keys;
}

std::vector<std::string> ObjectIndex::Namespaces() const {
  std::vector<std::string> names;
  for (const auto& [ns, objects] : namespaces_) names.push_back(ns);
  return names;
}

size_t ObjectIndex::Lost(const std::string& ns) {
  size_t lost = 0;
  auto objects = namespaces_.find(ns);
  if (objects != namespaces_.end()) objects->second.ForEach([&](const ObjectInfo& object) { lost += object.here() ? 0 : 1; });
  return lost;
}

size_t ObjectIndex::count() const {
  size_t count = 0;
  for (const auto& [ns, objects] : namespaces_) count += objects.size();
  return count;
}

size_t ObjectIndex::memory_bytes() const {
  size_t bytes = 0;
  for (const auto& [ns, objects] : namespaces_) bytes += objects.memory_bytes();
  return bytes;
}

}  // namespace holdfast::storage
