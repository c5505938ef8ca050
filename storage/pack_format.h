// The bytes of packs and their index files, as FORMAT.md has them. Pure: whatever comes in, hostile or damaged, is answered by a Status.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/aead.h"
#include "storage/store.h"

namespace holdfast::storage {

inline constexpr uint64_t kMaxPackBytes = 128 << 20;
inline constexpr size_t kMaxPackRecords = 1 << 16;
inline constexpr size_t kPackHeaderBytes = 256, kRecordHeaderBytes = 48, kRecordOverhead = kRecordHeaderBytes + kTagBytes;
inline constexpr size_t kIndexEntryBytes = 48, kIndexTrailerBytes = 64, kPackAlignment = 4096;
inline constexpr size_t kMaxFooterBytes = kMaxPackRecords * kIndexEntryBytes + kIndexTrailerBytes;
inline constexpr uint64_t kMaxPackFileBytes = kMaxPackBytes + 4 * kMaxFooterBytes;  // a rebuilt one has its damaged footer in the middle

struct PackId {
  std::array<uint8_t, 16> bytes{};
  std::string Hex() const;
  static Result<PackId> FromHex(std::string_view hex);
  auto operator<=>(const PackId&) const = default;
};

// Of one pack, derived from its namespace's data key.
struct PackKeys {
  Secret records{}, index{};
};
PackKeys DerivePackKeys(const Secret& data_key, const PackId& id);

struct PackRecord {
  SegmentId id;
  uint32_t offset = 0;  // of its header in the pack; also the nonce
  uint32_t stored = 0;  // bytes as `codec` has them; encrypted they are kTagBytes more
  uint32_t size = 0;    // uncompressed
  Codec codec = Codec::kRaw;
};
inline uint64_t RecordBytes(uint32_t stored) { return kRecordOverhead + uint64_t{stored}; }

std::string EncodePackHeader(const PackId& id, const std::string& ns);
struct PackHeader {
  PackId id;
  std::string ns;
};
Result<PackHeader> ParsePackHeader(std::string_view bytes);  // exactly kPackHeaderBytes

void EncodeRecordHeader(const PackRecord& record, std::byte* out);  // kRecordHeaderBytes
// Nothing where no record can begin. `bytes` begins with the header.
std::optional<PackRecord> ParseRecordHeader(std::span<const std::byte> bytes, uint64_t offset);
// What is authenticated with a record's bytes: they are only good as this segment, in this pack, with this encoding.
std::string RecordAad(const PackId& id, const PackRecord& record);

struct PackIndex {
  std::vector<PackRecord> records;  // sorted by id, once encoded
  uint64_t footer_offset = 0;
  bool tight = false;  // what can be compressed more was: a collection need not try it again
};
// The footer: entries sorted by id, then the trailer, whose MAC also covers the header. An index file is header and footer.
std::string EncodeFooter(PackIndex index, const PackId& id, const std::string& ns, const Secret& index_key);
// kDataLoss when anything differs from what EncodeFooter made of this pack.
Result<PackIndex> ParseFooter(std::string_view footer, const PackId& id, const std::string& ns, const Secret& index_key);
Result<PackIndex> ParseIndexFile(std::string_view text, const PackId& id, const std::string& ns, const Secret& index_key);
// How long the footer is that ends with this trailer: 0 when it is none.
size_t FooterBytes(std::string_view trailer);

}  // namespace holdfast::storage
