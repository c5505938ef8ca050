#include "runtime/image_names.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxNames = 1 << 20;
constexpr size_t kMaxDescriptors = 65536;  // bytes
constexpr char kDescriptors[] = "descriptors.json";

// As criu/image-desc.c has them, without what no dump of ours writes: network dumps (netdev, ifaddr, route, rule, iptables, nftables,
// netns-ct; the network is the new pod's), autofs, binfmt-misc, userns, apparmor, and formats that newer ones have replaced.
constexpr std::string_view kOnce[] = {"cgroup", "fifo-data",   "files",   "filelocks", "inventory", "memfd",    "pipes-data",
                                      "pstree", "remap-fpath", "seccomp", "sk-queues", "tty-data",  "tty-info", "bpfmap-data"};
constexpr std::string_view kNumbered[] = {"core-",          "fdinfo-",    "fs-",    "ids-",    "ipcns-msg-",   "ipcns-sem-",
                                          "ipcns-shm-",     "ipcns-var-", "mm-",    "netns-",  "mountpoints-", "pagemap-",
                                          "pagemap-shmem-", "pages-",     "pidns-", "timens-", "utsns-"};
constexpr std::string_view kHexNumbered[] = {"ghost-file-", "tcp-stream-"};
constexpr std::string_view kArchives[] = {"tmpfs-", "tmpfs-dev-"};

bool IsNumber(std::string_view text, std::string_view digits) {
  return !text.empty() && text.size() <= 20 && text.find_first_not_of(digits) == std::string_view::npos;
}

template <size_t N>
bool IsNumbered(std::string_view stem, const std::string_view (&prefixes)[N], std::string_view digits) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view prefix) { return stem.starts_with(prefix) && IsNumber(stem.substr(prefix.size()), digits); });
}

// runc gives CRIU its own descriptor of each index of this list, and CRIU gives it to whoever names it.
Status CheckDescriptors(const std::string& images) {
  Result<std::string> text = ReadFile(images + "/" + kDescriptors, kMaxDescriptors);
  if (text.status().code() == Code::kNotFound) return Status::Ok();
  if (!text.ok()) return text.status();
  Result<Json> json = ParseJson(*text);
  if (!json.ok() || !json->is_array()) return DamagedImage(images, kDescriptors);
  if (json->size() > 3) return WiderImage(kDescriptors, "descriptors are inherited that are not standard input and outputs");
  return Status::Ok();
}

}  // namespace

bool IsImageName(std::string_view name) {
  constexpr std::string_view kEnd = ".img", kArchive = ".tar.gz";
  if (name == kDescriptors) return true;
  if (!name.ends_with(kEnd)) return false;
  std::string_view stem = name.substr(0, name.size() - kEnd.size());
  if (stem.ends_with(kArchive)) return IsNumbered(stem.substr(0, stem.size() - kArchive.size()), kArchives, "0123456789");
  return std::find(std::begin(kOnce), std::end(kOnce), stem) != std::end(kOnce) || IsNumbered(stem, kNumbered, "0123456789") ||
         IsNumbered(stem, kHexNumbered, "0123456789abcdef");
}

Status CheckImageNames(const std::string& images, const Json& spec) {
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(images));
  if (names.size() > kMaxNames) return WiderImage(images, "there are " + std::to_string(names.size()) + " images");
  const bool bpf = (BoundingSet(spec) & (kCapBpf | kCapSysAdmin)) != 0;
  for (const std::string& name : names) {
    if (!IsImageName(name) || (name == "bpfmap-data.img" && !bpf))
      return WiderImage(name, "is told what no dump of such a container writes");
    struct stat info;
    if (lstat((images + "/" + name).c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      return WiderImage(name, "is told by what is no plain file");
  }
  return CheckDescriptors(images);
}

}  // namespace holdfast::runtime
