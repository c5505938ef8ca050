// A store's whole life on a file system that can be stopped anywhere, what the world was told of it, and what must hold afterwards.
#pragma once

#include "base/log.h"
#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::storage {

inline const Kek kKek = MakeKek(Secret{1, 2, 3});

inline LocalStoreOptions OptionsOn(SimFs& fs) {
  return {.dir = "/store", .reserve_bytes = 0, .keks = {kKek}, .packs = {.pack_bytes = 64 << 10, .buffer_bytes = 16 << 10}, .fs = &fs};
}

// Every other one can be compressed more by a collection.
inline std::string SegmentText(int number) {
  std::string text = RandomText(9000, static_cast<unsigned>(number));
  for (char& c : text) c = number % 2 == 0 ? c : static_cast<char>(c & 15);
  return text;
}

// What the world was told, and so may rely on.
struct Told {
  enum State { kNothing, kCommitting, kCommitted, kDeleting, kDeleted, kAborted };
  std::map<std::string, State> states;
  std::map<std::string, std::vector<int>> contents;
  std::string errors;  // of commits
};

class Life {
 public:
  explicit Life(SimFs& fs) : fs_(fs) {}
  Told told;

  // Whatever fails is left as it is, and the next thing is tried.
  void Run() {
    Result<std::unique_ptr<LocalStore>> opened = LocalStore::Open(OptionsOn(fs_));
    if (!opened.ok()) return;
    store_ = std::move(*opened);
    Commit("a", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    Commit("b", {2, 9, 11, 12});
    Abort("c", {13, 14, 2});
    Delete("a");
    Collect();
    Scrub();
    Commit("d", {11, 12, 3, 15, 16});
    Open("e", {17, 12});
    Delete("b");
    Collect(Duration(0));
    Scrub();
    Commit("f", {3, 15, 18});
    store_.reset();
  }

 private:
  static SegmentRef GiveOne(Session& session, const std::string& text) {
    SegmentRef ref{.id = HashSegment(session.hash_key(), AsBytes(text)), .size = static_cast<uint32_t>(text.size())};
    Result<std::vector<bool>> missing = session.Missing(std::vector{ref.id});
    if (missing.ok() && (*missing)[0]) {
      [[maybe_unused]] Status put = session.Put(ref.id, Codec::kRaw, ref.size, AsBytes(text));  // the commit says what is missing
    }
    return ref;
  }

  // "a" names its segments itself, the others have a leaf for every two: "b" and "d" share one, "d" and "f" another.
  static std::vector<FileEntry> Give(Session& session, const std::string& uid, const std::vector<int>& numbers) {
    FileEntry file{.path = "pages", .size = 0, .mode = 0600, .segments = {}, .leaves = {}};
    std::vector<SegmentRef> part;
    for (int number : numbers) {
      part.push_back(GiveOne(session, SegmentText(number)));
      file.size += part.back().size;
      if (uid == "a") {
        file.segments.push_back(part.back());
        part.clear();
      } else if (part.size() == 2 || number == numbers.back()) {
        uint64_t bytes = 0;
        for (const SegmentRef& segment : part) bytes += segment.size;
        const SegmentRef leaf = GiveOne(session, EncodeLeaf(part));
        file.leaves.push_back({.id = leaf.id, .size = leaf.size, .bytes = bytes});
        part.clear();
      }
    }
    return {file};
  }

  std::unique_ptr<Session> Open(const std::string& uid, const std::vector<int>& numbers, std::vector<FileEntry>* files = nullptr) {
    told.contents[uid] = numbers;
    Result<std::unique_ptr<Session>> session = store_->OpenSession(uid, "default");
    if (!session.ok()) return nullptr;
    std::vector<FileEntry> given = Give(**session, uid, numbers);
    if (files != nullptr) *files = std::move(given);
    return std::move(*session);
  }

  void Commit(const std::string& uid, const std::vector<int>& numbers) {
    // As an agent does: what failed is tried once more, with everything that is missing by then.
    for (int tries = 0; tries < 2 && told.states[uid] != Told::kCommitted; ++tries) {
      std::vector<FileEntry> files;
      std::unique_ptr<Session> session = Open(uid, numbers, &files);
      if (!session) continue;
      told.states[uid] = Told::kCommitting;
      Result<CommitResult> result = session->Commit(ManifestOf(uid, "default", files));
      if (result.ok()) told.states[uid] = Told::kCommitted;
      if (!result.ok()) told.errors += uid + ": " + result.status().ToString() + "\n";
    }
  }

  void Abort(const std::string& uid, const std::vector<int>& numbers) {
    std::unique_ptr<Session> session = Open(uid, numbers);
    if (store_->Abort(uid, "default").ok()) told.states[uid] = Told::kAborted;
  }

  void Delete(const std::string& uid) {
    if (told.states[uid] == Told::kNothing) return;
    told.states[uid] = Told::kDeleting;
    for (int tries = 0; tries < 2 && told.states[uid] != Told::kDeleted; ++tries) {
      // OK of what is not there says nothing while its commit may still be on its way.
      if (store_->Delete(uid).ok()) told.states[uid] = Told::kDeleted;
    }
  }

  void Scrub() { [[maybe_unused]] Status scrubbed = store_->Scrub({.bytes_per_second = 0, .every = Duration(0), .stop = {}}); }

  void Collect(Duration tighten_after = Duration::max()) {
    [[maybe_unused]] Result<CollectReport> report = store_->Collect({.tighten_after = tighten_after, .stop = {}});
  }

  SimFs& fs_;
  std::unique_ptr<LocalStore> store_;
};

// Everything that was promised holds, nothing else is visible, and all space comes back.
inline void ExpectKept(SimFs& fs, const Told& told, const std::string& when) {
  SCOPED_TRACE(when);
  {
    Result<std::unique_ptr<LocalStore>> opened = LocalStore::Open(OptionsOn(fs));
    ASSERT_OK(opened);
    LocalStore& store = **opened;
    for (const auto& [uid, numbers] : told.contents) {
      const auto state = told.states.find(uid);
      const Told::State promised = state == told.states.end() ? Told::kNothing : state->second;
      Result<Manifest> manifest = store.GetManifest(uid);
      if (promised == Told::kCommitted) ASSERT_OK(manifest);
      if (promised == Told::kAborted) {
        EXPECT_EQ(CodeOf(store.OpenSession(uid, "default")), Code::kFailedPrecondition) << uid;
      }
      if (promised == Told::kAborted || promised == Told::kDeleted || promised == Told::kNothing) {
        EXPECT_EQ(CodeOf(manifest), Code::kNotFound) << uid;
      }
      if (!manifest.ok()) continue;
      ASSERT_EQ(manifest->files.size(), 1U);
      Status read;
      const std::vector<SegmentRef> segments = SegmentsOf(store, uid, manifest->files[0], &read);
      ASSERT_OK(read);
      ASSERT_EQ(segments.size(), numbers.size());
      for (size_t i = 0; i < numbers.size(); ++i) {
        Result<std::string> content = store.GetSegment(uid, segments[i]);
        ASSERT_TRUE(content.ok()) << uid << " " << i << ": " << content.status().ToString();
        ASSERT_TRUE(*content == SegmentText(numbers[i])) << uid;
      }
    }
    opened->reset();
    Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = &fs}, 1);
    ASSERT_OK(report);
    EXPECT_TRUE(report->hurt.empty());
    EXPECT_EQ(report->damaged_objects, 0U);
    opened = LocalStore::Open(OptionsOn(fs));
    ASSERT_OK(opened);
    LocalStore& again = **opened;
    for (const auto& [uid, numbers] : told.contents) {
      if (again.StateOf(uid).value_or(SessionState::kUnknown) == SessionState::kOpen) ASSERT_OK(again.Abort(uid, "default"));
      ASSERT_OK(again.Delete(uid));
    }
    ASSERT_OK(again.Scrub({.bytes_per_second = 0, .every = Duration(0), .stop = {}}));
    EXPECT_TRUE(again.Hurt().empty());
    ASSERT_OK(again.Collect({}));
    EXPECT_EQ(again.Usage()->pack_bytes, 0U);
  }
  for (const std::string& path : fs.Files()) {
    EXPECT_FALSE(path.starts_with("/store/packs/") || path.starts_with("/store/index/") || path.starts_with("/store/trash/") ||
                 path.starts_with("/store/manifests/") || path.starts_with("/store/sessions/"))
        << path << " stays";
  }
}

}  // namespace holdfast::storage
