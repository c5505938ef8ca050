// A hash table for millions of small entries: open addressing with linear probing in shards that grow by a quarter at 85 %, so an entry
// takes at most 1 / 0.68 of its size, and no growth copies more than a sixteenth of the table. Keys are the first 16 bytes of segment ids:
// two of 2^40 segments share them with a chance of 2^-49, and who wants to make such a pair needs 2^64 hashes to hurt nothing but his own
// namespace (content is always verified against the whole id). Slots are chosen with a secret factor, so that nobody can aim at one.
// Not thread-safe. Pointers to entries live until the next Insert or Erase.
#pragma once

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "storage/aead.h"
#include "storage/store.h"

namespace holdfast::storage {

struct IdKey {
  uint64_t low = 0, high = 0;  // both 0: an empty slot
  explicit IdKey(const SegmentId& id) {
    memcpy(&low, id.bytes.data(), 8);
    memcpy(&high, id.bytes.data() + 8, 8);
    if (low == 0 && high == 0) high = 1;
  }
  IdKey() = default;
  bool empty() const { return low == 0 && high == 0; }
  auto operator<=>(const IdKey&) const = default;
};

// `Entry` begins with an IdKey named `key` and can be copied.
template <class Entry>
class CompactTable {
 public:
  CompactTable() {
    if (!FillRandom(std::span(reinterpret_cast<uint8_t*>(&factor_), sizeof factor_)).ok()) factor_ = 0x9e3779b97f4a7c15;
    factor_ |= 1;
  }
  Entry* Find(const IdKey& key) {
    Shard& shard = shards_[ShardOf(key)];
    if (shard.slots.empty()) return nullptr;
    for (size_t at = Home(shard, key);; at = Next(shard, at)) {
      if (shard.slots[at].key == key) return &shard.slots[at];
      if (shard.slots[at].key.empty()) return nullptr;
    }
  }
  // The one that is there, or a new one; true when it is new.
  std::pair<Entry*, bool> Insert(const IdKey& key) {
    if (Entry* known = Find(key)) return {known, false};
    Shard& shard = shards_[ShardOf(key)];
    if (shard.slots.empty() || (shard.used + 1) * 100 > shard.slots.size() * 85) Resize(shard, shard.slots.size() * 5 / 4 + 8);
    ++shard.used;
    ++size_;
    Entry* slot = &shard.slots[FreeSlot(shard, key)];
    *slot = Entry{};
    slot->key = key;
    return {slot, true};
  }
  void Erase(const IdKey& key) {
    Entry* found = Find(key);
    if (found == nullptr) return;
    Shard& shard = shards_[ShardOf(key)];
    // Whoever was pushed on by this one, or by who sits between, moves back.
    size_t hole = static_cast<size_t>(found - shard.slots.data());
    for (size_t at = Next(shard, hole); !shard.slots[at].key.empty(); at = Next(shard, at)) {
      const size_t home = Home(shard, shard.slots[at].key), n = shard.slots.size();
      if ((at + n - home) % n < (at + n - hole) % n) continue;  // its home lies behind the hole
      shard.slots[hole] = shard.slots[at];
      hole = at;
    }
    shard.slots[hole] = Entry{};
    --shard.used;
    --size_;
    if (shard.used * 3 < shard.slots.size() && shard.slots.size() > 64) Resize(shard, shard.used * 3 / 2 + 8);
  }
  template <class Visit>
  void ForEach(Visit visit) {
    for (Shard& shard : shards_) {
      for (Entry& entry : shard.slots) {
        if (!entry.key.empty()) visit(entry);
      }
    }
  }
  size_t size() const { return size_; }
  size_t memory_bytes() const {
    size_t bytes = sizeof *this;
    for (const Shard& shard : shards_) bytes += shard.slots.capacity() * sizeof(Entry);
    return bytes;
  }

 private:
  struct Shard {
    std::vector<Entry> slots;
    size_t used = 0;
  };
  uint64_t Mix(const IdKey& key) const { return (key.low ^ (key.high >> 32) ^ (key.high << 32)) * factor_; }
  size_t ShardOf(const IdKey& key) const { return Mix(key) >> 60; }
  size_t Home(const Shard& shard, const IdKey& key) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(Mix(key) << 4) * shard.slots.size()) >> 64);
  }
  static size_t Next(const Shard& shard, size_t at) { return at + 1 == shard.slots.size() ? 0 : at + 1; }
  size_t FreeSlot(const Shard& shard, const IdKey& key) const {
    size_t at = Home(shard, key);
    while (!shard.slots[at].key.empty()) at = Next(shard, at);
    return at;
  }
  void Resize(Shard& shard, size_t slots) {
    std::vector<Entry> old(slots);
    old.swap(shard.slots);
    for (const Entry& entry : old) {
      if (!entry.key.empty()) shard.slots[FreeSlot(shard, entry.key)] = entry;
    }
  }

  uint64_t factor_ = 0;
  std::array<Shard, 16> shards_;
  size_t size_ = 0;
};

struct PinEntry {
  IdKey key;
};
using IdSet = CompactTable<PinEntry>;

}  // namespace holdfast::storage
