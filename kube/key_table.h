// A hash table of things that know their key, for tables that are looked into for every piece of work. What a look-up costs must not grow
// with the table, so it touches little memory: open addressing over 8 bytes a slot, and entries side by side in chunks, in the order in
// which they came. Entries do not move; the memory of a chunk goes when its last entry does. Thread-compatible.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace holdfast::kube {

// An Entry has a `uint32_t hash`, which the table sets, `bool Is(const Key&) const`, and `static size_t Hash(const Key&)`. One that only
// points to what a look-up touches may have `FetchFirst() const` and, called later, `FetchRest() const`: they prefetch that.
// (always_inline: GCC drops calls of functions that do nothing but prefetch.)
template <class Entry, class Key>
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

  Entry* Find(const Key& key) const { return Find(key, HashOf(key)); }

  struct Added {
    Entry* entry;
    bool is_new;
  };
  // `what` makes the entry when there is none. At most 2^32 − 1 entries.
  template <class... Args>
  Added FindOrAdd(const Key& key, Args&&... what) {
    const uint32_t hash = HashOf(key);
    if (Entry* found = Find(key, hash)) return {found, false};
    Reserve(size_ + 1);
    const uint32_t place = Take();
    Entry* added = std::construct_at(At(place), std::forward<Args>(what)...);
    added->hash = hash;
    Put({hash, place});
    ++size_;
    return {added, true};
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

  // All entries, as they lie in memory. `fn` may erase the entry that it is given, no other.
  template <class Fn>
  void ForEach(Fn fn) const {
    for (size_t number = 0; number < chunks_.size(); ++number) {
      for (uint64_t used = chunks_[number] ? chunks_[number]->used : 0; used != 0; used &= used - 1) {
        fn(At(1 + static_cast<uint32_t>(number) * kChunk + static_cast<uint32_t>(std::countr_zero(used))));
      }
    }
  }

  // Room for this many entries: adding them moves no slots.
  void Reserve(size_t entries) {
    size_t slots = slots_.size();
    while (entries * 3 > slots * 2) slots *= 2;
    if (slots != slots_.size()) Resize(slots);
  }

  // Fetches what Find and Erase of this entry will look at. Large tables are not in a near cache, and their slots in no order.
  [[gnu::always_inline]] void Prefetch(const Entry* entry) const { __builtin_prefetch(&slots_[entry->hash & mask()], 1); }

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

  static uint32_t HashOf(const Key& key) {
    const size_t hash = Entry::Hash(key);
    return static_cast<uint32_t>(hash ^ (hash >> 32));
  }
  size_t mask() const { return slots_.size() - 1; }

  Entry* At(uint32_t place) const {
    Chunk& chunk = *chunks_[(place - 1) / kChunk];
    return std::launder(reinterpret_cast<Entry*>(chunk.entries)) + (place - 1) % kChunk;
  }

  // Null: nothing is there.
  const Entry* EntryAt(uint32_t place) const {
    const size_t number = (place - 1) / kChunk;
    if (number >= chunks_.size() || !chunks_[number] || (chunks_[number]->used >> (place - 1) % kChunk & 1) == 0) return nullptr;
    return At(place);
  }

  Entry* Find(const Key& key, uint32_t hash) const {
    for (size_t i = hash & mask(); slots_[i].place != 0; i = (i + 1) & mask()) {
      if (slots_[i].hash != hash) continue;
      Entry* entry = At(slots_[i].place);
      if (!entry->Is(key)) continue;
      if constexpr (requires { entry->FetchFirst(); }) FetchAfter(slots_[i].place);
      return entry;
    }
    return nullptr;
  }

  // Lists, and the queues that they fill, go through entries in the order in which they came: the next ones are fetched meanwhile.
  [[gnu::always_inline]] void FetchAfter(uint32_t place) const {
    if (const Entry* next = EntryAt(place + 1)) {
      Prefetch(next);
      next->FetchRest();
    }
    if (const Entry* second = EntryAt(place + 2)) second->FetchFirst();
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
