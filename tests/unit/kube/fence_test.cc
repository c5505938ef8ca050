#include "kube/fence.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace holdfast::kube {
namespace {

TEST(Fence, RefusesWhoeverIsOlderThanOneSeenBefore) {
  Fence fence;
  EXPECT_EQ(fence.highest(), -1);
  EXPECT_TRUE(fence.Admit(0).ok());
  EXPECT_TRUE(fence.Admit(0).ok());
  EXPECT_TRUE(fence.Admit(3).ok());
  Status refused = fence.Admit(2);
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(refused.terminal()) << "trying again cannot help";
  EXPECT_NE(refused.message().find("term 2"), std::string::npos) << refused.message();
  EXPECT_TRUE(fence.Admit(3).ok());
  EXPECT_EQ(fence.highest(), 3);
}

TEST(Fence, MayBeginWhereAFormerLifeEnded) {
  Fence fence(7);
  EXPECT_FALSE(fence.Admit(6).ok());
  EXPECT_TRUE(fence.Admit(7).ok());
}

TEST(Fence, NobodyOlderPassesAfterANewerOneOnAnyThread) {
  Fence fence;
  std::atomic<int64_t> passed{-1};  // the highest that was let in
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 5000; ++i) {
        const int64_t before = passed;
        const int64_t term = i + t;
        if (!fence.Admit(term).ok()) continue;
        EXPECT_GE(term, before);
        for (int64_t seen = passed; term > seen && !passed.compare_exchange_weak(seen, term);) {
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(fence.highest(), 5002);
}

}  // namespace
}  // namespace holdfast::kube
