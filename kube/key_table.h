// A hash table of things that have a `std::string key` and a `uint32_t hash`, both set by the table, for tables that are looked into for
// every piece of work. What a look-up costs must not grow with the table, so it touches little memory: open addressing over 8 bytes a slot,
// and entries side by side in chunks, in the order in which they came. Entries do not move; the memory of a chunk goes when its last entry
// does. Thread-compatible.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::kube {

template <class Entry>
class KeyTable {
 public:
  KeyTable() : slots_(kMinSlots) {}
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;
  ~KeyTable() {
    for (const Slot& slot : slots_) {
      if (slot.place != 0) std::destroy_at(At(slot.place));
    }
  }

  Entry* Find(const std::string& key) const { return Find(key, HashOf(key)); }

  // At most 2^32 − 1 entries.
  Entry* FindOrAdd(const std::string& key) {
    const uint32_t hash = HashOf(key);
    if (Entry* found = Find(key, hash)) return found;
    if ((size_ + 1) * 3 > slots_.size() * 2) Resize(slots_.size() * 2);
    const uint32_t place = Take();
    Entry* added = std::construct_at(At(place));
    added->key = key;
    added->hash = hash;
    Put({hash, place});
    ++size_;
    return added;
  }

  void Erase(Entry* entry) {
    size_t hole = entry->hash & mask();
    while (slots_[hole].place == 0 || At(slots_[hole].place) != entry) hole = (hole + 1) & mask();
    const uint32_t place = slots_[hole].place;
    slots_[hole] = {};
    // Those behind it that were pushed away from their own place move up, so that a search never ends at a hole before its time.
    for (size_t i = (hole + 1) & mask(); slots_[i].place != 0; i = (i + 1) & mask()) {
      const size_t home = slots_[i].hash & mask();
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      slots_[hole] = std::exchange(slots_[i], {});
      hole = i;
    }
    std::destroy_at(entry);
    GiveBack(place);
    --size_;
    if (slots_.size() > kMinSlots && size_ * 16 < slots_.size()) Resize(slots_.size() / 4);
  }

  // Fetches what Find and Erase of this entry will look at. Large tables are not in a near cache, and their slots in no order.
  void Prefetch(const Entry* entry) const { __builtin_prefetch(&slots_[entry->hash & mask()], 1); }

  size_t size() const { return size_; }

 private:
  static constexpr size_t kMinSlots = 64;  // a power of two, as every size
  static constexpr uint32_t kChunk = 64;   // entries
  struct Slot {
    uint32_t hash = 0;
    uint32_t place = 0;  // 0: free; else 1 + chunk × kChunk + index in it
  };
  struct Chunk {
    uint64_t used = 0;  // a bit for each entry
    alignas(Entry) std::byte entries[kChunk * sizeof(Entry)];
  };

  static uint32_t HashOf(const std::string& key) {
    const size_t hash = std::hash<std::string>()(key);
    return static_cast<uint32_t>(hash ^ (hash >> 32));
  }
  size_t mask() const { return slots_.size() - 1; }

  Entry* At(uint32_t place) const {
    Chunk& chunk = *chunks_[(place - 1) / kChunk];
    return std::launder(reinterpret_cast<Entry*>(chunk.entries)) + (place - 1) % kChunk;
  }

  Entry* Find(const std::string& key, uint32_t hash) const {
    for (size_t i = hash & mask(); slots_[i].place != 0; i = (i + 1) & mask()) {
      if (slots_[i].hash != hash) continue;
      if (Entry* entry = At(slots_[i].place); entry->key == key) return entry;
    }
    return nullptr;
  }

  uint32_t Take() {
    if (open_.empty()) {
      open_.push_back(static_cast<uint32_t>(chunks_.size()));
      chunks_.emplace_back();
    }
    const uint32_t number = open_.back();
    std::unique_ptr<Chunk>& chunk = chunks_[number];
    if (!chunk) chunk = std::make_unique_for_overwrite<Chunk>();
    const auto index = static_cast<uint32_t>(std::countr_one(chunk->used));
    chunk->used |= uint64_t{1} << index;
    if (chunk->used == ~uint64_t{0}) open_.pop_back();
    return 1 + number * kChunk + index;
  }

  void GiveBack(uint32_t place) {
    const uint32_t number = (place - 1) / kChunk;
    std::unique_ptr<Chunk>& chunk = chunks_[number];
    if (chunk->used == ~uint64_t{0}) open_.push_back(number);
    chunk->used &= ~(uint64_t{1} << (place - 1) % kChunk);
    // The chunk that is filled next stays, or one key that comes and goes would fetch it each time.
    if (chunk->used == 0 && open_.back() != number) chunk.reset();
  }

  void Put(Slot slot) {
    size_t i = slot.hash & mask();
    while (slots_[i].place != 0) i = (i + 1) & mask();
    slots_[i] = slot;
  }

  void Resize(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.place != 0) Put(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<uint32_t> open_;  // chunks with room, the next one to be filled at the end; those that are null have nothing but room
};

}  // namespace holdfast::kube
