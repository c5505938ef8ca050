#include "kube/list_cutter.h"

#include <gtest/gtest.h>

#include <random>

namespace holdfast::kube {
namespace {

struct Cut {
  Status status;
  std::vector<std::string> items;
  Json rest;
};

Cut CutUp(std::string_view text, size_t piece, ListCutter::Limits limits = {}) {
  Cut cut;
  ListCutter cutter(limits);
  for (size_t at = 0; at < text.size() && cut.status.ok(); at += piece) {
    cut.status = cutter.Feed(text.substr(at, piece), [&](std::string_view item) {
      cut.items.emplace_back(item);
      return Status::Ok();
    });
  }
  if (!cut.status.ok()) return cut;
  Result<Json> rest = cutter.Finish();
  cut.status = rest.status();
  if (rest.ok()) cut.rest = *rest;
  return cut;
}

TEST(ListCutter, CutsTheSameHoweverTheBytesArrive) {
  const std::string list = R"( {"kind":"PodList", "x": {"items": [1]}, "metadata":{"resourceVersion":"7","continue":"a\"]}b"} ,
    "items" : [ {"a":"}]\\\"{"},{"b":[{"c":{}}]} , {}
    ], "after": ["items", {"items": []}] } )";
  for (size_t piece = 1; piece <= list.size(); ++piece) {
    Cut cut = CutUp(list, piece);
    ASSERT_TRUE(cut.status.ok()) << "in pieces of " << piece << ": " << cut.status.ToString();
    EXPECT_EQ(cut.items, (std::vector<std::string>{R"({"a":"}]\\\"{"})", R"({"b":[{"c":{}}]})", "{}"})) << piece;
    EXPECT_EQ(GetString(cut.rest, {"metadata", "continue"}), "a\"]}b");
    EXPECT_EQ(*Find(cut.rest, {"items"}), Json::array());
    EXPECT_EQ(Find(cut.rest, {"x", "items"})->size(), 1u) << "only the list's own items are cut out";
  }
}

TEST(ListCutter, ReadsMetadataFromBehindTheItems) {
  Cut cut = CutUp(R"({"items":[{"a":1}],"metadata":{"resourceVersion":"9"}})", 5);
  EXPECT_EQ(cut.items.size(), 1u);
  EXPECT_EQ(GetString(cut.rest, {"metadata", "resourceVersion"}), "9");
}

TEST(ListCutter, SeesWhetherThereAreItems) {
  for (const char* none : {R"({"items":null})", R"({"kind":"Table","rows":[{}]})", R"({"data":"items","x":[]})"}) {
    ListCutter cutter;
    ASSERT_TRUE(cutter.Feed(none, [](std::string_view) { return Status::Ok(); }).ok()) << none;
    EXPECT_TRUE(cutter.Finish().ok()) << none;
    EXPECT_FALSE(cutter.has_items()) << none;
  }
}

TEST(ListCutter, RefusesWhatIsNoList) {
  for (const char* bad :
       {"", "{", R"({"items":[)", R"({"items":[{)", R"({"items":[{}")", R"({"items":[1]})", R"({"items":[null]})", R"({"items":["a"]})",
        R"({"items":[,{}]})", R"({"items":[{},]})", R"({"items":[{}{}]})", R"({"items":[[]]})", R"({"items":[],"items":[]})", "]", "}",
        R"({"items":[]}})", R"({"items":[]} x)", R"({"a":"b)", R"({"metadata":"x":"items":[{}]})"}) {
    for (size_t piece : {1, 100}) EXPECT_EQ(CutUp(bad, piece).status.code(), Code::kInvalidArgument) << bad;
  }
}

TEST(ListCutter, BoundsDepthAndSize) {
  const std::string deep = std::string(200, '[');
  EXPECT_EQ(CutUp(deep, 7).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(CutUp(R"({"items":[{"a":)" + deep, 7).status.code(), Code::kInvalidArgument);
  const ListCutter::Limits limits{.item_bytes = 11, .rest_bytes = 30};
  EXPECT_TRUE(CutUp(R"({"items":[{"a":"123"}]})", 3, limits).status.ok());
  for (size_t piece : {1, 3, 100}) {
    EXPECT_EQ(CutUp(R"({"items":[{"a":"1234"}]})", piece, limits).status.code(), Code::kResourceExhausted) << piece;
    EXPECT_EQ(CutUp(R"({"kind":"a kind with a long name","items":[]})", piece, limits).status.code(), Code::kResourceExhausted) << piece;
  }
}

// Whatever it lets pass reads as a parser of the whole reads it.
TEST(ListCutter, AgreesWithAParserOnDamagedLists) {
  const std::string whole =
      R"({"kind":"L","items":[{"a":"x\"]"},{"b":[1,{"c":null}]}],"metadata":{"resourceVersion":"7","x":[{}]},"z":"items"})";
  std::mt19937 random(1);
  const std::string bytes = "{}[]\",:\\ ax7\n";
  int passed = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole;
    for (unsigned changes = random() % 3 + 1; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char c = bytes[random() % bytes.size()];
      if (random() % 3 == 0) {
        text.erase(at, 1);
      } else if (random() % 2 == 0) {
        text.insert(at, 1, c);
      } else {
        text[at] = c;
      }
    }
    Cut cut = CutUp(text, random() % 20 + 1);
    Json items = Json::array();
    for (const std::string& item : cut.items) {
      Result<Json> read = ParseJson(item);
      if (!read.ok()) cut.status = read.status();
      if (read.ok()) items.push_back(*read);
    }
    Result<Json> parsed = ParseJson(text);
    if (!cut.status.ok()) {
      ++refused;
      continue;
    }
    ++passed;
    ASSERT_TRUE(parsed.ok()) << text;
    if (!cut.items.empty()) {
      ASSERT_EQ(*Find(*parsed, {"items"}), items) << text;
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(refused, 100);
}

TEST(ListCutter, EndsWhenTheReaderFails) {
  ListCutter cutter;
  int read = 0;
  Status status = cutter.Feed(R"({"items":[{},{},{}]})",
                              [&](std::string_view) { return ++read == 2 ? Status(Code::kInternal, "enough") : Status::Ok(); });
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_EQ(read, 2);
}

}  // namespace
}  // namespace holdfast::kube
