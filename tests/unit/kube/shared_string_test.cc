#include "kube/shared_string.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/json.h"

namespace holdfast::kube {
namespace {

TEST(SharedString, ReadsAsAString) {
  SharedString text = "abc";
  SharedString copy = text, empty = "";
  EXPECT_TRUE(copy.same(text));
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(text, std::string("abc"));
  EXPECT_NE(text, empty);
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty, "");
  EXPECT_LT(text, SharedString("abd"));
  const std::string as_string = text;
  EXPECT_EQ(as_string, "abc");
  EXPECT_EQ("x" + text + "y", "xabcy");
  EXPECT_EQ(Json(text), Json("abc"));
  text = std::move(copy);
  EXPECT_EQ(text, "abc");
  text = "z";
  EXPECT_EQ(text, "z");
  EXPECT_EQ(SharedString(std::string("a\0b", 3)).size(), 3u);
}

TEST(StringPool, StoresEqualTextsOnceAndForgetsThem) {
  StringPool pool;
  SharedString a = "same", b = "same";
  EXPECT_FALSE(a.same(b));
  pool.Share(&a);
  pool.Share(&b);
  EXPECT_TRUE(a.same(b));
  for (int i = 0; i < 100000; ++i) {
    SharedString once = std::to_string(i);
    pool.Share(&once);
  }
  EXPECT_LT(pool.size(), 2000u) << "texts that nobody has any more stay";
  SharedString c = "same";
  pool.Share(&c);
  EXPECT_TRUE(a.same(c)) << "a text in use was forgotten";
}

TEST(StringPool, IsSharedByThreads) {
  StringPool pool;
  std::vector<SharedString> last(4);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < last.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 5000; ++i) {
          SharedString text = std::to_string(i % 100), unique = std::to_string(t) + "/" + std::to_string(i);
          pool.Share(&text);
          pool.Share(&unique);
          last[t] = text;
        }
      });
    }
  }
  for (const SharedString& text : last) EXPECT_TRUE(text.same(last[0]));
}

TEST(StringMap, IsAMapOfStrings) {
  StringMap map = {{"b", "2"}, {"a", "1"}, {"a", "not this"}};
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.begin()->first, "a") << "sorted";
  EXPECT_EQ(map.at("a"), "1");
  EXPECT_EQ(map["b"], "2");
  map["c"] = "3";
  EXPECT_TRUE(map.contains("c"));
  EXPECT_EQ(map.find("d"), map.end());
  EXPECT_THROW(map.at("d"), std::out_of_range);
  EXPECT_EQ(map.erase("a"), 1u);
  EXPECT_EQ(map.erase("a"), 0u);
  EXPECT_EQ(map, (StringMap{{"b", "2"}, {"c", "3"}}));
  EXPECT_EQ(StringMap(std::map<std::string, std::string>{{"c", "3"}, {"b", "2"}}), map);
  map = {{"x", "y"}};
  EXPECT_EQ(map.size(), 1u);
}

}  // namespace
}  // namespace holdfast::kube
