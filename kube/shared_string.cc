#include "kube/shared_string.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace holdfast::kube {
namespace {

bool KeyBefore(const StringMap::value_type& entry, std::string_view key) { return entry.first.view() < key; }

}  // namespace

SharedString::Block* SharedString::Make(std::string_view text) {
  if (text.empty()) return nullptr;
  if (text.size() > std::numeric_limits<uint32_t>::max()) throw std::length_error("a string of 4 GiB");
  auto* block = new (::operator new(sizeof(Block) + text.size())) Block{.references = 1, .size = static_cast<uint32_t>(text.size())};
  std::memcpy(block->text(), text.data(), text.size());
  return block;
}

void SharedString::Free(Block* block) {
  block->~Block();
  ::operator delete(block);
}

void StringPool::Share(SharedString* text) {
  if (text->empty()) return;
  std::lock_guard lock(mutex_);
  auto [at, added] = texts_.insert(*text);
  if (!added) {
    *text = *at;
    return;
  }
  if (texts_.size() < sweep_at_) return;
  // Only this pool hands out copies of a text of which it has the only one, so under the lock nobody can want it meanwhile.
  std::erase_if(texts_, [](const SharedString& kept) { return kept.unique(); });
  sweep_at_ = std::max<size_t>(1024, texts_.size() * 2);
}

size_t StringPool::size() const {
  std::lock_guard lock(mutex_);
  return texts_.size();
}

StringMap::StringMap(std::initializer_list<value_type> entries) {
  entries_.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (!contains(key)) (*this)[key] = value;
  }
}

StringMap::const_iterator StringMap::find(std::string_view key) const {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), key, KeyBefore);
  return at != entries_.end() && at->first == key ? at : entries_.end();
}

const SharedString& StringMap::at(std::string_view key) const {
  auto found = find(key);
  if (found == end()) throw std::out_of_range("no key " + std::string(key));
  return found->second;
}

SharedString& StringMap::operator[](std::string_view key) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), key, KeyBefore);
  if (at == entries_.end() || at->first != key) at = entries_.emplace(at, key, SharedString());
  return at->second;
}

size_t StringMap::erase(std::string_view key) {
  auto found = find(key);
  if (found == end()) return 0;
  entries_.erase(found);
  return 1;
}

void StringMap::Share(StringPool* pool, size_t longest_value) {
  for (auto& [key, value] : entries_) {
    pool->Share(&key);
    if (value.size() <= longest_value) pool->Share(&value);
  }
}

}  // namespace holdfast::kube
