// Files that are punched behind the reader: their space comes back while they are stored, and whatever dies meanwhile, no hole is ever
// stored as zeros.
#include "base/log.h"
#include "storage/file_tree.h"
#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/pagemap_image.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::storage {
namespace {

constexpr uint64_t kEvery = 512 << 10;
constexpr uint64_t kPageBytes = 4096;

uint64_t BytesOnDisk(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

class Punch : public ::testing::Test {
 protected:
  // Pages far from each other, so that a leaf has half a MiB of them, a file that is no memory, and a short one.
  Punch() {
    Make(700, 64 << 10);
    WriteText(whole + "/volumes/data/file", RandomText(1'000'001, 2));
    WriteText(whole + "/result.json", "{}");
    Again();
  }
  void Make(uint64_t pages, uint64_t apart) {
    std::string pagemap = PagemapHead(1);
    for (uint64_t page = 0; page < pages; ++page) pagemap += EntryText(0x7f0000000000 + page * apart, 1);
    WriteText(whole + "/main/images/pages-1.img", RandomText(pages * kPageBytes, 1));
    WriteText(whole + "/main/images/pagemap-7.img", pagemap);
  }
  static std::string EntryText(uint64_t address, uint64_t pages) {
    std::string image;
    AppendRecord(PagemapEntry(address, pages), image);
    return image;
  }
  void Again() {
    ASSERT_OK(RemoveAll(landing));
    ASSERT_EQ(system(("cp -r " + whole + " " + landing).c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
    unlink(log.c_str());
  }
  IngestOptions Options() const {
    IngestOptions options;
    options.threads = 1;
    options.sent_log = log;
    options.punch_every_bytes = kEvery;
    return options;
  }
  Result<CommitResult> Store(LocalStore& store, const std::string& uid = "uid-1") {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(uid, "default"));
    HF_ASSIGN_OR_RETURN(std::vector<FileEntry> files, Ingest(landing, *session, Options()));
    return session->Commit(ManifestOf(uid, "default", std::move(files)));
  }
  void ExpectStored(LocalStore& store, const std::string& uid = "uid-1") {
    ASSERT_OK(RemoveAll(dir / "out"));
    ASSERT_OK(Fetch(store, uid, dir / "out", {}));
    ExpectSameTree(whole, dir / "out");
  }

  TempDir dir;
  const std::string whole = dir / "whole", landing = dir / "landing", log = dir / "uid-1.sent";
};

TEST_F(Punch, TheSpaceComesBackWhileFilesAreRead) {
  Make(20'000, 3 * kPageBytes);  // the pagemap is a long file, too
  Again();
  auto store = OpenStore(dir / "store");
  const std::string pages = landing + "/main/images/pages-1.img";
  const uint64_t before = BytesOnDisk(pages);
  uint64_t most_left = 0;
  auto session = Take(store->OpenSession("uid-1", "default"));
  IngestOptions options = Options();
  options.progress = [&](const Progress& progress) {
    const uint64_t left = BytesOnDisk(pages);
    if (progress.bytes < before) most_left = std::max(most_left, left + progress.bytes);
  };
  auto files = Take(Ingest(landing, *session, options));
  // Never more on the disk than what was not read yet, a round of punching, and the batch under way.
  EXPECT_LE(most_left, before + kEvery + 2 * kBatchBytes);
  EXPECT_LT(BytesOnDisk(pages), before / 50);
  EXPECT_EQ(ReadText(landing + "/main/images/pagemap-7.img"), ReadText(whole + "/main/images/pagemap-7.img"));
  EXPECT_EQ(ReadText(landing + "/result.json"), "{}");
  ASSERT_OK(session->Commit(ManifestOf("uid-1", "default", files)));
  ExpectStored(*store);
}

class PunchCrash : public Punch, public ::testing::WithParamInterface<const char*> {};

TEST_P(PunchCrash, IsGoneOnFromByWhoeverComesNext) {
  ASSERT_TRUE(DiesAt(dir / "faults", GetParam(), [&] {
    auto store = OpenStore(dir / "store");
    [[maybe_unused]] auto kept = Store(*store);
  })) << GetParam();
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Store(*store));
  ExpectStored(*store);
}

INSTANTIATE_TEST_SUITE_P(At, PunchCrash,
                         ::testing::Values("ingest.segment_sent", "ingest.sent_logged", "ingest.punched", "store.before_sync"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '.' || c == '_'; }, 'X');
                           return name;
                         });

TEST_F(Punch, APowerCutOfTheStoreLosesNothingThatIsGoneHere) {
  SetLogLevel(LogLevel::kError);
  auto options_on = [](SimFs& fs) {
    return LocalStoreOptions{.dir = "/store", .reserve_bytes = 0, .packs = {.pack_bytes = 1 << 20, .buffer_bytes = 64 << 10}, .fs = &fs};
  };
  auto run = [&](SimFs& fs) -> Status {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, LocalStore::Open(options_on(fs)));
    HF_ASSIGN_OR_RETURN(const SessionState state, store->StateOf("uid-1"));
    return state == SessionState::kCommitted ? Status::Ok() : Store(*store).status();
  };
  SimFs undisturbed;
  Again();
  ASSERT_OK(run(undisturbed));
  size_t gone_on = 0;
  for (uint64_t at = 1; at <= undisturbed.steps() && !HasFailure(); at += 3) {
    SCOPED_TRACE(at);
    SimFs fs;
    fs.FailAt(at, SimFs::Fault::kCrash);
    Again();
    [[maybe_unused]] Status cut = run(fs);
    gone_on += BytesOnDisk(landing + "/main/images/pages-1.img") < 700 * kPageBytes ? 1 : 0;
    std::unique_ptr<SimFs> left = fs.AfterCrash(at % 2 == 1 ? SimFs::Loss::kAllUnsynced : SimFs::Loss::kSomeUnsynced, 1);
    Status again = run(*left);
    ASSERT_TRUE(again.ok()) << again.ToString();
    auto store = Take(LocalStore::Open(options_on(*left)));
    ExpectStored(*store);
  }
  EXPECT_GT(gone_on, 5U);
}

