#include "storage/pack_reader.h"

#include <algorithm>
#include <cstring>

#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

constexpr size_t kScanWindow = 4 << 20;  // at least two of the longest records

// The index of the next "HFR2" in `bytes` from `at`, or its end.
size_t NextMagic(std::span<const std::byte> bytes, size_t at) {
  const void* found = memmem(bytes.data() + at, bytes.size() - at, "HFR2", 4);
  return found == nullptr ? bytes.size() : static_cast<size_t>(static_cast<const std::byte*>(found) - bytes.data());
}

}  // namespace

Status ReadRecord(const File& file, const PackId& id, const Secret& records_key, const PackRecord& record, std::string* bytes) {
  bytes->resize(size_t{record.stored} + kTagBytes);
  const std::span<std::byte> all = std::as_writable_bytes(std::span(*bytes));
  HF_RETURN_IF_ERROR(file.ReadAt(uint64_t{record.offset} + kRecordHeaderBytes, all));
  Status whole = Unseal(records_key, record.offset, AsBytes(RecordAad(id, record)), all, all.first(record.stored));
  if (!whole.ok()) return whole.With("the pack " + id.Hex() + " at " + std::to_string(record.offset));
  bytes->resize(record.stored);
  return Status::Ok();
}

Result<std::string> ReadRecord(const File& file, const PackId& id, const Secret& records_key, const PackRecord& record) {
  std::string bytes;
  HF_RETURN_IF_ERROR(ReadRecord(file, id, records_key, record, &bytes));
  return bytes;
}

Result<PackIndex> ReadFooter(const File& file, const PackId& id, const std::string& ns, const Secret& index_key) {
  HF_ASSIGN_OR_RETURN(uint64_t size, file.Size());
  if (size < kPackHeaderBytes + kIndexTrailerBytes) return Status(Code::kDataLoss, "the pack " + id.Hex() + " has no footer");
  std::string footer(kIndexTrailerBytes, '\0');
  HF_RETURN_IF_ERROR(file.ReadAt(size - footer.size(), std::as_writable_bytes(std::span(footer))));
  const size_t length = FooterBytes(footer);
  if (length == 0 || length > size - kPackHeaderBytes) return Status(Code::kDataLoss, "the pack " + id.Hex() + " has no footer");
  footer.resize(length);
  HF_RETURN_IF_ERROR(file.ReadAt(size - length, std::as_writable_bytes(std::span(footer))));
  HF_ASSIGN_OR_RETURN(PackIndex index, ParseFooter(footer, id, ns, index_key));
  if (index.footer_offset != size - length) return Status(Code::kDataLoss, "the footer of the pack " + id.Hex() + " is at another place");
  return index;
}

Result<ScannedPack> ScanPack(const File& file, const PackId& id, const Secret& records_key) {
  HF_ASSIGN_OR_RETURN(uint64_t size, file.Size());
  size = std::min<uint64_t>(size, kMaxPackFileBytes);
  ScannedPack scanned{.records = {}, .end = std::min<uint64_t>(size, kPackHeaderBytes)};
  std::vector<std::byte> window, plain(kMaxSegmentBytes);
  uint64_t begin = 0;  // of the window in the file
  for (uint64_t at = kPackHeaderBytes; at + kRecordOverhead < size && scanned.records.size() < kMaxPackRecords;) {
    if (window.empty() || (begin + window.size() < size && at + kMaxSegmentBytes + kRecordOverhead > begin + window.size())) {
      begin = at;
      window.resize(std::min<uint64_t>(kScanWindow, size - begin));
      HF_RETURN_IF_ERROR(file.ReadAt(begin, window));
    }
    const std::span<const std::byte> rest = std::span(window).subspan(at - begin);
    const std::optional<PackRecord> record = ParseRecordHeader(rest, at);
    if (record && RecordBytes(record->stored) <= rest.size() &&
        Unseal(records_key, record->offset, AsBytes(RecordAad(id, *record)),
               rest.subspan(kRecordHeaderBytes, size_t{record->stored} + kTagBytes), std::span(plain).first(record->stored))
            .ok()) {
      scanned.records.push_back(*record);
      at += RecordBytes(record->stored);
      scanned.end = at;
      continue;
    }
    scanned.damaged += record ? 1 : 0;
    // Not a record, or not whole: the next thing that looks like one. The last bytes of a window may be half a magic.
    const size_t next = NextMagic(rest, 1);
    at += next < rest.size() ? next : std::max<size_t>(rest.size(), 4) - 3;
  }
  return scanned;
}

}  // namespace holdfast::storage
