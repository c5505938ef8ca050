#include "runtime/image_files.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "runtime/criu_entries.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;

// images/fdinfo.proto: the fields of file_entry
enum FileKind : uint32_t {
  kRegular = 3,
  kInet = 4,
  kNamespace = 5,
  kPacket = 6,
  kNetlink = 7,
  kTun = 11,
  kInotify = 13,
  kFanotify = 14,
  kPlugin = 15,
  kUnix = 16,
  kBpfMap = 21,
  kPidfd = 22
};
constexpr uint32_t kMark = 10;                                                                         // sk_opts_entry
constexpr uint32_t kRegularFlags = 2, kRegularName = 6, kRegularMount = 7, kExternal = 9, kMode = 10;  // reg_file_entry
constexpr uint64_t kRegularRepeated = Repeated(11);
constexpr uint32_t kInetType = 4, kInetOptions = 14;
constexpr uint64_t kInetRepeated = Repeated(11) | Repeated(12);
constexpr uint32_t kNetlinkProtocol = 3, kNetlinkGroups = 8, kNetlinkOptions = 12;
constexpr uint32_t kUnixOptions = 10, kUnixName = 11, kUnixFolder = 14;
constexpr uint32_t kWatches = 5, kHandle = 7, kHandlePath = 4;
constexpr uint32_t kRemapLinked = 0, kRemapProc = 2;

// `in_proc`: below /proc. Its links lead to what a process has, CRIU's own to the node: the kernel never names a file by one.
bool LeadsOut(const std::string& in_proc) {
  std::vector<std::string> steps;
  for (size_t at = 1; at < in_proc.size();) {
    const size_t end = std::min(in_proc.find('/', at), in_proc.size());
    steps.push_back(in_proc.substr(at, end - at));
    at = end + 1;
  }
  if (steps.empty()) return false;
  if (steps[0] == "self" || steps[0] == "thread-self") return true;
  if (steps[0].find_first_not_of("0123456789") != std::string::npos) return false;
  const size_t of_task = steps.size() > 3 && steps[1] == "task" ? 3 : 1;
  if (of_task >= steps.size()) return false;
  const std::string& name = steps[of_task];
  if (name == "exe" || name == "root" || name == "cwd") return true;
  return (name == "fd" || name == "map_files" || name == "ns") && steps.size() > of_task + 1;
}

std::string WhatOfPath(const std::string& path, const ImageMounts& mounts) {
  if (!IsPlainPath(path)) return "leads out of the container";
  const ImageMount* on = mounts.Of(path);
  const bool in_proc = on == nullptr ? IsWithin(path, "/proc") : on->kind == MountKind::kProc;
  return in_proc && LeadsOut(path.substr(IsWithin(path, "/proc") ? 5 : on->path.size())) ? "leads through a process" : "";
}

class Checker {
 public:
  Checker(const Json& spec, const ImageMounts& mounts) : may_(BoundingSet(spec)), mounts_(mounts) {}

  // False: damaged.
  bool Read(std::string_view bytes) {
    Message file;
    if (!file.Read(bytes)) return false;
    for (const Field& field : file.fields()) {
      if (field.wire == 2 && !ReadKind(field.number, field.content, file.Word(2))) return false;
    }
    return true;
  }

  bool ReadRemap(std::string_view bytes) {
    Message remap;
    if (!remap.Read(bytes)) return false;
    const uint32_t type = remap.Word(3);
    if (type == kRemapProc) return true;
    if (type > kRemapProc) Say("a deleted file is of a kind that we do not know");
    const auto file = regular_.find(remap.Word(1)), link = regular_.find(remap.Word(2));
    if (file == regular_.end() || (type == kRemapLinked && link == regular_.end())) return false;
    MadeAt(file->second);
    if (type == kRemapLinked) MadeAt(link->second);
    return true;
  }

  void Say(const std::string& what) {
    if (what_.empty()) what_ = Shown(what);
  }
  const std::string& what() const { return what_; }
  ImagePaths TakePaths() {
    for (const auto& [id, file] : regular_) paths_.files.push_back(file.path);
    return std::move(paths_);
  }

 private:
  struct Regular {
    std::string path;
    int64_t mount = -1;
  };

  void Needs(uint64_t capabilities, const std::string& what) {
    if ((may_ & (capabilities | kCapSysAdmin)) == 0) Say(what + " is open, for which it needs " + CapabilityNames(capabilities));
  }

  bool ReadKind(uint32_t kind, std::string_view bytes, uint32_t id) {
    switch (kind) {
      case kRegular:
        return ReadRegular(bytes, id);
      case kInet:
        return ReadInet(bytes);
      case kNetlink:
        return ReadNetlink(bytes);
      case kUnix:
        return ReadUnix(bytes);
      case kInotify:
        return ReadWatches(bytes);
      case kPacket:
        Needs(kCapNetRaw, "a packet socket");
        return true;
      case kTun:
        Needs(kCapNetAdmin, "a tun device");
        return true;
      case kFanotify:
        Needs(kCapSysAdmin, "a fanotify descriptor");
        return true;
      case kBpfMap:
        Needs(kCapBpf, "a BPF map");
        return true;
      case kPlugin:
        Say("a descriptor is open that a plugin of CRIU is to open");
        return true;
      default:
        if (kind > kPidfd) Say("a descriptor is open of a kind that we do not know");
        return true;
    }
  }

  bool ReadOptions(const Message& socket, uint32_t number) {
    Message options;
    if (!options.Read(socket.Bytes(number), Repeated(16))) return false;
    if (options.Number(kMark) != 0) Needs(kCapNetAdmin, "a socket with a mark");
    return true;
  }

