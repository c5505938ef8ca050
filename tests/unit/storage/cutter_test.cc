// Where files are cut: by CRIU's pagemaps, by offset where there is none, and what becomes of maps that lie.
#include "storage/cutter.h"

#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/pagemap_image.h"

namespace holdfast::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096, kHeap = 0x5500'0000'0000;

std::vector<uint32_t> SizesOf(Cutter cutter) {
  std::vector<uint32_t> sizes;
  for (Cutter::Piece piece; cutter.Next(&piece);) sizes.push_back(piece.size);
  return sizes;
}

std::vector<uint32_t> PagesOf(const std::vector<PageRun>& runs) {
  uint64_t pages = 0;
  for (const PageRun& run : runs) pages += run.pages;
  std::vector<uint32_t> sizes = SizesOf(Take(Cutter::ByPages(Take(Pagemap::Parse(PagemapImage(1, runs))), pages * kPage)));
  for (uint32_t& size : sizes) size /= kPage;
  return sizes;
}

TEST(Cutter, CutsOtherFilesAtTheirOffsets) {
  EXPECT_TRUE(SizesOf(Cutter(0)).empty());
  EXPECT_THAT(SizesOf(Cutter(1)), ElementsAre(1));
  EXPECT_THAT(SizesOf(Cutter(2 * kSegmentBytes)), ElementsAre(kSegmentBytes, kSegmentBytes));
  EXPECT_THAT(SizesOf(Cutter(kSegmentBytes + 7)), ElementsAre(kSegmentBytes, 7));
}

TEST(Cutter, CutsPagesAtMultiplesOfTheirAddress) {
  EXPECT_THAT(PagesOf({{kHeap, 40}}), ElementsAre(16, 16, 8));
  EXPECT_THAT(PagesOf({{kHeap + 3 * kPage, 40}}), ElementsAre(13, 16, 11));
  // Gaps inside of a window do not divide it, its end does.
  EXPECT_THAT(PagesOf({{kHeap, 2}, {kHeap + 5 * kPage, 1}, {kHeap + 15 * kPage, 2}}), ElementsAre(4, 1));
  EXPECT_THAT(PagesOf({{kHeap, 1}, {kHeap + 32 * kPage, 1}}), ElementsAre(1, 1));
}

TEST(Cutter, KeepsItsCutsWhenPagesAreInsertedBefore) {
  const std::vector<uint32_t> before = PagesOf({{kHeap, 5}, {kHeap + 100 * kPage, 64}}),
                              after = PagesOf({{kHeap, 7}, {kHeap + 100 * kPage, 64}});
  EXPECT_THAT(before, ElementsAre(5, 12, 16, 16, 16, 4));
  EXPECT_THAT(after, ElementsAre(7, 12, 16, 16, 16, 4));
}

TEST(Cutter, MakesUpTheFileWhateverTheRunsAre) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<PageRun> runs;
    uint64_t address = kHeap + random() % 64 * kPage, pages = 0;
    for (int i = 0; i < 50; ++i) {
      runs.push_back({address, 1 + random() % (random() % 4 == 0 ? 300 : 5)});
      pages += runs.back().pages;
      address = random() % 10 == 0 ? kHeap + random() % 1000 * kPage : address + (runs.back().pages + random() % 20) * kPage;
    }
    uint64_t sum = 0;
    for (uint32_t size : PagesOf(runs)) {
      ASSERT_GT(size, 0U);
      ASSERT_LE(size, kSegmentBytes / kPage);
      sum += size;
    }
    ASSERT_EQ(sum, pages);
  }
}

TEST(Pagemap, CountsOnlyWhatLiesInTheFile) {
  std::string image = PagemapHead(7);
  AppendRecord(PagemapEntry(kHeap, 3), image);
  AppendRecord(PagemapEntry(kHeap + 10 * kPage, 5, /*flags=*/1), image);  // in the parent
  AppendRecord(PagemapEntry(kHeap + 20 * kPage, 5, /*flags=*/2), image);  // lazy
  std::string old;                                                        // before CRIU 2.10: no flags, and no length of 64 bits
  AppendNumber(1, kHeap + 30 * kPage, old);
  AppendNumber(2, 2, old);
  AppendRecord(old, image);
  AppendNumber(3, 1, old);
  AppendRecord(old, image);
  Pagemap map = Take(Pagemap::Parse(image));
  EXPECT_EQ(Pagemap::PagesIdOf(image), 7U);
  EXPECT_EQ(map.pages(), 5U);
  PageRun run;
  ASSERT_TRUE(map.Next(&run));
  EXPECT_EQ(run.pages, 3U);
  ASSERT_TRUE(map.Next(&run));
  EXPECT_EQ(run.address, kHeap + 30 * kPage);
  EXPECT_FALSE(map.Next(&run));
}

