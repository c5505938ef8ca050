#include "kube/key_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace holdfast::kube {
namespace {

struct Entry {
  explicit Entry(int its_key) : key(its_key) {}
  bool Is(int other) const { return key == other; }
  static size_t Hash(int key) { return std::hash<int>()(key); }
  void FetchFirst() const { ++first; }
  void FetchRest() const { ++rest; }

  const int key;
  uint32_t hash = 0;
  mutable int first = 0, rest = 0;
};

class KeyTableTest : public ::testing::Test {
 protected:
  KeyTableTest() {
    for (int key = 0; key < 200; ++key) table_.FindOrAdd(key, key);
  }
  // What a look-up of `key` fetches: for each entry touched, its key, and 1 for its first part, 2 for the rest.
  std::map<int, int> FetchedBy(int key) {
    table_.ForEach([](Entry* entry) { entry->first = entry->rest = 0; });
    EXPECT_NE(table_.Find(key), nullptr);
    std::map<int, int> fetched;
    table_.ForEach([&](const Entry* entry) {
      if (entry->first + entry->rest > 0) fetched[entry->key] = entry->first + 2 * entry->rest;
    });
    return fetched;
  }
  using Fetched = std::map<int, int>;
  KeyTable<Entry, int> table_;
};

TEST_F(KeyTableTest, ALookUpFetchesThoseThatCameAfterIt) {
  EXPECT_EQ(FetchedBy(10), (Fetched{{11, 2}, {12, 1}}));
  EXPECT_EQ(FetchedBy(62), (Fetched{{63, 2}, {64, 1}})) << "also in the next chunk";
  EXPECT_EQ(FetchedBy(198), (Fetched{{199, 2}}));
  EXPECT_EQ(FetchedBy(199), Fetched{});
}

TEST_F(KeyTableTest, ALookUpFetchesNothingOfWhatIsGone) {
  table_.Erase(table_.Find(11));
  EXPECT_EQ(FetchedBy(10), (Fetched{{12, 1}}));
  for (int key = 64; key < 128; ++key) table_.Erase(table_.Find(key));
  EXPECT_EQ(FetchedBy(63), Fetched{});
  EXPECT_EQ(table_.Find(64), nullptr);
}

}  // namespace
}  // namespace holdfast::kube
