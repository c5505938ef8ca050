// A checkpoint leaves a store as a stream and enters another one with other keys; what is not such a stream, or not whole, leaves nothing.
#include "storage/archive.h"

#include "storage/bytes.h"
#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::storage {
namespace {

using ::testing::HasSubstr;

LocalStoreOptions OptionsOn(SimFs& fs, uint8_t kek) {
  return {.dir = "/store",
          .reserve_bytes = 0,
          .keks = {MakeKek(Secret{kek})},
          .packs = {.pack_bytes = 1 << 20, .buffer_bytes = 64 << 10},
          .fs = &fs};
}

std::string Exported(Store& store, const std::string& id, Status* status = nullptr) {
  std::string archive;
  const Status written = Export(store, id, [&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  });
  if (status == nullptr) EXPECT_OK(written);
  if (status != nullptr) *status = written;
  return archive;
}

Result<Imported> TakeIn(LocalStore& store, std::string_view archive, const std::string& ns = "") {
  return Import(store, ns, [&](std::span<std::byte> bytes) -> Status {
    if (bytes.size() > archive.size()) return {Code::kDataLoss, "it was cut off"};
    memcpy(bytes.data(), archive.data(), bytes.size());
    archive.remove_prefix(bytes.size());
    return Status::Ok();
  });
}

void ExpectNothingLeft(LocalStore& store) {
  EXPECT_EQ(store.Usage()->manifests, 0U);
  EXPECT_EQ(store.Usage()->open_sessions, 0U);
  EXPECT_EQ(store.Usage()->objects, 0U);
}

TEST(Archive, CarriesACheckpointIntoAStoreWithOtherKeys) {
  TempDir dir;
  WriteText(dir / "in/main/images/pages-1.img", RandomText(30 << 20, 1) + std::string(20 << 20, '\0') + std::string(5 << 20, 'x'), 0640);
  WriteText(dir / "in/main/images/inventory.img", "short", 0400);
  WriteText(dir / "in/main/images/empty", "");
  SimFs one, other;
  auto from = Take(LocalStore::Open(OptionsOn(one, 1)));
  auto to = Take(LocalStore::Open(OptionsOn(other, 2)));
  ASSERT_OK(Keep(*from, "uid-1", dir / "in"));
  const std::string archive = Exported(*from, "uid-1");
  EXPECT_LT(archive.size(), 31U << 20) << "zeros and what packs well take little";
  Result<Imported> imported = TakeIn(*to, archive);
  ASSERT_OK(imported);
  EXPECT_EQ(imported->ns, "default");
  EXPECT_EQ(imported->checkpoint, "drain-uid-1");
  ASSERT_OK(Fetch(*to, imported->id, dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
  // It is cut as it was, so a later checkpoint of the same memory shares it.
  const Manifest was = *from->GetManifest("uid-1"), is = *to->GetManifest(imported->id);
  ASSERT_EQ(was.files.size(), is.files.size());
  for (size_t i = 0; i < was.files.size(); ++i) EXPECT_EQ(was.files[i].leaves.size(), is.files[i].leaves.size());
  EXPECT_EQ(GetString(is.info, {"pod"}), "web-0");
  EXPECT_EQ(GetString(is.info, {"importedFrom"}), "uid-1");
  EXPECT_LT(Keep(*to, "uid-2", dir / "in")->new_bytes, 100'000U);
  to.reset();
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = {MakeKek(Secret{2})}, .fs = &other}, 1);
  ASSERT_OK(report);
  EXPECT_TRUE(report->hurt.empty());
}

TEST(Archive, GoesIntoAnotherNamespaceWhenAskedTo) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs, 1)));
  TempDir dir;
  WriteText(dir / "in/a", "content");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  const std::string archive = Exported(*store, "uid-1");
  Result<Imported> twice = TakeIn(*store, archive);
  EXPECT_EQ(CodeOf(twice), Code::kAlreadyExists) << "two of a name could not both be Checkpoints";
  EXPECT_THAT(twice.status().message(), HasSubstr("uid-1"));
  Result<Imported> there = TakeIn(*store, archive, "other");
  ASSERT_OK(there);
  EXPECT_EQ(there->ns, "other");
  EXPECT_EQ(CodeOf(TakeIn(*store, archive, "../etc")), Code::kInvalidArgument);
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_OK(TakeIn(*store, archive));  // what was deleted comes back
}

