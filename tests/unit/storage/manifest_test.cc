#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

FileEntry OneFile(const std::string& path, uint64_t size = 5) {
  FileEntry file{.path = path, .size = size, .mode = 0600, .segments = {}};
  file.segments.push_back({.id = {}, .size = static_cast<uint32_t>(size), .zero = true});
  return file;
}

// What Parse says to a manifest whose JSON `change` has edited.
Code ParseAfter(const std::function<void(Json&)>& change) {
  Json json = Json::parse(ManifestOf("uid-1", "default", {OneFile("main/images/core-1.img")}).Serialize());
  change(json);
  return CodeOf(Manifest::Parse(json.dump()));
}

TEST(Manifest, ComesBackAsItWas) {
  FileEntry file = OneFile("main/images/pages-1.img", 7);
  file.mode = 0640;
  file.segments.push_back({.id = HashSegment({}, AsBytes("x")), .size = kMaxSegmentBytes, .zero = false});
  file.size += kMaxSegmentBytes;
  FileEntry long_file{.path = "main/images/pages-2.img", .size = 9'000'000, .segments = {}, .leaves = {}};
  long_file.leaves.push_back({.id = HashSegment({}, AsBytes("y")), .size = 4616, .bytes = 8 << 20});
  long_file.leaves.push_back({.id = HashSegment({}, AsBytes("z")), .size = 80, .bytes = 9'000'000 - (8 << 20)});
  const Manifest manifest = ManifestOf("uid-1", "default", {file, long_file, FileEntry{.path = "empty", .segments = {}}});
  Result<Manifest> back = Manifest::Parse(manifest.Serialize());
  ASSERT_OK(back);
  EXPECT_EQ(back->Serialize(), manifest.Serialize());
  EXPECT_EQ(back->files[0].mode, 0640U);
  EXPECT_EQ(back->files[0].segments[1].id, file.segments[1].id);
  EXPECT_TRUE(back->files[0].segments[0].zero);
  EXPECT_EQ(back->files[1].leaves[1].id, long_file.leaves[1].id);
  EXPECT_EQ(back->files[1].leaves[1].bytes, long_file.leaves[1].bytes);
  EXPECT_EQ(back->TotalBytes(), 7 + kMaxSegmentBytes + 9'000'000);
  EXPECT_EQ(back->info, manifest.info);
}

TEST(Manifest, RefusesPathsThatLeaveTheirFolder) {
  for (const char* path : {"", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "./a", "a/./b", "a//b", "a/", "/a"}) {
    EXPECT_EQ(ParseAfter([&](Json& json) { json["files"][0]["path"] = path; }), Code::kInvalidArgument) << path;
  }
  EXPECT_EQ(ParseAfter([&](Json& json) { json["files"][0]["path"] = std::string("a\0b", 3); }), Code::kInvalidArgument);
  EXPECT_EQ(ParseAfter([&](Json& json) { json["files"][0]["path"] = std::string(5000, 'a'); }), Code::kInvalidArgument);
  std::string deep = "a";
  for (int i = 0; i < 40; ++i) deep += "/a";
  EXPECT_EQ(ParseAfter([&](Json& json) { json["files"][0]["path"] = deep; }), Code::kInvalidArgument);
}

TEST(Manifest, RefusesAPathThatJsonWouldChange) {
  EXPECT_EQ(CodeOf(CheckManifest(ManifestOf("uid-1", "default", {OneFile("caf\xe9")}))), Code::kInvalidArgument);
  EXPECT_OK(CheckManifest(ManifestOf("uid-1", "default", {OneFile("café")})));
}

TEST(Manifest, RefusesPathsThatCollide) {
  EXPECT_EQ(CodeOf(CheckManifest(ManifestOf("u", "default", {OneFile("a"), OneFile("a")}))), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(CheckManifest(ManifestOf("u", "default", {OneFile("a"), OneFile("a/b")}))), Code::kInvalidArgument);
  EXPECT_OK(CheckManifest(ManifestOf("u", "default", {OneFile("a"), OneFile("ab")})));
}

TEST(Manifest, RefusesWrongSizes) {
  auto with = [](const char* key, Json value) { return ParseAfter([&](Json& json) { json["files"][0][key] = value; }); };
  const std::string id = std::string(64, 'a');
  EXPECT_EQ(with("size", 6), Code::kInvalidArgument);
  EXPECT_EQ(with("size", -1), Code::kInvalidArgument);
  EXPECT_EQ(with("size", "5"), Code::kInvalidArgument);
  EXPECT_EQ(with("size", 1e300), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":0"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":-5"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":5x"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":99999999999999999999"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":1048577"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", "abc:5"), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", Json::array({1})), Code::kInvalidArgument);
  EXPECT_EQ(with("segments", id + ":5"), Code::kOk);
}

TEST(Manifest, RefusesWrongLeaves) {
  auto with = [](const std::string& leaves, const std::string& segments = "") {
    return ParseAfter([&](Json& json) {
      json["files"][0]["segments"] = segments;
      json["files"][0]["leaves"] = leaves;
    });
  };
  const std::string id = std::string(64, 'a');
  EXPECT_EQ(with(id + ":44:5"), Code::kOk);
  EXPECT_EQ(with(id + ":44:2 " + id + ":44:3"), Code::kOk);
  EXPECT_EQ(with(id + ":44:5", "0:5"), Code::kInvalidArgument) << "one or the other";
  for (const char* rest : {"", ":", ":44", ":44:", ":44:4", ":44:5:", ":44:5:5", ":44:5x", ":-4:5", ":0:5", ":8:5", ":99999:5", ":44:0 "}) {
    EXPECT_EQ(with(id + rest), Code::kInvalidArgument) << rest;
  }
  EXPECT_EQ(with("0:44:5"), Code::kInvalidArgument) << "a leaf of zeros is a leaf";
  EXPECT_EQ(with(id + ":44:999999999999"), Code::kInvalidArgument);
}

TEST(Manifest, RefusesHugeCounts) {
  std::string many;
  for (size_t i = 0; i <= kMaxReferences; ++i) many += "0:1 ";
  EXPECT_EQ(ParseAfter([&](Json& json) {
              json["files"][0]["segments"] = many;
              json["files"][0]["size"] = kMaxReferences + 1;
            }),
            Code::kInvalidArgument);
  Manifest files = ManifestOf("u", "default", {});
  files.files.resize(kMaxFiles + 1, FileEntry{.path = "x", .segments = {}});
  EXPECT_EQ(CodeOf(Manifest::Parse(files.Serialize())), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Manifest::Parse(std::string(kMaxManifestBytes + 1, ' '))), Code::kInvalidArgument);
}

TEST(Manifest, RefusesModesAndIdsAndNonsense) {
  EXPECT_EQ(ParseAfter([](Json& json) { json["files"][0]["mode"] = 04755; }), Code::kInvalidArgument);
  EXPECT_EQ(ParseAfter([](Json& json) { json["checkpointUID"] = "../../x"; }), Code::kInvalidArgument);
  EXPECT_EQ(ParseAfter([](Json& json) { json["ns"] = ".."; }), Code::kInvalidArgument);
  EXPECT_EQ(ParseAfter([](Json& json) { json["format"] = 3; }), Code::kUnsupported);
  for (const char* text : {"", "{", "[]", "null", "\"x\"", "{\"format\":2}"}) EXPECT_FALSE(Manifest::Parse(text).ok()) << text;
}

}  // namespace
}  // namespace holdfast::storage
