// Where a file is cut into segments: pages of a process at 64 KiB multiples of their address, so that memory which did not change is cut
// as the last time wherever it lies in the file; everything else at 64 KiB multiples of its offset.
#pragma once

#include <map>

#include "storage/file_tree.h"
#include "storage/pagemap.h"
#include "storage/store.h"

namespace holdfast::storage {

class Cutter {
 public:
  struct Piece {
    uint64_t address = 0;  // in memory, or the offset
    uint32_t size = 0;     // 1 to kSegmentBytes
  };

  explicit Cutter(uint64_t file_bytes) : left_(file_bytes) {}
  // kInvalidArgument when `pages` is not the map of a pages file of this length.
  static Result<Cutter> ByPages(Pagemap pages, uint64_t file_bytes);
  // False at the end; until then the pieces make up the file, in order.
  bool Next(Piece* piece);

 private:
  std::optional<Pagemap> pages_;
  uint64_t page_bytes_ = 0;
  uint64_t address_ = 0, run_left_ = 0;  // of the run that is being cut
  uint64_t left_ = 0;                    // of the file
};

// Which pagemap-*.img of a tree is that of which pages-*.img.
class PagemapFinder {
 public:
  // Looks into every pagemap of `files`, which lie below `folder`.
  PagemapFinder(const Descriptor& folder, const std::vector<TreeFile>& files);
  // kUnsupported when CRIU compressed the pages of any of them: asked before anything is sent.
  Status Check(const Descriptor& folder) const;
  // How to cut `path` of `file_bytes`. A pagemap that does not fit is logged and not used: a cut decides what is shared, not what is
  // stored. kUnsupported when CRIU compressed the pages.
  Result<Cutter> CutterOf(const Descriptor& folder, const std::string& path, uint64_t file_bytes) const;

 private:
  std::map<std::string, std::string> maps_;  // path of the pages → path of their map; empty: several claim them
};

}  // namespace holdfast::storage
