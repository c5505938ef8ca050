#include "storage/pack_format.h"

#include <blake3.h>

#include <algorithm>
#include <cstring>

#include "storage/bytes.h"
#include "storage/codec.h"
#include "storage/hash.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr std::string_view kPackMagic = "HFPACK02", kTrailerMagic = "HFINDX02", kRecordMagic = "HFR2";
constexpr uint32_t kTight = 1;  // flag of the trailer
constexpr size_t kMacBytes = 16, kMacAt = kIndexTrailerBytes - kMacBytes;

Status Damaged(const std::string& what) { return Status(Code::kDataLoss, "pack index: " + what); }

std::array<uint8_t, kMacBytes> Mac(const Secret& key, std::string_view header, std::string_view covered) {
  blake3_hasher hasher;
  blake3_hasher_init_keyed(&hasher, key.data());
  blake3_hasher_update(&hasher, header.data(), header.size());
  blake3_hasher_update(&hasher, covered.data(), covered.size());
  std::array<uint8_t, kMacBytes> mac;
  blake3_hasher_finalize(&hasher, mac.data(), mac.size());
  return mac;
}

}  // namespace

std::string PackId::Hex() const { return ToHex(bytes); }

Result<PackId> PackId::FromHex(std::string_view hex) {
  PackId id;
  if (!storage::FromHex(hex, id.bytes)) return Status(Code::kInvalidArgument, "a pack id is 32 lower-case hexadecimal digits");
  return id;
}

PackKeys DerivePackKeys(const Secret& data_key, const PackId& id) {
  return {.records = Derive("holdfast-store 2 pack records", data_key, id.bytes),
          .index = Derive("holdfast-store 2 pack index", data_key, id.bytes)};
}

std::string EncodePackHeader(const PackId& id, const std::string& ns) {
  std::string header(kPackMagic);
  header += AsText(id.bytes);
  AppendInteger(static_cast<uint32_t>(ns.size()), header);
  AppendInteger(uint32_t{0}, header);
  header += ns;
  header.resize(kPackHeaderBytes);
  return header;
}

Result<PackHeader> ParsePackHeader(std::string_view bytes) {
  if (bytes.size() != kPackHeaderBytes || !bytes.starts_with(kPackMagic)) return Damaged("not a pack's header");
  PackHeader header;
  memcpy(header.id.bytes.data(), bytes.data() + 8, 16);
  const uint32_t length = GetInteger<uint32_t>(bytes.data() + 24);
  if (length > 200) return Damaged("the header's namespace is too long");
  header.ns = bytes.substr(32, length);
  if (!CheckId(header.ns, "namespace").ok() || EncodePackHeader(header.id, header.ns) != bytes) return Damaged("the header is damaged");
  return header;
}

void EncodeRecordHeader(const PackRecord& record, std::byte* out) {
  memset(out, 0, kRecordHeaderBytes);
  memcpy(out, kRecordMagic.data(), kRecordMagic.size());
  out[4] = static_cast<std::byte>(record.codec);
  PutInteger(record.size, out + 8);
  PutInteger(record.stored, out + 12);
  memcpy(out + 16, record.id.bytes.data(), 32);
}

std::optional<PackRecord> ParseRecordHeader(std::span<const std::byte> bytes, uint64_t offset) {
  if (bytes.size() < kRecordHeaderBytes || memcmp(bytes.data(), kRecordMagic.data(), kRecordMagic.size()) != 0 || offset >= kMaxPackBytes)
    return std::nullopt;
  PackRecord record{.id = {}, .offset = static_cast<uint32_t>(offset)};
  record.size = GetInteger<uint32_t>(bytes.data() + 8);
  record.stored = GetInteger<uint32_t>(bytes.data() + 12);
  if (!CheckEncoding(static_cast<uint8_t>(bytes[4]), record.size, record.stored).ok()) return std::nullopt;
  record.codec = static_cast<Codec>(bytes[4]);
  memcpy(record.id.bytes.data(), bytes.data() + 16, 32);
  return record;
}

std::string RecordAad(const PackId& id, const PackRecord& record) {
  std::string aad(AsText(id.bytes));
  aad += AsText(record.id.bytes);
  aad.push_back(static_cast<char>(record.codec));
  AppendInteger(record.size, aad);
  AppendInteger(record.stored, aad);
  return aad;
}

