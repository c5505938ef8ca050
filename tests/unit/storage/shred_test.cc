// Keys that are wrapped anew and destroyed, and whoever stops that at every single operation: what is kept reads, what was shredded never
// does again, and whoever was stopped can do it once more.
#include "storage/shred.h"

#include "tests/unit/storage/store_life.h"

namespace holdfast::storage {
namespace {

const Kek kOld = MakeKek(Secret{1}), kNew = MakeKek(Secret{2});

LocalStoreOptions With(SimFs& fs, std::vector<Kek> keks) {
  LocalStoreOptions options = OptionsOn(fs);
  options.keks = std::move(keks);
  return options;
}

bool Keep(SimFs& fs, const std::vector<Kek>& keks, const std::string& uid, const std::string& ns, int first) {
  Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(With(fs, keks));
  if (!store.ok()) return false;
  Result<std::unique_ptr<Session>> session = (*store)->OpenSession(uid, ns);
  if (!session.ok()) return false;
  FileEntry file{.path = "pages", .size = 0, .mode = 0600, .segments = {}, .leaves = {}};
  for (int number = first; number < first + 3; ++number) {
    const std::string text = SegmentText(number);
    file.segments.push_back({.id = HashSegment((*session)->hash_key(), AsBytes(text)), .size = static_cast<uint32_t>(text.size())});
    file.size += text.size();
    if (!(*session)->Put(file.segments.back().id, Codec::kRaw, file.segments.back().size, AsBytes(text)).ok()) return false;
  }
  return (*session)->Commit(ManifestOf(uid, ns, {file})).ok();
}

struct Heard {
  bool kept = false, doomed = false, rewrapped = false, shredding = false, shredded = false;
};

// `first`: the KEKs of the beginning; none: the volume's own, which lies on it.
Heard Live(SimFs& fs, const std::vector<Kek>& first) {
  Heard told;
  std::vector<Kek> both = {kNew};
  both.insert(both.end(), first.begin(), first.end());
  told.kept = Keep(fs, first, "kept", "ns-kept", 1);
  told.doomed = Keep(fs, first, "doomed", "ns-doomed", 2);
  if (!told.kept || !told.doomed) return told;
  {
    Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(With(fs, both));
    told.rewrapped = store.ok() && (*store)->Rewrap().ok();
  }
  told.shredding = true;
  told.shredded = Shred({.dir = "/store", .keks = both, .fs = &fs}, "ns-doomed", true).ok();
  return told;
}

// Everything of `uid` reads, or (true) there is no such checkpoint: nothing in between.
bool IsGone(LocalStore& store, const std::string& uid, int first) {
  Result<Manifest> manifest = store.GetManifest(uid);
  if (CodeOf(manifest) == Code::kNotFound) return true;
  EXPECT_OK(manifest);
  for (size_t i = 0; manifest.ok() && i < 3; ++i) {
    const std::string text = store.GetSegment(uid, manifest->files[0].segments[i]).value_or("");
    EXPECT_TRUE(text == SegmentText(first + static_cast<int>(i))) << uid << " " << i;
  }
  return false;
}

void ExpectHolds(SimFs& fs, const Heard& told, const std::vector<Kek>& first, const std::string& when) {
  SCOPED_TRACE(when);
  // After the rotation the old one is not needed any more. A volume's own is found on it.
  std::vector<Kek> keks = {kNew};
  if (!told.rewrapped) keks.insert(keks.end(), first.begin(), first.end());
  if (told.rewrapped) {
    const std::vector<std::string> files = fs.Files();
    EXPECT_EQ(std::count(files.begin(), files.end(), "/store/KEK"), 0);
  }
  {
    Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(With(fs, keks));
    ASSERT_OK(store);
    const bool kept_gone = IsGone(**store, "kept", 1), doomed_gone = IsGone(**store, "doomed", 2);
    EXPECT_FALSE(told.kept && kept_gone);
    EXPECT_FALSE(told.doomed && !told.shredding && doomed_gone);
    EXPECT_FALSE(told.shredded && !doomed_gone);
  }
  if (told.shredded) {
    for (const std::string& path : fs.Files()) EXPECT_NE(path, "/store/keys/ns-doomed");
  }
  // Whoever did not hear that it was done does it again.
  ASSERT_OK(Shred({.dir = "/store", .keks = keks, .fs = &fs}, "ns-doomed", true));
  for (const std::string& path : fs.Files()) EXPECT_EQ(path.find("ns-doomed"), std::string::npos) << path;
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = keks, .fs = &fs}, 1);
  ASSERT_OK(report);
  EXPECT_TRUE(report->hurt.empty());
  EXPECT_TRUE(Keep(fs, keks, "after", "ns-doomed", 5)) << "the name is as good as new";
}

class ShredPowerCut : public ::testing::TestWithParam<bool> {
 protected:
  ShredPowerCut() { SetLogLevel(LogLevel::kError); }
  std::vector<Kek> First() const { return GetParam() ? std::vector<Kek>{kOld} : std::vector<Kek>{}; }
};

TEST_P(ShredPowerCut, AtEveryOperationOfARotationAndAShredLeavesTheOneOrTheOther) {
  SimFs whole;
  const Heard all = Live(whole, First());
  ASSERT_TRUE(all.rewrapped && all.shredded);
  const uint64_t steps = whole.steps();
  ExpectHolds(whole, all, First(), "undisturbed");
  for (uint64_t at = 1; at <= steps && !HasFailure(); ++at) {
    SimFs fs;
    fs.FailAt(at, SimFs::Fault::kCrash);
    const Heard told = Live(fs, First());
    for (const SimFs::Loss loss : {SimFs::Loss::kKill, SimFs::Loss::kAllUnsynced, SimFs::Loss::kSomeUnsynced}) {
      const std::unique_ptr<SimFs> left = fs.AfterCrash(loss, static_cast<unsigned>(at));
      ExpectHolds(*left, told, First(), "stopped at operation " + std::to_string(at) + ", loss " + std::to_string(static_cast<int>(loss)));
    }
  }
}

TEST_P(ShredPowerCut, AnErrorOfTheDiskAtEveryOperationIsToldOrHarmless) {
  SimFs whole;
  Live(whole, First());
  const uint64_t steps = whole.steps();
  for (uint64_t at = 1; at <= steps && !HasFailure(); ++at) {
    for (const SimFs::Fault fault : {SimFs::Fault::kInputOutput, SimFs::Fault::kNoSpace}) {
      SimFs fs;
      fs.FailAt(at, fault);
      const Heard told = Live(fs, First());
      ExpectHolds(fs, told, First(), "failed at operation " + std::to_string(at));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(With, ShredPowerCut, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "AKekThatWasGiven" : "TheVolumesOwnKek"; });

TEST(Shred, NeedsNoRoom) {
  SimFs fs;
  ASSERT_TRUE(Keep(fs, {kNew}, "doomed", "ns-doomed", 2));
  ASSERT_OK(Take(LocalStore::Open(With(fs, {kNew})))->Delete("doomed"));
  fs.Resize(fs.used());
  ASSERT_OK(Shred({.dir = "/store", .keks = {kNew}, .fs = &fs}, "ns-doomed", false));
  for (const std::string& path : fs.Files()) EXPECT_EQ(path.find("ns-doomed"), std::string::npos) << path;
}

}  // namespace
}  // namespace holdfast::storage
