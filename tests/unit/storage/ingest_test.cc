// From a folder into the store and back.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

uint64_t DiskBytes(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(IngestAndFetch, BringBackEveryKindOfFile) {
  TempDir dir;
  WriteText(dir / "in/request.json", "{}", 0644);
  WriteText(dir / "in/main/images/empty", "");
  WriteText(dir / "in/main/images/one", "x", 0400);
  WriteText(dir / "in/main/images/odd", RandomText(3 * kMaxSegmentBytes + 12'345, 1));
  WriteText(dir / "in/main/images/exact", RandomText(2 * kMaxSegmentBytes, 2));
  WriteText(dir / "in/main/images/zeros", std::string(kMaxSegmentBytes + 7, '\0'));
  WriteText(dir / "in/main/images/packs", std::string(5 * kMaxSegmentBytes, 'p') + RandomText(5, 3));
  WriteText(dir / "in/volumes/data.tar", RandomText(20 * kMaxSegmentBytes + 1, 4));
  for (int i = 0; i < 600; ++i) WriteText(dir / ("in/many/" + std::to_string(i)), "number " + std::to_string(i % 7));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  IngestOptions three;
  three.threads = 3;
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", three));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(IngestAndFetch, KeepHolesHoles) {
  TempDir dir;
  WriteText(dir / "in/sparse", "");
  int fd = open((dir / "in/sparse").c_str(), O_WRONLY);
  ASSERT_EQ(ftruncate(fd, 200 << 20), 0);
  const std::string island = RandomText(100'000, 1);
  ASSERT_EQ(pwrite(fd, island.data(), island.size(), 77'777'777), static_cast<ssize_t>(island.size()));
  close(fd);
  WriteText(dir / "in/zeros", std::string(4 << 20, '\0'));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  EXPECT_LT(store->Usage()->object_bytes, 300'000U);
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
  EXPECT_LT(DiskBytes(dir / "out/sparse"), 3U << 20);
  EXPECT_EQ(DiskBytes(dir / "out/zeros"), 0U);
}

TEST(Ingest, SendsOnlyWhatTheStoreLacks) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(10 * kMaxSegmentBytes, 1));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  std::string changed = ReadText(dir / "in/pages");
  changed[5 * kMaxSegmentBytes] ^= 1;
  WriteText(dir / "in/pages", changed);
  auto session = Take(store->OpenSession("uid-2", "default"));
  Progress last;
  IngestOptions options;
  options.progress = [&](const Progress& progress) { last = progress; };
  Result<std::vector<FileEntry>> files = Ingest(dir / "in", *session, options);
  ASSERT_OK(files);
  EXPECT_EQ(last.bytes, 10 * kMaxSegmentBytes);
  EXPECT_EQ(last.total, 10 * kMaxSegmentBytes);
  EXPECT_EQ(last.sent, kSegmentBytes + kMaxLeafBytes) << "and the list with it";
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", *files)));
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Ingest, LeavesOutWhatIsNotAFile) {
  TempDir dir;
  WriteText(dir / "in/a", "a");
  ASSERT_EQ(symlink("/etc/passwd", (dir / "in/link").c_str()), 0);
  ASSERT_EQ(mkfifo((dir / "in/fifo").c_str(), 0600), 0);
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  EXPECT_EQ(store->GetManifest("uid-1")->files.size(), 1U);
}

TEST(Ingest, StopsWhenAsked) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(30 * kMaxSegmentBytes, 1));
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  std::stop_source stop;
  IngestOptions options;
  options.stop = stop.get_token();
  options.progress = [&](const Progress&) { stop.request_stop(); };
  EXPECT_EQ(CodeOf(Ingest(dir / "in", *session, options)), Code::kCancelled);
}

TEST(Ingest, SaysWhenTheFolderIsNotThere) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  EXPECT_EQ(CodeOf(Ingest(dir / "nothing", *session, {})), Code::kNotFound);
}

TEST(Fetch, GoesOnWhereItStoppedAndMendsWhatDiffers) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(6 * kMaxSegmentBytes, 1) + std::string(kMaxSegmentBytes, '\0'));
  WriteText(dir / "in/short", "short");
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", {}));
  std::string damaged = ReadText(dir / "out/pages");
  damaged[kMaxSegmentBytes + 5] ^= 1;
  damaged[6 * kMaxSegmentBytes + 5] = 'x';
  WriteText(dir / "out/pages", damaged);
  WriteText(dir / "out/short", "something much longer");
  uint64_t fetched = 0;
  IngestOptions options;
  options.progress = [&](const Progress& progress) { fetched = progress.sent; };
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", options));
  ExpectSameTree(dir / "in", dir / "out");
  EXPECT_EQ(fetched, kSegmentBytes + 5);
}

TEST(Fetch, DoesNotFollowLinksOutOfItsFolder) {
  TempDir dir;
  WriteText(dir / "in/a/b", "content");
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  ASSERT_OK(MakeDirs(dir / "out"));
  ASSERT_OK(MakeDirs(dir / "elsewhere"));
  ASSERT_EQ(symlink((dir / "elsewhere").c_str(), (dir / "out/a").c_str()), 0);
  EXPECT_FALSE(Fetch(*store, "uid-1", dir / "out", {}).ok());
  unlink((dir / "out/a").c_str());
  ASSERT_OK(MakeDirs(dir / "out/a"));
  WriteText(dir / "elsewhere/b", "precious");
  ASSERT_EQ(symlink((dir / "elsewhere/b").c_str(), (dir / "out/a/b").c_str()), 0);
  EXPECT_FALSE(Fetch(*store, "uid-1", dir / "out", {}).ok());
  EXPECT_EQ(ReadText(dir / "elsewhere/b"), "precious");
}

// A store that lies: what Fetch writes is checked against the manifest whatever the store says.
class LyingStore final : public Store {
 public:
  explicit LyingStore(Manifest manifest) : manifest_(std::move(manifest)) {}
  Result<std::unique_ptr<Session>> OpenSession(const std::string&, const std::string&) override { return Status(Code::kUnsupported, ""); }
  Result<SessionState> StateOf(const std::string&) override { return SessionState::kCommitted; }
  Result<Manifest> GetManifest(const std::string&) override { return manifest_; }
  Result<std::string> GetSegment(const std::string&, const SegmentRef& segment) override { return std::string(segment.size + 1, 'x'); }
  Status Delete(const std::string&) override { return Status::Ok(); }

 private:
  Manifest manifest_;
};

TEST(Fetch, RefusesAHostileManifest) {
  TempDir dir;
  FileEntry file{.path = "../evil", .size = 1, .mode = 0600, .segments = {{.id = {}, .size = 1, .zero = true}}};
  LyingStore outside(ManifestOf("uid-1", "default", {file}));
  EXPECT_EQ(Fetch(outside, "uid-1", dir / "out", {}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(Exists(dir / "evil"));
  file.path = "a";
  file.segments[0] = {.id = HashSegment({}, AsBytes("x")), .size = 1};
  LyingStore longer(ManifestOf("uid-1", "default", {file}));
  EXPECT_EQ(Fetch(longer, "uid-1", dir / "out", {}).code(), Code::kDataLoss);
}

}  // namespace
}  // namespace holdfast::storage
