#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace holdfast {
namespace {

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/holdfast-file-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  std::string dir_;
};

TEST_F(File, ADurableWriteReplacesTheWholeFile) {
  ASSERT_TRUE(WriteFileDurably(dir_ + "/f", "a longer first text").ok());
  ASSERT_TRUE(WriteFileDurably(dir_ + "/f", "second").ok());
  EXPECT_EQ(*ReadFile(dir_ + "/f"), "second");
  EXPECT_EQ(ListDir(dir_)->size(), 1U);
}

TEST_F(File, ReadingIsBounded) {
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/f", std::string(1000, 'x')).ok());
  EXPECT_EQ(ReadFile(dir_ + "/f", 999).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(ReadFile(dir_ + "/none").status().code(), Code::kNotFound);
}

TEST_F(File, RemoveAllDoesNotFollowLinks) {
  ASSERT_TRUE(MakeDirs(dir_ + "/keep/deep").ok());
  ASSERT_TRUE(MakeDirs(dir_ + "/gone").ok());
  ASSERT_EQ(symlink((dir_ + "/keep").c_str(), (dir_ + "/gone/link").c_str()), 0);
  EXPECT_TRUE(RemoveAll(dir_ + "/gone").ok());
  EXPECT_TRUE(Exists(dir_ + "/keep/deep"));
  EXPECT_TRUE(RemoveAll(dir_ + "/gone").ok());
}

TEST_F(File, ATemporaryFileThatIsALinkIsNotWrittenThrough) {
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/victim", "safe").ok());
  ASSERT_EQ(symlink((dir_ + "/victim").c_str(), (dir_ + "/f.tmp").c_str()), 0);
  EXPECT_FALSE(WriteFileDurably(dir_ + "/f", "evil").ok());
  EXPECT_EQ(*ReadFile(dir_ + "/victim"), "safe");
}

TEST(FileName, RefusesWhatCouldLeaveItsFolder) {
  for (std::string_view name : {"", ".", "..", "a/b", "/a"}) EXPECT_FALSE(IsSafeName(name)) << name;
  EXPECT_FALSE(IsSafeName(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsSafeName(std::string(254, 'a')));
  EXPECT_TRUE(IsSafeName("web-0.main"));
}

}  // namespace
}  // namespace holdfast