TEST(Archive, IsFoundByItsNameOrId) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs, 1)));
  auto keep = [&](const std::string& uid, const std::string& name) {
    auto session = Take(store->OpenSession(uid, "default"));
    Manifest manifest = ManifestOf(uid, "default", {});
    manifest.checkpoint = name;
    ASSERT_OK(session->Commit(manifest));
  };
  keep("uid-1", "one");
  keep("uid-2", "two");
  keep("uid-3", "two");
  EXPECT_EQ(FindCheckpoint(*store, "default/one").value_or(""), "uid-1");
  EXPECT_EQ(FindCheckpoint(*store, "uid-2").value_or(""), "uid-2");
  EXPECT_EQ(CodeOf(FindCheckpoint(*store, "default/none")), Code::kNotFound);
  EXPECT_EQ(CodeOf(FindCheckpoint(*store, "../../etc/passwd")), Code::kInvalidArgument);
  Result<std::string> two = FindCheckpoint(*store, "default/two");
  EXPECT_EQ(CodeOf(two), Code::kInvalidArgument);
  EXPECT_THAT(two.status().message(), HasSubstr("uid-2 uid-3"));
}

TEST(Archive, OneThatWasCutOffOrDamagedAnywhereLeavesNothing) {
  SimFs one, other;
  auto from = Take(LocalStore::Open(OptionsOn(one, 1)));
  auto session = Take(from->OpenSession("uid-1", "default"));
  const std::vector<std::string> contents = {RandomText(70, 1), std::string(200, 'y'), RandomText(50, 2)};
  ASSERT_OK(session->Commit(
      ManifestOf("uid-1", "default", {PutLong(*session, "pages", contents, 2), PutFile(*session, "small", {RandomText(40, 3)})})));
  const std::string archive = Exported(*from, "uid-1");
  auto to = Take(LocalStore::Open(OptionsOn(other, 2)));
  for (size_t size = 0; size < archive.size(); ++size) {
    EXPECT_EQ(CodeOf(TakeIn(*to, std::string_view(archive).substr(0, size))), Code::kDataLoss) << size;
  }
  for (size_t at = 0; at < archive.size(); ++at) {
    std::string flipped = archive;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    Result<Imported> taken = TakeIn(*to, flipped);
    EXPECT_TRUE(CodeOf(taken) == Code::kInvalidArgument || CodeOf(taken) == Code::kDataLoss) << at << StatusText(taken);
    if (HasFailure()) return;
  }
  ASSERT_OK(to->Collect({}));
  ExpectNothingLeft(*to);
  EXPECT_OK(TakeIn(*to, archive));
}

