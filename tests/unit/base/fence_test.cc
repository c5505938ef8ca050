#include "base/fence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace holdfast {
namespace {

class FenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/holdfast-fence-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  std::string File() const { return dir_ + "/term"; }
  std::string dir_;
};

TEST_F(FenceTest, RefusesAnOlderTermAfterANewerOne) {
  auto fence = Fence::Open(File());
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE((*fence)->Admit(3).ok());
  EXPECT_TRUE((*fence)->Admit(3).ok());
  EXPECT_TRUE((*fence)->Admit(5).ok());
  EXPECT_EQ((*fence)->Admit(4).code(), Code::kFailedPrecondition);
  EXPECT_TRUE((*fence)->Admit(5).ok());
}

TEST_F(FenceTest, RemembersAcrossARestart) {
  ASSERT_TRUE((*Fence::Open(File()))->Admit(7).ok());
  auto again = Fence::Open(File());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->Admit(6).code(), Code::kFailedPrecondition);
}

TEST_F(FenceTest, WithoutAnElectionEverythingPasses) {
  auto fence = Fence::Open(File());
  ASSERT_TRUE((*fence)->Admit(7).ok());
  EXPECT_TRUE((*fence)->Admit(0).ok());
  EXPECT_EQ((*fence)->Admit(6).code(), Code::kFailedPrecondition);
}

TEST_F(FenceTest, ATermThatCannotBeWrittenDownIsNotAdmitted) {
  auto fence = Fence::Open(dir_ + "/missing/term");
  ASSERT_TRUE(fence.ok());
  EXPECT_FALSE((*fence)->Admit(1).ok());
  EXPECT_FALSE((*fence)->Admit(1).ok());
}

TEST_F(FenceTest, AFileThatIsNoNumberIsAnErrorThatNamesIt) {
  for (const char* text : {"", "x", "-1", "12x", "99999999999999999999"}) {
    ASSERT_TRUE(WriteFileAtomically(File(), text).ok());
    const Status status = Fence::Open(File()).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << text;
    EXPECT_NE(status.message().find(File()), std::string::npos);
  }
}

}  // namespace
}  // namespace holdfast