std::string EncodeFooter(PackIndex index, const PackId& id, const std::string& ns, const Secret& index_key) {
  std::vector<PackRecord>& records = index.records;
  std::sort(records.begin(), records.end(), [](const PackRecord& a, const PackRecord& b) { return a.id < b.id; });
  std::string footer;
  footer.reserve(records.size() * kIndexEntryBytes + kIndexTrailerBytes);
  for (const PackRecord& record : records) {
    footer += AsText(record.id.bytes);
    AppendInteger(record.offset, footer);
    AppendInteger(record.stored, footer);
    AppendInteger(record.size, footer);
    AppendInteger(static_cast<uint32_t>(record.codec), footer);
  }
  footer += kTrailerMagic;
  AppendInteger(static_cast<uint32_t>(records.size()), footer);
  AppendInteger(index.tight ? kTight : 0, footer);
  AppendInteger(index.footer_offset, footer);
  footer += AsText(id.bytes);
  AppendInteger(uint64_t{0}, footer);
  footer += AsText(Mac(index_key, EncodePackHeader(id, ns), footer));
  return footer;
}

size_t FooterBytes(std::string_view trailer) {
  if (trailer.size() != kIndexTrailerBytes || !trailer.starts_with(kTrailerMagic)) return 0;
  const uint32_t count = GetInteger<uint32_t>(trailer.data() + 8);
  return count > kMaxPackRecords ? 0 : count * kIndexEntryBytes + kIndexTrailerBytes;
}

Result<PackIndex> ParseFooter(std::string_view footer, const PackId& id, const std::string& ns, const Secret& index_key) {
  if (footer.size() < kIndexTrailerBytes) return Damaged("too short");
  const std::string_view trailer = footer.substr(footer.size() - kIndexTrailerBytes);
  if (FooterBytes(trailer) != footer.size()) return Damaged("of another length than it says");
  const auto mac = Mac(index_key, EncodePackHeader(id, ns), footer.substr(0, footer.size() - kMacBytes));
  if (AsText(mac) != trailer.substr(kMacAt)) return Damaged("not what was written: damaged, or of another pack or key");
  PackIndex index;
  const uint32_t flags = GetInteger<uint32_t>(trailer.data() + 12);
  if (flags > kTight) return Damaged("of a kind that this version does not know");
  index.tight = flags == kTight;
  index.footer_offset = GetInteger<uint64_t>(trailer.data() + 16);
  // The MAC says that we wrote it. What it says is checked all the same: it decides what is read where.
  if (index.footer_offset < kPackHeaderBytes || index.footer_offset > kMaxPackFileBytes)
    return Damaged("an impossible place for its footer");
  index.records.resize((footer.size() - kIndexTrailerBytes) / kIndexEntryBytes);
  const char* entry = footer.data();
  for (PackRecord& record : index.records) {
    memcpy(record.id.bytes.data(), entry, 32);
    record.offset = GetInteger<uint32_t>(entry + 32);
    record.stored = GetInteger<uint32_t>(entry + 36);
    record.size = GetInteger<uint32_t>(entry + 40);
    const uint32_t codec = GetInteger<uint32_t>(entry + 44);
    if (codec > 255 || !CheckEncoding(static_cast<uint8_t>(codec), record.size, record.stored).ok()) return Damaged("an impossible record");
    record.codec = static_cast<Codec>(codec);
    if (record.offset < kPackHeaderBytes || record.offset + RecordBytes(record.stored) > index.footer_offset)
      return Damaged("a record outside of the pack");
    entry += kIndexEntryBytes;
  }
  if (!std::is_sorted(index.records.begin(), index.records.end(), [](const auto& a, const auto& b) { return a.id < b.id; }))
    return Damaged("not sorted");
  return index;
}

Result<PackIndex> ParseIndexFile(std::string_view text, const PackId& id, const std::string& ns, const Secret& index_key) {
  if (text.size() < kPackHeaderBytes) return Damaged("too short");
  HF_ASSIGN_OR_RETURN(PackHeader header, ParsePackHeader(text.substr(0, kPackHeaderBytes)));
  if (header.id != id || header.ns != ns) return Damaged("of another pack");
  return ParseFooter(text.substr(kPackHeaderBytes), id, ns, index_key);
}

}  // namespace holdfast::storage