  bool ReadRegular(std::string_view bytes, uint32_t id) {
    Message file;
    Regular regular;
    if (!file.Read(bytes, kRegularRepeated) || !file.Text(kRegularName, &regular.path) || file.Word(1) != id) return false;
    if (file.Number(kExternal) != 0) Say("a file is open that a plugin of CRIU is to open");
    const std::string what = WhatOfPath(regular.path, mounts_);
    if (!what.empty()) Say("a file is open that " + what + ": " + regular.path);
    // Whoever opens these shows the node's memory, addresses and log to whom the descriptor is given.
    for (const char* of_node : {"/proc/kmsg", "/proc/kcore", "/proc/kallsyms"}) {
      if (regular.path == of_node && (file.Word(kMode) & S_IFMT) != S_IFCHR) Needs(kCapSyslog, of_node);
    }
    const uint64_t mount = file.Number(kRegularMount, 1);  // zigzag: -1
    regular.mount = static_cast<int32_t>(static_cast<uint32_t>(mount) >> 1 ^ (0 - (static_cast<uint32_t>(mount) & 1)));
    const uint32_t flags = file.Word(kRegularFlags), type = file.Word(kMode) & S_IFMT;
    const ImageMount* on = mounts_.Of(regular.path);
    const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
    // CRIU makes a mount writable for the time in which it gives a deleted file its name. (What a device is opened for is no file's
    // matter.)
    if (on != nullptr && on->read_only && writes && (flags & O_PATH) == 0 && (type == 0 || type == S_IFREG || type == S_IFDIR))
      Say("a file is open for writing on a read-only mount: " + regular.path);
    return regular_.emplace(id, std::move(regular)).second;
  }

  bool ReadInet(std::string_view bytes) {
    Message socket;
    if (!socket.Read(bytes, kInetRepeated)) return false;
    if (socket.Word(kInetType) != SOCK_STREAM && socket.Word(kInetType) != SOCK_DGRAM) Needs(kCapNetRaw, "a raw socket");
    return ReadOptions(socket, kInetOptions);
  }

  bool ReadNetlink(std::string_view bytes) {
    Message socket;
    if (!socket.Read(bytes, Repeated(kNetlinkGroups))) return false;
    bool groups = false;
    for (const Field& field : socket.fields())
      groups = groups || (field.number == kNetlinkGroups && (field.value != 0 || !field.content.empty()));
    const uint32_t protocol = socket.Word(kNetlinkProtocol);
    const bool free =
        protocol == NETLINK_ROUTE || protocol == NETLINK_KOBJECT_UEVENT || protocol == NETLINK_GENERIC || protocol == NETLINK_SELINUX;
    if (groups && !free) Needs(protocol == NETLINK_AUDIT ? kCapAuditRead : kCapNetAdmin, "a netlink socket that hears of what others do");
    return ReadOptions(socket, kNetlinkOptions);
  }

  bool ReadUnix(std::string_view bytes) {
    Message socket;
    std::string folder;
    if (!socket.Read(bytes) || !socket.Text(kUnixFolder, &folder) || !ReadOptions(socket, kUnixOptions)) return false;
    std::string name(socket.Bytes(kUnixName));
    if (name.empty() || name[0] == '\0') return true;  // of none, or of the abstract ones
    if (name.back() == '\0') name.pop_back();
    if (name.find('\0') != std::string::npos) return false;
    if (name[0] != '/') name.insert(0, folder + "/");
    if (!folder.empty() && !IsPlainPath(folder)) Say("a socket is bound in " + folder);
    paths_.names.push_back(std::move(name));
    return true;
  }

  bool ReadWatches(std::string_view bytes) {
    Message inotify;
    if (!inotify.Read(bytes, Repeated(kWatches))) return false;
    for (const Field& field : inotify.fields()) {
      if (field.number != kWatches) continue;
      Message watch, handle;
      std::string path;
      if (!watch.Read(field.content) || !handle.Read(watch.Bytes(kHandle), Repeated(3)) || !handle.Text(kHandlePath, &path)) return false;
      if (path.empty()) continue;
      if (path[0] != '/') path.insert(0, "/");
      const std::string what = WhatOfPath(path, mounts_);
      if (!what.empty()) Say("what is watched " + what + ": " + path);
      paths_.names.push_back(path);
    }
    return true;
  }

  // Names are made on the mount that the file is of, which is made writable for it.
  void MadeAt(const Regular& file) {
    const ImageMount* on = mounts_.Of(file.path);
    if (on == nullptr) return;
    const bool of_files = on->kind == MountKind::kRoot || on->kind == MountKind::kBind || on->kind == MountKind::kTmpfs;
    if (!of_files || (file.mount > 0 && static_cast<uint32_t>(file.mount) != on->id))
      Say("a deleted file is to be made where none can be: " + file.path);
  }

  const uint64_t may_;
  const ImageMounts& mounts_;
  std::map<uint32_t, Regular> regular_;
  ImagePaths paths_;
  std::string what_;
};

}  // namespace

Result<ImagePaths> CheckImageFiles(const std::string& images, const Json& spec, const ImageMounts& mounts) {
  Checker checker(spec, mounts);
  for (const auto& [name, magic] : {std::pair("files.img", kFilesMagic), std::pair("remap-fpath.img", kRemapMagic)}) {
    Result<std::string> image = ReadImage(images, name);
    if (image.status().code() == Code::kNotFound) continue;
    if (!image.ok()) return image.status();
    const bool whole = ForEachEntry(*image, magic, [&, kind = magic](std::string_view entry) {
      return kind == kFilesMagic ? checker.Read(entry) : checker.ReadRemap(entry);
    });
    if (!whole) return DamagedImage(images, name);
    if (!checker.what().empty()) return WiderImage(name, checker.what());
  }
  return checker.TakePaths();
}

}  // namespace holdfast::runtime
