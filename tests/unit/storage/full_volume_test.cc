// A volume that is full and stays so: the checkpoint that no longer fits fails as kResourceExhausted (StoreFull), everybody else is served,
// and what a deletion and a collection free is enough to go on.
#include "tests/unit/storage/store_life.h"

namespace holdfast::storage {
namespace {

LocalStoreOptions WithReserve(SimFs& fs) {
  LocalStoreOptions options = OptionsOn(fs);
  options.reserve_bytes = 64 << 10;
  return options;
}

std::vector<std::string> Texts(int first, int count) {
  std::vector<std::string> texts;
  for (int number = first; number < first + count; ++number) texts.push_back(SegmentText(number));
  return texts;
}

// As an agent does, which asks what is missing first. Its errors, too, are the store's answer.
Status Keep(LocalStore& store, const std::string& uid, const std::vector<std::string>& texts) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(uid, "default"));
  FileEntry file{.path = "pages", .size = 0, .mode = 0600, .segments = {}, .leaves = {}};
  for (const std::string& text : texts) {
    SegmentRef ref{.id = HashSegment(session->hash_key(), AsBytes(text)), .size = static_cast<uint32_t>(text.size())};
    HF_ASSIGN_OR_RETURN(std::vector<bool> missing, session->Missing(std::vector{ref.id}));
    if (missing[0]) HF_RETURN_IF_ERROR(session->Put(ref.id, Codec::kRaw, ref.size, AsBytes(text)));
    file.segments.push_back(ref);
    file.size += text.size();
  }
  return session->Commit(ManifestOf(uid, "default", {file})).status();
}

void ExpectTexts(LocalStore& store, const std::string& uid, const std::vector<std::string>& texts) {
  Result<Manifest> manifest = store.GetManifest(uid);
  ASSERT_OK(manifest);
  ASSERT_EQ(manifest->files[0].segments.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(store.GetSegment(uid, manifest->files[0].segments[i]).value_or("") == texts[i]) << uid << " " << i;
  }
}

// Full from the `at`th operation of what the store does beside what it has; false when it was done before.
bool IsFullFrom(uint64_t at, bool reopened) {
  SCOPED_TRACE("full from operation " + std::to_string(at) + (reopened ? ", opened again" : ""));
  SimFs fs;
  auto store = Take(LocalStore::Open(WithReserve(fs)));
  EXPECT_OK(Keep(*store, "old", Texts(1, 20)));
  EXPECT_OK(Keep(*store, "other", Texts(19, 6)));
  const uint64_t begin = fs.steps();
  fs.FailAt(at, SimFs::Fault::kFull);
  const Status kept = Keep(*store, "new", Texts(40, 6));
  [[maybe_unused]] Status scrubbed = store->Scrub({.bytes_per_second = 0, .every = Duration(0), .stop = {}});
  const bool was_full = fs.steps() - begin >= at;
  EXPECT_TRUE(kept.ok() || kept.code() == Code::kResourceExhausted) << kept.ToString();
  if (was_full) {
    // What the failed one had written is free again, and may be enough for a small one.
    EXPECT_EQ(CodeOf(Keep(*store, "large", Texts(60, 20))), Code::kResourceExhausted);
  }
  if (reopened) {
    store.reset();
    store = Take(LocalStore::Open(WithReserve(fs)));
  }
  ExpectTexts(*store, "old", Texts(1, 20));
  ExpectTexts(*store, "other", Texts(19, 6));
  // The agents give up what failed: an open session keeps all of its namespace over a restart. That needs no room.
  if (!kept.ok()) EXPECT_OK(store->Abort("new", "default"));
  if (was_full) EXPECT_OK(store->Abort("large", "default"));
  // Nobody makes the volume larger: what goes makes the room.
  EXPECT_OK(store->Delete("old"));
  EXPECT_OK(store->Collect({}));
  EXPECT_OK(store->CheckRoom());
  EXPECT_OK(Keep(*store, "newer", Texts(40, 6)));
  ExpectTexts(*store, "newer", Texts(40, 6));
  ExpectTexts(*store, "other", Texts(19, 6));
  store.reset();
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = &fs}, 1);
  EXPECT_OK(report);
  EXPECT_TRUE(report.ok() && report->hurt.empty() && report->damaged_objects == 0);
  return was_full;
}

void IsFullFromEverywhere(bool reopened) {
  SetLogLevel(LogLevel::kError);
  uint64_t at = 1;
  while (!::testing::Test::HasFailure() && IsFullFrom(at, reopened)) ++at;
  EXPECT_GT(at, 30U) << "some of them were tried";
}

TEST(FullVolume, FailsWhatIsNewAndServesTheRestUntilACollectionMakesRoom) { IsFullFromEverywhere(false); }
TEST(FullVolume, IsOpenedAgainAndGoesOnWhenACollectionMadeRoom) { IsFullFromEverywhere(true); }

}  // namespace
}  // namespace holdfast::storage
