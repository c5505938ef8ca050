#include "storage/pagemap.h"

#include "base/protobuf.h"
#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

constexpr uint32_t kCommonMagic = 0x54564319, kPagemapMagic = 0x56084025;  // criu/include/magic.h
constexpr size_t kMagicBytes = 8;
constexpr uint32_t kPagesId = 1;                                                        // pagemap_head
constexpr uint32_t kAddress = 1, kOldPages = 2, kInParent = 3, kFlags = 4, kPages = 5;  // pagemap_entry
constexpr uint64_t kPresent = 1 << 2;                                                   // criu/include/pagemap.h: PE_PRESENT
constexpr uint64_t kMaxAddress = uint64_t{1} << 60, kMaxPages = uint64_t{1} << 40;      // far beyond any process, far from an overflow

Status Bad(const std::string& what) { return Status(Code::kInvalidArgument, "not a CRIU pagemap: " + what); }

// The record at `at`, which then lies behind it. False: cut short.
bool TakeRecord(std::string_view image, size_t* at, std::string_view* record) {
  if (image.size() - *at < 4) return false;
  const uint32_t size = GetInteger<uint32_t>(image.data() + *at);
  if (size > image.size() - *at - 4) return false;
  *record = image.substr(*at + 4, size);
  *at += 4 + size_t{size};
  return true;
}

}  // namespace

std::optional<uint32_t> Pagemap::PagesIdOf(std::string_view beginning) {
  if (beginning.size() < kMagicBytes || GetInteger<uint32_t>(beginning.data()) != kCommonMagic ||
      GetInteger<uint32_t>(beginning.data() + 4) != kPagemapMagic)
    return std::nullopt;
  size_t at = kMagicBytes;
  std::string_view head;
  if (!TakeRecord(beginning, &at, &head)) return std::nullopt;
  std::optional<uint32_t> id;
  protobuf::Field field;
  while (!head.empty()) {
    if (!protobuf::ReadField(&head, &field)) return std::nullopt;
    if (field.number == kPagesId && field.wire == 0 && field.value <= UINT32_MAX) id = static_cast<uint32_t>(field.value);
  }
  return id;
}

Result<Pagemap> Pagemap::Parse(std::string image) {
  if (image.size() > kMaxPagemapBytes) return Bad("longer than " + std::to_string(kMaxPagemapBytes) + " bytes");
  if (!PagesIdOf(image)) return Bad("it does not begin as one");
  Pagemap map(std::move(image));
  map.at_ = kMagicBytes;
  std::string_view head;
  TakeRecord(map.image_, &map.at_, &head);
  const size_t first = map.at_;
  PageRun run;
  while (true) {
    HF_ASSIGN_OR_RETURN(bool more, map.Read(&run));
    if (!more) break;
    map.pages_ += run.pages;
    if (map.pages_ > kMaxPages) return Bad("more pages than a machine has");
  }
  map.at_ = first;
  return map;
}

bool Pagemap::Next(PageRun* run) { return Read(run).value_or(false); }

// As CRIU reads it (criu/pagemap.c): without flags an entry is present unless it is in the parent.
Result<bool> Pagemap::Read(PageRun* run) {
  while (at_ < image_.size()) {
    std::string_view entry;
    if (!TakeRecord(image_, &at_, &entry)) return Bad("it ends in the middle of a record");
    std::optional<uint64_t> address, old_pages, pages, flags;
    bool in_parent = false;
    protobuf::Field field;
    while (!entry.empty()) {
      if (!protobuf::ReadField(&entry, &field)) return Bad("a damaged record");
      if (field.number > kPages) {
        return Status(
            Code::kUnsupported,
            "CRIU has compressed the pages (field " + std::to_string(field.number) +
                " of a pagemap entry): what is stored could share nothing with the next checkpoint. Turn it off: no \"compress\" in "
                "CRIU's configuration files (/etc/criu)");
      }
      if (field.wire != 0) return Bad("a number that is none");
      if (field.number == kAddress) address = field.value;
      if (field.number == kOldPages) old_pages = field.value;
      if (field.number == kInParent) in_parent = field.value != 0;
      if (field.number == kFlags) flags = field.value;
      if (field.number == kPages) pages = field.value;
    }
    if (!pages) pages = old_pages;
    if (!address || !pages) return Bad("an entry without address or length");
    if (*address > kMaxAddress || *address % 4096 != 0 || *pages == 0 || *pages > kMaxPages) return Bad("an impossible range of addresses");
    const bool present = flags ? (*flags & kPresent) != 0 : !in_parent;
    if (!present) continue;
    *run = {.address = *address, .pages = *pages};
    return true;
  }
  return false;
}

}  // namespace holdfast::storage
