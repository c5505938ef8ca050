#include "runtime/criu_images.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

void Varint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
std::string Number(uint32_t field, uint64_t value) {
  std::string out;
  Varint(&out, field << 3);
  Varint(&out, value);
  return out;
}
std::string Bytes(uint32_t field, const std::string& content) {
  std::string out;
  Varint(&out, field << 3 | 2);
  Varint(&out, content.size());
  return out + content;
}
std::string Word(uint32_t word) { return std::string(reinterpret_cast<const char*>(&word), 4); }

constexpr int kEstablished = 1, kClosed = 7, kListening = 10, kTcp = 6, kUdp = 17;

// inet_sk_entry with a field that no CRIU of today has.
std::string Socket(int proto, int state, std::vector<uint32_t> source) {
  std::string out = Number(1, 5) + Number(3, 2) + Number(5, proto) + Number(6, state) + Number(7, 80);
  for (uint32_t word : source) out += Number(11, word);
  return out + Number(12, 0) + Bytes(99, "unknown");
}
std::string Image(const std::vector<std::string>& sockets) {
  std::string out = Word(0x54564319) + Word(0x56303138);
  for (const std::string& socket : sockets) {
    std::string entry = Number(1, 4) + Number(2, 9) + Bytes(4, socket) + Bytes(77, "also unknown");
    out += Word(static_cast<uint32_t>(entry.size())) + entry;
  }
  return out;
}
uint32_t V4(const char* text) {
  uint32_t word;
  inet_pton(AF_INET, text, &word);
  return word;
}

const std::map<std::string, std::string> kMove = {{"10.0.0.1", "10.0.1.200"}};

TEST(FilesImage, ListenersAndDatagramSocketsGetTheNewAddress) {
  const uint32_t from = V4("10.0.0.1"), to = V4("10.0.1.200");
  EXPECT_EQ(
      *RewriteFilesImage(Image({Socket(kTcp, kListening, {from}), Socket(kUdp, kClosed, {from}), Socket(kUdp, kEstablished, {from}),
                                Socket(kTcp, kClosed, {from})}),
                         kMove),
      Image({Socket(kTcp, kListening, {to}), Socket(kUdp, kClosed, {to}), Socket(kUdp, kEstablished, {to}), Socket(kTcp, kClosed, {to})}));
}

TEST(FilesImage, MappedAddressesMoveToo) {
  EXPECT_EQ(*RewriteFilesImage(Image({Socket(kTcp, kListening, {0, 0, htonl(0xffff), V4("10.0.0.1")})}), kMove),
            Image({Socket(kTcp, kListening, {0, 0, htonl(0xffff), V4("10.0.1.200")})}));
}

TEST(FilesImage, ConnectionsAndOtherAddressesStayByteByByte) {
  const std::string image = Image({Socket(kTcp, kEstablished, {V4("10.0.0.1")}), Socket(kTcp, kListening, {V4("127.0.0.1")}),
                                   Socket(kUdp, kClosed, {0}), Socket(kTcp, kListening, {0, 0, 0, 0})});
  EXPECT_EQ(*RewriteFilesImage(image, kMove), image);
}

TEST(FilesImage, EveryTruncationAndAnyByteIsSurvived) {
  const std::string image =
      Image({Socket(kTcp, kListening, {V4("10.0.0.1")}), Socket(kUdp, kClosed, {0, 0, htonl(0xffff), V4("10.0.0.1")})});
  for (size_t size = 0; size < image.size(); ++size) {
    Result<std::string> cut = RewriteFilesImage(image.substr(0, size), kMove);
    EXPECT_TRUE(!cut.ok() || cut->size() <= image.size() + 16);
  }
  for (size_t at = 8; at < image.size(); ++at) {
    for (int byte : {0, 0x7f, 0x80, 0xff}) {
      std::string broken = image;
      broken[at] = static_cast<char>(byte);
      Result<std::string> read = RewriteFilesImage(broken, kMove);
      EXPECT_TRUE(read.ok() || read.status().code() == Code::kDataLoss);
    }
  }
}

TEST(ImagesView, LeavesTheFetchedImagesAsTheyAre) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "images").ok());
  const std::string files = Image({Socket(kTcp, kListening, {V4("10.0.0.1")})});
  for (const char* name : {"inventory.img", "ipcns-shm-11.img", "ipcns-var-11.img", "pages-1.img"})
    ASSERT_TRUE(WriteFileAtomically(dir / "images/" + name, name).ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "images/files.img", files).ok());
  ASSERT_TRUE(MakeImagesView(dir / "images", dir / "view", {kMove, false}).ok());
  EXPECT_EQ(*ListDir(dir / "view"), (std::vector<std::string>{"files.img", "inventory.img", "ipcns-var-11.img", "pages-1.img"}));
  EXPECT_EQ(*ReadFile(dir / "images/files.img"), files);
  EXPECT_EQ(*ReadFile(dir / "view/files.img"), Image({Socket(kTcp, kListening, {V4("10.0.1.200")})}));
  // Again, as after a failed try, and now as the first container.
  ASSERT_TRUE(MakeImagesView(dir / "images", dir / "view", {{}, true}).ok());
  EXPECT_EQ(ListDir(dir / "view")->size(), 5u);
  EXPECT_EQ(*ReadFile(dir / "view/files.img"), files);
}

}  // namespace
}  // namespace holdfast::runtime
