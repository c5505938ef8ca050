// pagemap-*.img as CRIU writes it.
#pragma once

#include <string>
#include <vector>

#include "storage/bytes.h"
#include "storage/pagemap.h"

namespace holdfast::storage {

inline void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
inline void AppendNumber(uint32_t field, uint64_t value, std::string& out) {
  AppendVarint(field << 3, out);
  AppendVarint(value, out);
}
inline void AppendRecord(const std::string& record, std::string& image) {
  AppendInteger(static_cast<uint32_t>(record.size()), image);
  image += record;
}

inline std::string PagemapHead(uint32_t pages_id) {
  std::string image, head;
  AppendInteger(uint32_t{0x54564319}, image);
  AppendInteger(uint32_t{0x56084025}, image);
  AppendNumber(1, pages_id, head);
  AppendRecord(head, image);
  return image;
}

// As CRIU 4.2 writes an entry: the length twice, and flags (4: present).
inline std::string PagemapEntry(uint64_t address, uint64_t pages, uint64_t flags = 4) {
  std::string entry;
  AppendNumber(1, address, entry);
  AppendNumber(2, static_cast<uint32_t>(pages), entry);
  AppendNumber(4, flags, entry);
  AppendNumber(5, pages, entry);
  return entry;
}

inline std::string PagemapImage(uint32_t pages_id, const std::vector<PageRun>& runs) {
  std::string image = PagemapHead(pages_id);
  for (const PageRun& run : runs) AppendRecord(PagemapEntry(run.address, run.pages), image);
  return image;
}

}  // namespace holdfast::storage
