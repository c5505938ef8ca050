// A hash table of things that have a `std::string key`, for tables that are looked into for every piece of work: open addressing keeps what
// a look-up touches to one place in memory, whatever the number of entries, where std::unordered_map goes through other entries. Entries do
// not move. Thread-compatible.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::kube {

template <class Entry>
class KeyTable {
 public:
  KeyTable() : slots_(kMinSlots) {}

  Entry* Find(const std::string& key) const {
    const size_t hash = std::hash<std::string>()(key);
    for (size_t i = hash & mask(); slots_[i].entry; i = (i + 1) & mask()) {
      if (slots_[i].hash == hash && slots_[i].entry->key == key) return slots_[i].entry.get();
    }
    return nullptr;
  }

  Entry* FindOrAdd(const std::string& key) {
    if (Entry* found = Find(key)) return found;
    if ((size_ + 1) * 2 > slots_.size()) Resize(slots_.size() * 2);
    auto fresh = std::make_unique<Entry>();
    fresh->key = key;
    Entry* added = fresh.get();
    Put({std::hash<std::string>()(key), std::move(fresh)});
    ++size_;
    return added;
  }

  void Erase(const Entry* entry) {
    size_t hole = std::hash<std::string>()(entry->key) & mask();
    while (slots_[hole].entry.get() != entry) hole = (hole + 1) & mask();
    slots_[hole].entry.reset();
    // Those behind it that were pushed away from their own place move up, so that a search never ends at a hole before its time.
    for (size_t i = (hole + 1) & mask(); slots_[i].entry; i = (i + 1) & mask()) {
      const size_t home = slots_[i].hash & mask();
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    --size_;
    if (slots_.size() > kMinSlots && size_ * 16 < slots_.size()) Resize(slots_.size() / 4);
  }

  size_t size() const { return size_; }

 private:
  static constexpr size_t kMinSlots = 64;  // a power of two, as every size
  struct Slot {
    size_t hash = 0;
    std::unique_ptr<Entry> entry{};
  };

  size_t mask() const { return slots_.size() - 1; }

  void Put(Slot slot) {
    size_t i = slot.hash & mask();
    while (slots_[i].entry) i = (i + 1) & mask();
    slots_[i] = std::move(slot);
  }

  void Resize(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.entry) Put(std::move(slot));
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace holdfast::kube
