#include "kube/watch_lines.h"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast::kube {
namespace {

TEST(WatchLines, AreTheSameHoweverTheBytesArrive) {
  const std::string stream = "first\n\nsecond line\nthird\nnot whole";
  for (size_t size = 1; size <= stream.size(); ++size) {
    WatchLines lines(100);
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += size) {
      EXPECT_TRUE(lines.Feed(std::string_view(stream).substr(at, size), [&](std::string_view line) {
        got.emplace_back(line);
        return true;
      }));
    }
    EXPECT_EQ(got, (std::vector<std::string>{"first", "second line", "third"})) << "in pieces of " << size;
  }
}

TEST(WatchLines, RefuseALineThatIsTooLong) {
  WatchLines lines(4);
  EXPECT_TRUE(lines.Feed("1234\n12", [](std::string_view) { return true; }));
  EXPECT_FALSE(lines.Feed("345", [](std::string_view) { return true; }));
  EXPECT_TRUE(lines.too_long());
}

TEST(WatchLines, EndWhenTheReaderSaysSo) {
  WatchLines lines(100);
  int read = 0;
  EXPECT_FALSE(lines.Feed("a\nb\n", [&](std::string_view) { return ++read < 1; }));
  EXPECT_EQ(read, 1);
}

}  // namespace
}  // namespace holdfast::kube
