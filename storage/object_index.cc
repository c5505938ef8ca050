#include "storage/object_index.h"

namespace holdfast::storage {

ObjectInfo* ObjectIndex::Find(const std::string& ns, const SegmentId& id) {
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return nullptr;
  auto object = objects->second.find(id);
  return object == objects->second.end() ? nullptr : &object->second;
}

ObjectInfo& ObjectIndex::Put(const std::string& ns, const SegmentId& id, uint64_t stored_bytes) {
  auto [object, added] = namespaces_[ns].try_emplace(id);
  count_ += added ? 1 : 0;
  bytes_ += stored_bytes - object->second.stored_bytes;
  object->second.stored_bytes = stored_bytes;
  return object->second;
}

void ObjectIndex::Erase(const std::string& ns, const SegmentId& id) {
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return;
  auto object = objects->second.find(id);
  if (object == objects->second.end()) return;
  bytes_ -= object->second.stored_bytes;
  --count_;
  objects->second.erase(object);
  if (objects->second.empty()) namespaces_.erase(objects);
}

std::vector<SegmentId> ObjectIndex::Unneeded(const std::string& ns) const {
  std::vector<SegmentId> ids;
  auto objects = namespaces_.find(ns);
  if (objects == namespaces_.end()) return ids;
  for (const auto& [id, object] : objects->second) {
    if (object.refs == 0 && object.pins == 0) ids.push_back(id);
  }
  return ids;
}

}  // namespace holdfast::storage