TEST(Archive, OfADamagedCheckpointHasNoEnd) {
  SimFs one, other;
  auto from = Take(LocalStore::Open(OptionsOn(one, 1)));
  auto session = Take(from->OpenSession("uid-1", "default"));
  ASSERT_OK(session->Commit(ManifestOf("uid-1", "default", {PutFile(*session, "pages", {RandomText(9000, 1), RandomText(9000, 2)})})));
  for (const std::string& path : one.Files()) {
    if (path.starts_with("/store/packs/")) one.Content(path)[12'000] ^= 1;
  }
  Status status;
  const std::string archive = Exported(*from, "uid-1", &status);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  auto to = Take(LocalStore::Open(OptionsOn(other, 2)));
  EXPECT_EQ(CodeOf(TakeIn(*to, archive)), Code::kDataLoss);
  ExpectNothingLeft(*to);
}

// Archives as somebody hostile would write them, with a right hash at the end.
class Forged {
 public:
  explicit Forged(const Json& head) { Begin(DumpJson(head)); }
  static Forged Raw(const std::string& head) {
    Forged forged;
    forged.Begin(head);
    return forged;
  }
  Forged& File(const std::string& path, uint64_t size, uint32_t mode = 0600, char leaves = 0) {
    AppendInteger(static_cast<uint16_t>(path.size()), text_);
    text_ += path;
    AppendInteger(mode, text_);
    text_.push_back(leaves);
    AppendInteger(size, text_);
    return *this;
  }
  Forged& Piece(uint8_t kind, uint32_t size, uint32_t stored, const std::string& bytes = "") {
    text_.push_back(static_cast<char>(kind));
    AppendInteger(size, text_);
    AppendInteger(stored, text_);
    text_ += bytes;
    return *this;
  }
  Forged& End() { return Piece(4, 0, 0); }
  std::string Archive() const {
    std::string whole = text_ + "HFAREND1";
    StreamHash hash;
    hash.Add(AsBytes(whole));
    const std::array<uint8_t, 32> sum = hash.Sum();
    whole += AsText(sum);
    return whole;
  }

 private:
  Forged() = default;
  void Begin(const std::string& head) {
    text_ = "HFARCH01";
    AppendInteger(static_cast<uint32_t>(head.size()), text_);
    text_ += head;
  }
  std::string text_;
};

Json Head(int64_t files, int64_t bytes, const std::string& ns = "default", const std::string& name = "c") {
  return {{"ns", ns},       {"checkpoint", name}, {"checkpointUID", "u"}, {"created", ""}, {"info", Json::object()},
          {"files", files}, {"bytes", bytes}};
}

TEST(Archive, TakesNothingThatItWouldNotHaveWritten) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs, 1)));
  struct Case {
    const char* what;
    std::string archive;
  };
  auto lists = [](int pieces) {
    Forged forged(Head(1, pieces));
    forged.File("a", static_cast<uint64_t>(pieces), 0600, 1);
    for (int i = 0; i < pieces; ++i) forged.Piece(0, 1, 1, "x");
    return forged.Piece(3, 0, 0).End().Archive();
  };
  ASSERT_OK(
      TakeIn(*store, Forged(Head(1, 1, "good", "g")).File("a/b", 1).Piece(0, 1, 1, "x").End().Archive()));  // the forger knows the format
  for (const Case& c : std::vector<Case>{
           {"a path out of its folder", Forged(Head(1, 0)).File("../../etc/passwd", 0).End().Archive()},
           {"an absolute path", Forged(Head(1, 0)).File("/etc/passwd", 0).End().Archive()},
           {"a path with a NUL", Forged(Head(1, 0)).File(std::string("a\0b", 3), 0).End().Archive()},
           {"a path that is no UTF-8", Forged(Head(1, 0)).File("\xff\xfe", 0).End().Archive()},
           {"a path that is too long", Forged(Head(1, 0)).File(std::string(2000, 'a'), 0).End().Archive()},
           {"a path that is too deep",
            Forged(Head(1, 0)).File("a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", 0).End().Archive()},
           {"a path twice", Forged(Head(2, 0)).File("a", 0).End().File("a", 0).End().Archive()},
           {"a file that is a folder", Forged(Head(2, 0)).File("a", 0).End().File("a/b", 0).End().Archive()},
           {"a setuid file", Forged(Head(1, 0)).File("a", 0, 04755).End().Archive()},
           {"a namespace that is a path", Forged(Head(0, 0, "../x")).Archive()},
           {"no name", Forged(Head(0, 0, "default", "")).Archive()},
           {"a long name", Forged(Head(0, 0, "default", std::string(300, 'n'))).Archive()},
           {"a head that is no JSON", Forged::Raw("[[[[").Archive()},
           {"a deep head", Forged::Raw(std::string(100'000, '[')).Archive()},
           {"more files than may be", Forged(Head(100'001, 0)).Archive()},
           {"a negative number of files", Forged(Head(-1, 0)).Archive()},
           {"fewer files than it says", Forged(Head(2, 0)).File("a", 0).End().Archive()},
           {"more bytes than it says", Forged(Head(1, 1)).File("a", 2).Piece(0, 2, 2, "xy").End().Archive()},
           {"fewer bytes than it says", Forged(Head(1, 3)).File("a", 2).Piece(0, 2, 2, "xy").End().Archive()},
           {"a file longer than it says", Forged(Head(1, 2)).File("a", 2).Piece(0, 2, 2, "xy").Piece(0, 1, 1, "z").End().Archive()},
           {"a file shorter than it says", Forged(Head(1, 2)).File("a", 2).Piece(0, 1, 1, "x").End().Archive()},
           {"a piece of nothing", Forged(Head(1, 2)).File("a", 2).Piece(0, 0, 0).Piece(0, 2, 2, "xy").End().Archive()},
           {"a piece of 4 GiB", Forged(Head(1, int64_t{1} << 40)).File("a", uint64_t{1} << 40).Piece(0, ~0U, ~0U).End().Archive()},
           {"a piece that unpacks to something else", Forged(Head(1, 500)).File("a", 500).Piece(1, 500, 3, "xyz").End().Archive()},
           {"raw bytes of another length", Forged(Head(1, 5)).File("a", 5).Piece(0, 5, 3, "xyz").End().Archive()},
           {"zeros with content", Forged(Head(1, 5)).File("a", 5).Piece(2, 5, 3, "xyz").End().Archive()},
           {"an unknown kind", Forged(Head(1, 5)).File("a", 5).Piece(9, 5, 5, "xyzzy").End().Archive()},
           {"a list in a short file", Forged(Head(1, 1)).File("a", 1).Piece(0, 1, 1, "x").Piece(3, 0, 0).End().Archive()},
           {"an empty list", Forged(Head(1, 0)).File("a", 0, 0600, 1).Piece(3, 0, 0).End().Archive()},
           {"a list that does not end", Forged(Head(1, 1)).File("a", 1, 0600, 1).Piece(0, 1, 1, "x").End().Archive()},
           {"a list that is too long", lists(129)},
           {"another version", "HFARCH02" + std::string(100, ' ')},
           {"a tar", std::string(1024, '\0')},
       }) {
    Result<Imported> taken = TakeIn(*store, c.archive);
    EXPECT_TRUE(CodeOf(taken) == Code::kInvalidArgument || CodeOf(taken) == Code::kDataLoss) << c.what << ": " << StatusText(taken);
  }
  EXPECT_OK(TakeIn(*store, lists(128)));
  EXPECT_EQ(store->Usage()->manifests, 2U);
  EXPECT_EQ(store->Usage()->open_sessions, 0U);
}

}  // namespace
}  // namespace holdfast::storage
