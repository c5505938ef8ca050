#include "base/status.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Status(Code::kInvalidArgument, std::to_string(n) + " is odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  HF_ASSIGN_OR_RETURN(int half, Half(n));
  return Half(half);
}

TEST(Status, PutsContextBeforeTheMessageAndKeepsTheCode) {
  Status status = Status(Code::kNotFound, "no such pod").With("cannot checkpoint default/web-0");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.ToString(), "NotFound: cannot checkpoint default/web-0: no such pod");
  EXPECT_TRUE(Status::Ok().With("nothing to say").message().empty());
}

TEST(Result, HandsTheFirstErrorUp) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(7).value_or(-1), -1);
}

TEST(Status, MayBeMarkedAsNotWorthAnotherTry) {
  const Status error(Code::kInvalidArgument, "no");
  EXPECT_FALSE(error.terminal());
  const Status marked = error.Terminal();
  EXPECT_TRUE(marked.terminal());
  EXPECT_TRUE(marked.With("pod web-0").terminal());
  EXPECT_EQ(marked.ToString(), error.ToString());
  EXPECT_FALSE(Status::Ok().Terminal().terminal());
}

}  // namespace
}  // namespace holdfast
