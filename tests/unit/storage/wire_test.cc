#include "storage/wire.h"

#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

std::string Frame(const std::string& content, char codec = 0, uint32_t size = 0) {
  PutItem item{.id = HashSegment({}, AsBytes(content)),
               .codec = static_cast<Codec>(codec),
               .size = size == 0 ? static_cast<uint32_t>(content.size()) : size,
               .bytes = AsBytes(content)};
  return EncodeFrameHeader(item) + content;
}

TEST(FrameParser, PutsTogetherWhatArrivesInPieces) {
  std::string body;
  std::vector<std::string> contents;
  for (unsigned i = 0; i < 20; ++i) {
    contents.push_back(RandomText(1 + i * 997, i));
    body += Frame(contents.back());
  }
  for (size_t piece : {size_t{1}, size_t{43}, size_t{44}, size_t{45}, size_t{4096}, body.size()}) {
    std::vector<std::string> got;
    FrameParser parser([&](const PutItem& item) {
      got.emplace_back(reinterpret_cast<const char*>(item.bytes.data()), item.bytes.size());
      EXPECT_EQ(item.id, HashSegment({}, item.bytes));
      return Status::Ok();
    });
    for (size_t at = 0; at < body.size(); at += piece) ASSERT_OK(parser.Feed(std::string_view(body).substr(at, piece)));
    ASSERT_OK(parser.Finish());
    EXPECT_EQ(got, contents) << piece;
  }
}

TEST(FrameParser, RefusesWhatCannotBeASegment) {
  auto feed = [](const std::string& body) {
    FrameParser parser([](const PutItem&) { return Status::Ok(); });
    Status fed = parser.Feed(body);
    return fed.ok() ? parser.Finish() : fed;
  };
  EXPECT_OK(feed(Frame("abc")));
  EXPECT_FALSE(feed(Frame("abc").substr(0, 45)).ok());
  EXPECT_FALSE(feed("abc").ok());
  EXPECT_FALSE(feed(Frame("abc", 7)).ok());
  EXPECT_FALSE(feed(Frame("abc", 0, 4)).ok());
  EXPECT_FALSE(feed(Frame("abc", 1, 3)).ok());
  EXPECT_FALSE(feed(Frame("abc", 1, 0xffffffff)).ok());
  std::string many;
  for (size_t i = 0; i <= kBatchSegments; ++i) many += Frame("x");
  EXPECT_FALSE(feed(many).ok());
}

TEST(Wire, ErrorsSurviveTheTrip) {
  for (Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kAlreadyExists, Code::kConflict, Code::kPermissionDenied, Code::kUnauthenticated,
        Code::kResourceExhausted, Code::kFailedPrecondition, Code::kUnavailable, Code::kDataLoss, Code::kInternal}) {
    Status back = DecodeError(HttpStatusOf(code), DumpJson({{"code", CodeName(code)}, {"message", "why"}}));
    EXPECT_EQ(back.code(), code);
    EXPECT_EQ(back.message(), "why");
  }
  EXPECT_EQ(DecodeError(502, "<html>").code(), Code::kUnavailable);
  EXPECT_EQ(DecodeError(403, "").code(), Code::kPermissionDenied);
}

TEST(Wire, IdsComeInWholes) {
  EXPECT_FALSE(DecodeIds(std::string(33, 'x')).ok());
  EXPECT_FALSE(DecodeIds(std::string((kBatchSegments + 1) * 32, 'x')).ok());
  Result<std::vector<SegmentId>> ids = DecodeIds(std::string(64, 'x'));
  ASSERT_OK(ids);
  EXPECT_EQ(EncodeIds(*ids), std::string(64, 'x'));
}

}  // namespace
}  // namespace holdfast::storage