TEST(Pagemap, RefusesWhatCannotBeOne) {
  const std::string good = PagemapImage(1, {{kHeap, 3}});
  for (size_t size = 0; size < good.size(); ++size) {
    if (size == PagemapHead(1).size()) continue;  // a map of nothing
    EXPECT_EQ(CodeOf(Pagemap::Parse(good.substr(0, size))), Code::kInvalidArgument) << size;
  }
  EXPECT_EQ(CodeOf(Pagemap::Parse("x" + good)), Code::kInvalidArgument);
  for (const PageRun& run : std::vector<PageRun>{{kHeap + 1, 1}, {kHeap, 0}, {~uint64_t{0} - 4095, 1}, {kHeap, ~uint64_t{0}}}) {
    EXPECT_EQ(CodeOf(Pagemap::Parse(PagemapImage(1, {run}))), Code::kInvalidArgument) << run.address << " " << run.pages;
  }
  EXPECT_EQ(CodeOf(Pagemap::Parse(PagemapImage(1, {{kHeap, uint64_t{1} << 40}, {kHeap, 1}}))), Code::kInvalidArgument);
}

TEST(Cutter, RefusesAMapOfAnotherFile) {
  const Pagemap map = Take(Pagemap::Parse(PagemapImage(1, {{kHeap, 3}})));
  for (uint64_t bytes : {uint64_t{0}, kPage, 2 * kPage, 3 * kPage - 1, 3 * kPage + 1, 6 * kPage, 3 * kPage * 1024}) {
    EXPECT_EQ(CodeOf(Cutter::ByPages(map, bytes)), Code::kInvalidArgument) << bytes;
  }
  EXPECT_OK(Cutter::ByPages(map, 3 * kPage));
  EXPECT_OK(Cutter::ByPages(map, uint64_t{3} * 65536));  // a machine with larger pages
}

std::string Memory(uint64_t pages, unsigned seed) { return RandomText(pages * kPage, seed); }

// New pages before, between and after: all that is sent again is what lies in a window with one of them.
TEST(Ingest, SharesMemoryThatMovedInTheFile) {
  TempDir dir;
  const std::string a = Memory(100, 1), b = Memory(1000, 2);
  WriteText(dir / "in/main/images/pagemap-42.img", PagemapImage(3, {{kHeap, 100}, {kHeap + 1000 * kPage, 1000}}));
  WriteText(dir / "in/main/images/pages-3.img", a + b);
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  WriteText(dir / "in/main/images/pagemap-42.img", PagemapImage(3, {{kHeap, 102}, {kHeap + 1000 * kPage, 1000}}));
  WriteText(dir / "in/main/images/pages-3.img", a + Memory(2, 3) + b);
  auto session = Take(store->OpenSession("uid-2", "default"));
  uint64_t sent = 0;
  IngestOptions options;
  options.progress = [&](const Progress& progress) { sent = progress.sent; };
  auto files = Ingest(dir / "in", *session, options);
  ASSERT_OK(files);
  EXPECT_LT(sent, 2 * kSegmentBytes);
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", *files)));
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Ingest, KeepsPagesWhoseMapIsNoUse) {
  TempDir dir;
  const std::string two_maps[] = {"two/pagemap-1.img", "two/pagemap-2.img"};
  WriteText(dir / "in/damaged/pagemap-1.img", PagemapImage(1, {{kHeap, 100}}).substr(0, 20));
  WriteText(dir / "in/other/pagemap-1.img", PagemapImage(1, {{kHeap, 99}}));
  for (const std::string& map : two_maps) WriteText(dir / ("in/" + map), PagemapImage(1, {{kHeap, 100}}));
  WriteText(dir / "in/garbage/pagemap-1.img", RandomText(100, 1));
  for (const char* folder : {"damaged", "other", "two", "garbage", "none"})
    WriteText(dir / ("in/" + std::string(folder) + "/pages-1.img"), Memory(100, 2));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Ingest, RefusesPagesThatCriuCompressed) {
  TempDir dir;
  std::string image = PagemapHead(1), entry = PagemapEntry(kHeap, 100);
  AppendVarint(6 << 3 | 2, entry);  // pagemap_entry.regions: how long each compressed region is
  AppendVarint(3, entry);
  entry += "abc";
  AppendRecord(entry, image);
  WriteText(dir / "in/main/images/pagemap-1.img", image);
  WriteText(dir / "in/main/images/pages-1.img", Memory(50, 1));
  WriteText(dir / "in/before/rootfs.tar", RandomText(200 * kSegmentBytes, 1));
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  auto files = Ingest(dir / "in", *session, {});
  EXPECT_EQ(CodeOf(files), Code::kUnsupported);
  EXPECT_EQ(store->Usage()->objects, 0U) << "before anything is sent";
  EXPECT_THAT(files.status().message(), HasSubstr("main/images/pagemap-1.img"));
  EXPECT_THAT(files.status().message(), HasSubstr("compress"));
}

}  // namespace
}  // namespace holdfast::storage
