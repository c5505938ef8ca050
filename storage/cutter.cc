#include "storage/cutter.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/log.h"

namespace holdfast::storage {
namespace {

constexpr size_t kHeadBytes = 64;  // magic and pagemap_head

std::pair<std::string, std::string_view> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  return {path.substr(0, name), std::string_view(path).substr(name)};
}

// At most `limit` bytes from the beginning.
Result<std::string> ReadBeginning(const Descriptor& folder, const std::string& path, uint64_t limit) {
  HF_ASSIGN_OR_RETURN(Descriptor fd, OpenBelow(folder, path, O_RDONLY));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return Status(Code::kInternal, "cannot look at " + path);
  std::string text(std::min<uint64_t>(static_cast<uint64_t>(info.st_size), limit), '\0');
  HF_RETURN_IF_ERROR(ReadAt(fd.get(), std::as_writable_bytes(std::span(text)), 0, path));
  return text;
}

}  // namespace

Result<Cutter> Cutter::ByPages(Pagemap pages, uint64_t file_bytes) {
  // The size of a page is the dumping machine's: what the file's length says.
  const uint64_t page_bytes = pages.pages() == 0 ? 0 : file_bytes / pages.pages();
  if (page_bytes * pages.pages() != file_bytes || (page_bytes != 4096 && page_bytes != 16384 && page_bytes != 65536)) {
    return Status(Code::kInvalidArgument, "the pagemap has " + std::to_string(pages.pages()) + " pages, the pages file " +
                                              std::to_string(file_bytes) + " bytes: they do not belong together");
  }
  Cutter cutter(file_bytes);
  cutter.pages_ = std::move(pages);
  cutter.page_bytes_ = page_bytes;
  return cutter;
}

bool Cutter::Next(Piece* piece) {
  if (left_ == 0) return false;
  if (!pages_) {
    *piece = {.address = address_, .size = static_cast<uint32_t>(std::min<uint64_t>(left_, kSegmentBytes))};
    address_ += piece->size;
    left_ -= piece->size;
    return true;
  }
  // Everything of one 64 KiB window of addresses, with gaps or without.
  piece->size = 0;
  while (left_ > 0) {
    if (run_left_ == 0) {
      PageRun run;
      if (!pages_->Next(&run)) break;  // cannot be: the lengths were compared
      address_ = run.address;
      run_left_ = run.pages * page_bytes_;
    }
    if (piece->size == 0) piece->address = address_;
    const bool same_window = address_ / kSegmentBytes == piece->address / kSegmentBytes;
    if (piece->size > 0 && (!same_window || piece->size == kSegmentBytes)) break;
    const uint64_t to_end = kSegmentBytes - address_ % kSegmentBytes;
    const uint64_t take = std::min({to_end, run_left_, left_, uint64_t{kSegmentBytes} - piece->size});
    piece->size += static_cast<uint32_t>(take);
    address_ += take;
    run_left_ -= take;
    left_ -= take;
  }
  return piece->size > 0;
}

PagemapFinder::PagemapFinder(const Descriptor& folder, const std::vector<TreeFile>& files) {
  for (const TreeFile& file : files) {
    const auto [dir, name] = Split(file.path);
    if (!name.starts_with("pagemap-") || !name.ends_with(".img")) continue;
    Result<std::string> head = ReadBeginning(folder, file.path, kHeadBytes);
    const std::optional<uint32_t> id = head.ok() ? Pagemap::PagesIdOf(*head) : std::nullopt;
    if (!id) continue;
    auto [known, first] = maps_.try_emplace(dir + "pages-" + std::to_string(*id) + ".img", file.path);
    if (!first) known->second.clear();
  }
}

Status PagemapFinder::Check(const Descriptor& folder) const {
  for (const auto& [pages, map] : maps_) {
    if (map.empty()) continue;
    Result<std::string> image = ReadBeginning(folder, map, kMaxPagemapBytes + 1);
    if (!image.ok()) continue;  // whoever cuts by it says so
    Status known = Pagemap::Parse(std::move(*image)).status();
    if (known.code() == Code::kUnsupported) return known.With(map);
  }
  return Status::Ok();
}

Result<Cutter> PagemapFinder::CutterOf(const Descriptor& folder, const std::string& path, uint64_t file_bytes) const {
  const auto map = maps_.find(path);
  if (map == maps_.end() || map->second.empty() || file_bytes == 0) return Cutter(file_bytes);
  Result<std::string> image = ReadBeginning(folder, map->second, kMaxPagemapBytes + 1);
  Result<Pagemap> pages = image.ok() ? Pagemap::Parse(std::move(*image)) : Result<Pagemap>(image.status());
  Result<Cutter> cutter = pages.ok() ? Cutter::ByPages(std::move(*pages), file_bytes) : Result<Cutter>(pages.status());
  if (cutter.ok()) return cutter;
  if (cutter.status().code() == Code::kUnsupported) return cutter.status().With(map->second);
  LogWarning("a pagemap is not used: its pages are cut at their offsets", {{"path", map->second}, {"error", cutter.status().ToString()}});
  return Cutter(file_bytes);
}

}  // namespace holdfast::storage
