#include "storage/codec.h"

#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

std::string Compressed(const std::string& content) {
  std::string out(content.size(), '\0');
  out.resize(TryCompress(AsBytes(content), std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(Codec, CompressesOnlyWhatGains) {
  const std::string plain(100'000, 'x'), noise = RandomText(100'000, 1);
  const std::string packed = Compressed(plain);
  ASSERT_GT(packed.size(), 0U);
  EXPECT_LT(packed.size(), 1000U);
  EXPECT_EQ(Decode(Codec::kLz4, 100'000, AsBytes(packed)).value_or(""), plain);
  EXPECT_EQ(Compressed(noise), "");
  // 4 % can be gained: not enough.
  EXPECT_EQ(Compressed(noise.substr(0, 96'000) + std::string(4'000, 'x')), "");
  EXPECT_NE(Compressed(noise.substr(0, 90'000) + std::string(10'000, 'x')), "");
}

TEST(Codec, DoesNotTrustLengths) {
  const std::string packed = Compressed(std::string(100'000, 'x'));
  EXPECT_FALSE(Decode(Codec::kLz4, 99'999, AsBytes(packed)).ok());
  EXPECT_FALSE(Decode(Codec::kLz4, 100'001, AsBytes(packed)).ok());
  EXPECT_FALSE(Decode(Codec::kLz4, 100'000, AsBytes(packed.substr(0, packed.size() / 2))).ok());
  EXPECT_FALSE(Decode(Codec::kLz4, 0xffffffff, AsBytes(packed)).ok());
  EXPECT_FALSE(Decode(Codec::kRaw, 5, AsBytes("abcd")).ok());
  EXPECT_FALSE(Decode(static_cast<Codec>(9), 5, AsBytes("abcde")).ok());
  EXPECT_FALSE(Decode(Codec::kLz4, 1000, AsBytes(RandomText(500, 3))).ok());
}

std::string CompressedMore(const std::string& content, size_t most) {
  std::string out(content.size(), '\0');
  out.resize(TryCompressMore(AsBytes(content), most, std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(Codec, CompressesMoreOnlyWhatGainsOnWhatThereIs) {
  // Half of each byte says something, and nothing repeats: nothing for LZ4.
  std::string nibbles = RandomText(60'000, 1);
  for (char& c : nibbles) c &= 15;
  EXPECT_EQ(Compressed(nibbles), "");
  const std::string packed = CompressedMore(nibbles, nibbles.size());
  ASSERT_GT(packed.size(), 0U);
  EXPECT_LT(packed.size(), nibbles.size() * 55 / 100);
  EXPECT_EQ(Decode(Codec::kZstd, 60'000, AsBytes(packed)).value_or(""), nibbles);
  EXPECT_EQ(CompressedMore(nibbles, packed.size()), "") << "it is as short already";
  EXPECT_EQ(CompressedMore(RandomText(60'000, 1), 60'000), "");
}

TEST(Codec, DoesNotTrustWhatCallsItselfZstd) {
  std::string text(100'000, 'x');
  const std::string packed = CompressedMore(text, text.size());
  EXPECT_EQ(Decode(Codec::kZstd, 100'000, AsBytes(packed)).value_or(""), text);
  for (uint32_t size : {99'999U, 100'001U, 1U << 20})
    EXPECT_EQ(CodeOf(Decode(Codec::kZstd, size, AsBytes(packed))), Code::kDataLoss) << size;
  EXPECT_EQ(CodeOf(Decode(Codec::kZstd, (1U << 20) + 1, AsBytes(packed))), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Decode(Codec::kZstd, 100'000, AsBytes(packed.substr(0, packed.size() - 1)))), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Decode(Codec::kZstd, 1000, AsBytes(RandomText(500, 3)))), Code::kDataLoss);
  for (size_t at = 0; at < packed.size(); ++at) {
    std::string flipped = packed;
    flipped[at] ^= 1;
    Result<std::string> content = Decode(Codec::kZstd, 100'000, AsBytes(flipped));
    if (content.ok()) {
      EXPECT_EQ(content->size(), 100'000U) << at;
    }
  }
}

TEST(Hash, IsBlake3) {
  // The first of BLAKE3's official test vectors: no input.
  EXPECT_EQ(Digest(""), "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  HashKey key;
  memcpy(key.data(), "whats the Elvish word for friend", key.size());
  EXPECT_EQ(HashSegment(key, {}).Hex(), "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26");
}

TEST(Hash, KnowsZeros) {
  std::string zeros(4096, '\0');
  EXPECT_TRUE(IsZero(AsBytes(zeros)));
  for (size_t at : {size_t{0}, size_t{1}, size_t{2048}, size_t{4095}}) {
    std::string one = zeros;
    one[at] = 1;
    EXPECT_FALSE(IsZero(AsBytes(one))) << at;
  }
  EXPECT_FALSE(IsZero(AsBytes(std::string(4096, 'a'))));
}

}  // namespace
}  // namespace holdfast::storage
