#include "runtime/measure.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/file.h"
#include "temp_dir.h"

namespace holdfast::runtime {
namespace {

class MeasureTest : public testing::Test {
 protected:
  void File(const std::string& name, const std::string& text) {
    const std::string path = dir.path() + "/" + name;
    EXPECT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  }
  TempDir dir;
  const MonoTime later = Clock::Real().Mono() + std::chrono::minutes(1);
};

TEST_F(MeasureTest, MemoryIsWhatCriuWritesOfEachProcess) {
  File("7/status", "Name:\tweb\nVmRSS:\t 9000 kB\nRssAnon:\t   100 kB\nRssFile:\t  5000 kB\nRssShmem:\t    20 kB\nVmSwap:\t     3 kB\n");
  File("8/status", "Name:\tzombie\n");
  EXPECT_EQ(MemoryOf({7, 8, 9}, dir.path()), 123U * 1024) << "9 has ended";
  EXPECT_GT(MemoryOf({getpid()}), 100U << 10);
}

TEST_F(MeasureTest, FilesCountByWhatTheyTakeAndLinksAreNotFollowed) {
  File("top/a", std::string(1 << 20, 'x'));
  File("top/below/b", std::string(1 << 20, 'x'));
  File("elsewhere", std::string(8 << 20, 'x'));
  ASSERT_EQ(symlink((dir.path() + "/elsewhere").c_str(), (dir.path() + "/top/link").c_str()), 0);
  ASSERT_EQ(symlink("/", (dir.path() + "/top/root").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/top/sparse", "x").ok());
  ASSERT_EQ(truncate((dir.path() + "/top/sparse").c_str(), 1 << 30), 0);
  Result<uint64_t> bytes = FilesOf(dir.path() + "/top", later);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_GE(*bytes, 2U << 20);
  EXPECT_LT(*bytes, 3U << 20);
  EXPECT_EQ(*FilesOf(dir.path() + "/none", later), 0U);
}

TEST_F(MeasureTest, MoreFilesThanThereIsTimeForAreNotGuessed) {
  File("top/a", "x");
  EXPECT_EQ(FilesOf(dir.path() + "/top", Clock::Real().Mono()).status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace holdfast::runtime
