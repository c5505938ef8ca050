#include "runtime/image_made.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "runtime/beneath.h"
#include "runtime/criu_entries.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kHead = 64 << 10;  // of a deleted file; its content follows
constexpr char kOwnNetwork[] = "extRootNetNS";

Result<std::string> ReadHead(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok()) return FileError("read", path, errno);
  std::string head(kHead, '\0');
  const ssize_t size = pread(file.get(), head.data(), head.size(), 0);
  if (size < 0) return FileError("read", path, errno);
  head.resize(static_cast<size_t>(size));
  return head;
}

Status CheckGhost(const std::string& images, const std::string& name, bool root) {
  HF_ASSIGN_OR_RETURN(const std::string head, ReadHead(images + "/" + name));
  const std::optional<std::string_view> entry = FirstEntry(head, kGhostMagic);
  Message ghost;
  if (!entry || !ghost.Read(*entry)) return DamagedImage(images, name);
  const uint32_t mode = ghost.Word(3), type = mode & S_IFMT;
  if (type == S_IFCHR || type == S_IFBLK) return WiderImage(name, "a device is made");
  if (type == S_IFLNK) return WiderImage(name, "a link is made");
  if (type != S_IFDIR && (mode & S_ISUID) != 0 && !root) return WiderImage(name, "a program is made that runs as its owner");
  return Status::Ok();
}

Status CheckNetwork(const std::string& images, const std::string& name) {
  HF_ASSIGN_OR_RETURN(const std::string image, ReadImage(images, name));
  std::string key;
  int entries = 0;
  const bool whole = ForEachEntry(image, kNetnsMagic, [&](std::string_view bytes) {
    Message network;
    return ++entries == 1 && network.Read(bytes, ~uint64_t{0} & ~Repeated(8)) && network.Text(8, &key);
  });
  if (!whole || entries == 0) return DamagedImage(images, name);
  return key == kOwnNetwork ? Status::Ok() : WiderImage(name, "a network is made that is not the pod's");
}

}  // namespace

Status CheckImageMade(const std::string& images, const Json& spec) {
  const bool root = GetInt(spec, {"process", "user", "uid"}) == 0;
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(images));
  for (const std::string& name : names) {
    if (name.starts_with("ghost-file-")) HF_RETURN_IF_ERROR(CheckGhost(images, name, root));
    if (name.starts_with("netns-")) HF_RETURN_IF_ERROR(CheckNetwork(images, name));
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
