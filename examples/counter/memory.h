// The counter's memory: pages of pseudo-random words that follow from a nonce, of which each count visits one window: it hashes the
// window and writes the count into every page of it. Who knows nonce, size and count can tell the hash without having the memory, so the
// witness notices a page that was lost, came from an older checkpoint, or was never written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counter {

inline constexpr size_t kPageWords = 512;    // 4 KiB
inline constexpr size_t kWindowPages = 256;  // what one count visits: 1 MiB, so 300 MiB are seen in 15 s at 20 counts a second

inline uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline uint64_t Windows(uint64_t mib) { return mib == 0 ? 1 : mib; }

// The first word of each page holds the count that last visited it (0: none); the others never change.
inline uint64_t Word(uint64_t nonce, uint64_t page, size_t index, uint64_t visited) {
  return index == 0 ? visited : Mix(nonce ^ (page * kPageWords + index));
}

// What `count` must find in its window. The previous visit was a whole round ago.
inline uint64_t ExpectedHash(uint64_t nonce, uint64_t mib, uint64_t count) {
  const uint64_t windows = Windows(mib);
  const uint64_t visited = count > windows ? count - windows : 0;
  uint64_t hash = nonce ^ count;
  for (uint64_t page = count % windows * kWindowPages, end = page + kWindowPages; page < end; ++page) {
    for (size_t i = 0; i < kPageWords; ++i) hash = (hash ^ Word(nonce, page, i, visited)) * 0x100000001b3;
  }
  return hash;
}

class Memory {
 public:
  // Fills the memory: all of it is touched when this returns.
  Memory(uint64_t nonce, uint64_t mib) : nonce_(nonce), windows_(Windows(mib)), words_(windows_ * kWindowPages * kPageWords) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] = Word(nonce, i / kPageWords, i % kPageWords, 0);
  }
  // The hash of the count's window; marks its pages as visited. Counts must come in order, starting at 1.
  uint64_t Visit(uint64_t count) {
    uint64_t hash = nonce_ ^ count;
    uint64_t* word = &words_[count % windows_ * kWindowPages * kPageWords];
    for (size_t page = 0; page < kWindowPages; ++page) {
      for (size_t i = 0; i < kPageWords; ++i) hash = (hash ^ word[i]) * 0x100000001b3;
      *word = count;
      word += kPageWords;
    }
    return hash;
  }

 private:
  const uint64_t nonce_, windows_;
  std::vector<uint64_t> words_;
};

}  // namespace counter
