// Packs, footers and index files as a damaged or hostile volume has them: nothing is believed that was not written, and what is read lies
// within the pack.
#include "storage/bytes.h"
#include "storage/pack_reader.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

namespace {

class Text final : public File {
 public:
  explicit Text(std::string_view text) : text_(text) {}
  Status WriteAt(uint64_t, std::span<const std::byte>) override { return {Code::kUnsupported, "read only"}; }
  Status Truncate(uint64_t) override { return {Code::kUnsupported, "read only"}; }
  Status Allocate(uint64_t) override { return {Code::kUnsupported, "read only"}; }
  Status Sync() override { return {Code::kUnsupported, "read only"}; }
  Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const override {
    if (offset > text_.size() || bytes.size() > text_.size() - offset) return {Code::kDataLoss, "cut short"};
    memcpy(bytes.data(), text_.data() + offset, bytes.size());
    return Status::Ok();
  }
  Result<uint64_t> Size() const override { return static_cast<uint64_t>(text_.size()); }

 private:
  const std::string_view text_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const PackId id{};
  const PackKeys keys = DerivePackKeys(Secret{}, id);
  const Text file(text);
  if (auto header = ParsePackHeader(text.substr(0, kPackHeaderBytes)); header.ok()) {
    if (EncodePackHeader(header->id, header->ns) != text.substr(0, kPackHeaderBytes)) __builtin_trap();
  }
  if (auto record = ParseRecordHeader(std::as_bytes(std::span(data, size)), 256)) {
    std::byte again[kRecordHeaderBytes];
    EncodeRecordHeader(*record, again);
    if (auto second = ParseRecordHeader(again, 256); !second || second->id != record->id || second->stored != record->stored)
      __builtin_trap();
  }
  if (auto scanned = ScanPack(file, id, keys.records); scanned.ok() && scanned->end > std::max(size, kPackHeaderBytes)) __builtin_trap();
  [[maybe_unused]] auto footer = ReadFooter(file, id, "default", keys.index);
  [[maybe_unused]] auto index = ParseIndexFile(text, id, "default", keys.index);
  // The same entries under a good MAC: what a writer with a bug, or with the key, could say.
  if (size >= kIndexEntryBytes) {
    std::vector<PackRecord> records;
    for (size_t at = 0; at + kIndexEntryBytes <= size && records.size() < 64; at += kIndexEntryBytes) {
      PackRecord record{.id = {},
                        .offset = GetInteger<uint32_t>(data + at + 32),
                        .stored = GetInteger<uint32_t>(data + at + 36),
                        .size = GetInteger<uint32_t>(data + at + 40),
                        .codec = static_cast<Codec>(data[at + 44])};
      memcpy(record.id.bytes.data(), data + at, 32);
      records.push_back(record);
    }
    const uint64_t end = GetInteger<uint64_t>(data) % (2 * kMaxPackBytes);
    auto parsed =
        ParseFooter(EncodeFooter({.records = records, .footer_offset = end}, id, "default", keys.index), id, "default", keys.index);
    if (parsed.ok()) {
      for (const PackRecord& record : parsed->records) {
        if (record.offset + RecordBytes(record.stored) > parsed->footer_offset || record.size > kMaxSegmentBytes) __builtin_trap();
        [[maybe_unused]] auto bytes = ReadRecord(file, id, keys.records, record);
      }
    }
  }
  return 0;
}
