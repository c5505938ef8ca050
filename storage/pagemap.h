// CRIU's pagemap-*.img: which pages of a process's memory lie in pages-<id>.img, in what order (images/pagemap.proto). Decoded by hand: of
// its two messages six fields matter, a field that we do not know must be seen (it may mean that the pages are packed), and millions of
// entries are walked through without building any.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace holdfast::storage {

inline constexpr size_t kMaxPagemapBytes = 32 << 20;  // more than a million runs of pages

struct PageRun {
  uint64_t address = 0;  // of the first page; a multiple of 4096
  uint64_t pages = 0;    // at least 1
};

class Pagemap {
 public:
  // Looks at all of it. kUnsupported: the pages lie there compressed. kInvalidArgument: damaged, or no pagemap.
  static Result<Pagemap> Parse(std::string image);
  // From the beginning of the file: at least its first record. Nothing when it is none.
  static std::optional<uint32_t> PagesIdOf(std::string_view beginning);

  uint64_t pages() const { return pages_; }  // in the pages file, of all runs together
  // The next run of pages that lie in the file, in the file's order. False at the end.
  bool Next(PageRun* run);

 private:
  explicit Pagemap(std::string image) : image_(std::move(image)) {}
  Result<bool> Read(PageRun* run);

  std::string image_;
  size_t at_ = 0;
  uint64_t pages_ = 0;
};

}  // namespace holdfast::storage
