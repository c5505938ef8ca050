#include "agent/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/file.h"

namespace holdfast::agent {
namespace {

struct ReaderClose {
  void operator()(archive* a) const { archive_read_free(a); }
};
using Reader = std::unique_ptr<archive, ReaderClose>;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Where an entry goes, relative to the container's folder; "" when it is not wanted. kInvalidArgument when it tries to leave.
Result<std::string> Place(std::string_view path) {
  while (path.starts_with("./")) path.remove_prefix(2);
  if (path.empty() || path == ".") return std::string();
  std::vector<std::string> parts;
  for (size_t at = 0; at <= path.size();) {
    size_t slash = path.find('/', at);
    if (slash == std::string_view::npos) slash = path.size();
    std::string part(path.substr(at, slash - at));
    at = slash + 1;
    if (part.empty() && at > path.size()) break;  // "checkpoint/"
    if (!IsSafeName(part)) return Status(Code::kInvalidArgument, "the archive names a file outside of its folder");
    parts.push_back(std::move(part));
  }
  if (parts.size() == 2 && parts[0] == "checkpoint") return "images/" + parts[1];
  if (parts.size() == 1 && parts[0] == "spec.dump") return std::string("config.json");
  if (parts.size() == 1 && (parts[0] == "rootfs-diff.tar" || parts[0] == "dump.log")) return parts[0];
  return std::string();
}

// Copies the entry's data, leaving holes as holes. `budget` is what may still be written.
Result<int64_t> CopyData(archive* reader, int fd, int64_t budget) {
  int64_t end = 0;
  while (true) {
    const void* block = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    int rc = archive_read_data_block(reader, &block, &size, &offset);
    if (rc == ARCHIVE_EOF) break;
    if (rc != ARCHIVE_OK) return Status(Code::kDataLoss, std::string("the archive is damaged: ") + archive_error_string(reader));
    if (offset < end || offset > budget || static_cast<int64_t>(size) > budget - offset) {
      return Status(Code::kResourceExhausted, "the archive is larger than allowed");
    }
    for (size_t done = 0; done < size;) {
      ssize_t n = pwrite(fd, static_cast<const char*>(block) + done, size - done, offset + static_cast<int64_t>(done));
      if (n <= 0) return Status(Code::kResourceExhausted, "cannot write the landing folder: is the disk full?");
      done += static_cast<size_t>(n);
    }
    end = offset + static_cast<int64_t>(size);
  }
  return end;
}

}  // namespace

Result<ArchiveSizes> ExtractKubeletArchive(const std::string& tar, const std::string& dir, const ArchiveLimits& limits) {
  HF_RETURN_IF_ERROR(RemoveAll(dir));
  HF_RETURN_IF_ERROR(MakeDirs(dir + "/images"));
  Fd root(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (root.get() < 0) return Status(Code::kInternal, "cannot open " + dir);
  Fd input(open(tar.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (input.get() < 0) return Status(Code::kNotFound, "cannot open " + tar);
  Reader reader(archive_read_new());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_fd(reader.get(), input.get(), 1 << 20) != ARCHIVE_OK) {
    return Status(Code::kDataLoss, std::string("not a tar archive: ") + archive_error_string(reader.get()));
  }
  ArchiveSizes sizes;
  int64_t files = 0, budget = limits.max_bytes;
  bool inventory = false;
  while (true) {
    archive_entry* entry = nullptr;
    int rc = archive_read_next_header(reader.get(), &entry);
    if (rc == ARCHIVE_EOF) break;
    if (rc != ARCHIVE_OK) return Status(Code::kDataLoss, std::string("the archive is damaged: ") + archive_error_string(reader.get()));
    if (++files > limits.max_files) return Status(Code::kResourceExhausted, "the archive has too many files");
    const char* path = archive_entry_pathname(entry);
    if (path == nullptr) return Status(Code::kInvalidArgument, "the archive has a file without a name");
    HF_ASSIGN_OR_RETURN(std::string place, Place(path));
    if (place.empty()) continue;
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr) {
      return Status(Code::kInvalidArgument, "the archive holds something that is not a plain file: " + place);
    }
    Fd out(openat(root.get(), place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (out.get() < 0) return Status(Code::kInvalidArgument, "the archive names a file twice: " + place);
    const int64_t size = std::max<int64_t>(archive_entry_size(entry), 0);
    HF_ASSIGN_OR_RETURN(int64_t end, CopyData(reader.get(), out.get(), budget));
    if (size > end && size <= budget && ftruncate(out.get(), size) != 0) return Status(Code::kInternal, "cannot size " + place);
    budget -= std::max(end, std::min(size, budget));
    const bool pages = place.starts_with("images/pages-");
    (pages ? sizes.memory_bytes : sizes.files_bytes) += std::max(size, end);
    inventory = inventory || place == "images/inventory.img";
  }
  if (!inventory) return Status(Code::kDataLoss, "the archive holds no CRIU images (checkpoint/inventory.img is missing)");
  return sizes;
}

}  // namespace holdfast::agent