TEST_F(Punch, WhatTheParentHadStaysWhenTheParentGoes) {
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-0", whole));
  {
    auto session = Take(store->OpenSession("uid-1", "default"));
    IngestOptions options = Options();
    options.parent = "uid-0";
    options.store = store.get();
    ASSERT_OK(Ingest(landing, *session, options));
  }
  EXPECT_LT(BytesOnDisk(landing + "/main/images/pages-1.img"), 1U << 20);
  ASSERT_OK(store->Delete("uid-0"));
  ASSERT_OK(store->Collect({}));
  // Another process of the agent, without a parent; then another one of the store.
  auto session = Take(store->OpenSession("uid-1", "default"));
  ASSERT_OK(Ingest(landing, *session, Options()));
  session.reset();
  store.reset();
  store = OpenStore(dir / "store");
  ASSERT_OK(store->Collect({}));
  ASSERT_OK(Store(*store));
  ExpectStored(*store);
}

TEST_F(Punch, AStoreThatHasLostWhatIsGoneIsToldOfNotFilledWithZeros) {
  {
    auto store = OpenStore(dir / "store");
    auto session = Take(store->OpenSession("uid-1", "default"));
    ASSERT_OK(Ingest(landing, *session, Options()));
  }
  auto other = OpenStore(dir / "another");
  Result<CommitResult> stored = Store(*other);
  EXPECT_EQ(CodeOf(stored), Code::kDataLoss) << stored.status().ToString();
  EXPECT_THAT(stored.status().message(), ::testing::HasSubstr("is not here any more"));
}

TEST_F(Punch, ALogThatIsNoneOrOfOtherFilesIsRefusedAndATornOneIsReadAsFarAsItIsWhole) {
  auto store = OpenStore(dir / "store");
  {
    auto session = Take(store->OpenSession("uid-1", "default"));
    ASSERT_OK(Ingest(landing, *session, Options()));
  }
  const std::string text = ReadText(log);
  ASSERT_EQ(text.size() % 80, 16U);
  WriteText(log, "something else, and long enough");
  EXPECT_EQ(CodeOf(Store(*store)), Code::kDataLoss);
  // Cut otherwise: a pagemap that is another one.
  WriteText(log, text);
  const std::string pagemap = ReadText(landing + "/main/images/pagemap-7.img");
  WriteText(landing + "/main/images/pagemap-7.img", "none");
  EXPECT_EQ(CodeOf(Store(*store)), Code::kDataLoss);
  WriteText(landing + "/main/images/pagemap-7.img", pagemap);
  // The last two leaves were not punched when the agent died.
  ASSERT_EQ(system(("cp -r " + whole + "/. " + landing).c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  WriteText(log, text.substr(0, text.size() - 100));
  ASSERT_OK(Store(*store));
  ExpectStored(*store);
}

TEST_F(Punch, AFileThatSomebodyElseHasTooStaysWhole) {
  ASSERT_EQ(link((landing + "/volumes/data/file").c_str(), (dir / "linked").c_str()), 0);
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Store(*store));
  EXPECT_EQ(ReadText(dir / "linked"), ReadText(whole + "/volumes/data/file"));
  ExpectStored(*store);
}

TEST_F(Punch, NothingIsPunchedForAStoreThatCannotSecure) {
  class Simple final : public Session {
   public:
    explicit Simple(std::unique_ptr<Session> session) : session_(std::move(session)) {}
    Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) override { return session_->Missing(ids); }
    Status Put(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) override {
      return session_->Put(id, codec, size, bytes);
    }
    Result<CommitResult> Commit(const Manifest& manifest) override { return session_->Commit(manifest); }
    Status Abort() override { return session_->Abort(); }
    const HashKey& hash_key() const override { return session_->hash_key(); }

   private:
    std::unique_ptr<Session> session_;
  };
  auto store = OpenStore(dir / "store");
  Simple session(Take(store->OpenSession("uid-1", "default")));
  auto files = Take(Ingest(landing, session, Options()));
  ExpectSameTree(whole, landing);
  ASSERT_OK(session.Commit(ManifestOf("uid-1", "default", files)));
}

}  // namespace
}  // namespace holdfast::storage
