// Texts that many objects have in common (label keys and values, owners, images), stored once. A cache of ten thousand pods holds a few
// hundred different ones.
#pragma once

#include <atomic>
#include <compare>
#include <initializer_list>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace holdfast::kube {

// An immutable string in one pointer; copies share the text. Thread-safe as a shared_ptr is. Reads as std::string or std::string_view.
class SharedString {
 public:
  SharedString() = default;
  SharedString(std::string_view text) : block_(Make(text)) {}               // NOLINT(google-explicit-constructor)
  SharedString(const std::string& text) : block_(Make(text)) {}             // NOLINT(google-explicit-constructor)
  SharedString(const char* text) : block_(Make(std::string_view(text))) {}  // NOLINT(google-explicit-constructor)
  SharedString(const SharedString& other) : block_(other.block_) {
    if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
  }
  SharedString(SharedString&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  SharedString& operator=(SharedString other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~SharedString() {
    if (block_ != nullptr && block_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) Free(block_);
  }

  std::string_view view() const { return block_ == nullptr ? std::string_view() : std::string_view(block_->text(), block_->size); }
  std::string str() const { return std::string(view()); }
  operator std::string_view() const { return view(); }  // NOLINT(google-explicit-constructor)
  operator std::string() const { return str(); }        // NOLINT(google-explicit-constructor)
  size_t size() const { return block_ == nullptr ? 0 : block_->size; }
  bool empty() const { return block_ == nullptr; }
  bool starts_with(std::string_view prefix) const { return view().starts_with(prefix); }
  size_t find(std::string_view part) const { return view().find(part); }
  std::string substr(size_t from, size_t count = std::string_view::npos) const { return std::string(view().substr(from, count)); }
  // Nobody else has this text now. Only of use to who alone can hand out copies.
  bool unique() const { return block_ != nullptr && block_->references.load(std::memory_order_acquire) == 1; }
  bool same(const SharedString& other) const { return block_ == other.block_; }  // one and the same memory

  template <class T>
  requires std::convertible_to<const T&, std::string_view>
  friend bool operator==(const SharedString& a, const T& b) { return a.view() == std::string_view(b); }
  template <class T>
  requires std::convertible_to<const T&, std::string_view>
  friend std::strong_ordering operator<=>(const SharedString& a, const T& b) { return a.view() <=> std::string_view(b); }
  friend std::string operator+(std::string a, const SharedString& b) { return std::move(a.append(b.view())); }
  friend std::string operator+(const char* a, const SharedString& b) { return std::string(a).append(b.view()); }
  friend std::string operator+(const SharedString& a, std::string_view b) { return a.str().append(b); }
  friend std::ostream& operator<<(std::ostream& out, const SharedString& text) { return out << text.view(); }

 private:
  struct Block {
    std::atomic<uint32_t> references;
    uint32_t size;
    char* text() { return reinterpret_cast<char*>(this + 1); }
  };
  static Block* Make(std::string_view text);  // null when empty
  static void Free(Block* block);

  Block* block_ = nullptr;
};

// Makes equal texts one. Forgets those that nobody else has any more, so it is never much larger than what is in use. Thread-safe.
class StringPool {
 public:
  void Share(SharedString* text);
  size_t size() const;

 private:
  struct Hash {
    size_t operator()(const SharedString& text) const { return std::hash<std::string_view>()(text.view()); }
  };
  mutable std::mutex mutex_;
  std::unordered_set<SharedString, Hash> texts_;
  size_t sweep_at_ = 1024;
};

// A map of strings as labels and annotations are: few entries, sorted by key in one block of memory. What it has of std::map's interface
// means the same; references and iterators do not survive a change.
class StringMap {
 public:
  using value_type = std::pair<SharedString, SharedString>;
  using const_iterator = std::vector<value_type>::const_iterator;

  StringMap() = default;
  StringMap(std::initializer_list<value_type> entries);
  template <class Map>
  requires requires(const Map& map) {
    typename Map::mapped_type;
    map.begin();
  }
  StringMap(const Map& map) {  // NOLINT(google-explicit-constructor)
    entries_.reserve(map.size());
    for (const auto& [key, value] : map) (*this)[key] = value;
  }

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  const_iterator find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != end(); }
  const SharedString& at(std::string_view key) const;  // throws std::out_of_range
  SharedString& operator[](std::string_view key);
  size_t erase(std::string_view key);
  void clear() { entries_.clear(); }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  void reserve(size_t entries) { entries_.reserve(entries); }
  // All keys, and the values of at most this many bytes: longer ones are seldom alike.
  void Share(StringPool* pool, size_t longest_value = 64);

  friend bool operator==(const StringMap&, const StringMap&) = default;

 private:
  std::vector<value_type> entries_;
};

}  // namespace holdfast::kube
