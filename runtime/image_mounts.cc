#include "runtime/image_mounts.h"

#include <sys/mount.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "runtime/criu_entries.h"
#include "runtime/image_check.h"
#include "runtime/spec_mounts.h"

namespace holdfast::runtime {
namespace {

// images/mnt.proto
constexpr uint32_t kType = 1, kId = 2, kDevice = 3, kParent = 4, kFlags = 5, kRoot = 6, kPath = 7, kOptions = 9, kPlugin = 12,
                   kExternal = 13, kDeleted = 16, kSuperFlags = 17, kKey = 18;
enum FileSystem : uint32_t { kProc = 1, kSysfs = 2, kTmpfs = 5, kDevpts = 6, kCgroup = 12, kMqueue = 14, kCgroup2 = 23 };
constexpr size_t kMaxMounts = 100'000;  // the kernel's own limit
constexpr uint32_t kKept = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// They tell of the node and give nothing, and depend on its hardware or on how new the kubelet is.
bool MayBeMissing(const std::string& masked) {
  return masked == "/proc/asound" || masked == "/proc/interrupts" || masked == "/sys/devices/virtual/powercap" ||
         (masked.starts_with("/sys/devices/system/cpu/cpu") && masked.ends_with("/thermal_throttle"));
}

std::vector<std::string> Texts(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (text.is_string()) texts.push_back(PlainPath(text.get<std::string>()));
  }
  return texts;
}

bool AreHarmless(const std::string& options) {
  for (const char* name : {"release_agent", "context"}) {
    if (options.find(name) != std::string::npos) return false;
  }
  return true;
}

class Comparison {
 public:
  Comparison(const Json& spec, const std::string& root) : wanted_(SpecMounts(spec, root)) {
    for (const Json& device : GetArray(spec, {"linux", "devices"})) devices_.insert(GetString(device, {"path"}));
    masked_ = Texts(GetArray(spec, {"linux", "maskedPaths"}));
    read_only_ = Texts(GetArray(spec, {"linux", "readonlyPaths"}));
    root_read_only_ = GetBool(spec, {"root", "readonly"});
  }

  // What is wrong with it; empty when nothing is.
  std::string Add(const Message& entry, const std::string& path, ImageMounts* all) {
    ImageMount mount;
    mount.path = path;
    mount.id = entry.Word(kId), mount.parent = entry.Word(kParent), mount.device = entry.Word(kDevice);
    mount.read_only = ((entry.Word(kFlags) | entry.Word(kSuperFlags)) & MS_RDONLY) != 0;
    std::string from, key, options;
    if (!entry.Text(kRoot, &from) || !entry.Text(kKey, &key) || !entry.Text(kOptions, &options)) return "is mounted with a NUL in it";
    const bool external = entry.Has(kKey);
    if (entry.Number(kPlugin) != 0 || entry.Number(kExternal) != 0) return "is mounted by a plugin";
    if (!external && entry.Number(kDeleted) != 0) return "is mounted from what was deleted";
    const std::string what = Judge(entry, external, key, from, options, &mount);
    if (!what.empty()) return what;
    if (!paths_.insert(path).second) return "is mounted twice";
    all->mounts.push_back(mount);
    if (mount.kind == MountKind::kBind && (flags_ & kKept & ~entry.Word(kFlags)) != 0) all->narrower[path] = flags_ & kKept;
    return "";
  }

  std::string Missing(const ImageMounts& all) const {
    auto would_be_seen = [&](const std::string& path) {
      const ImageMount* on = all.Of(path);
      return paths_.count(path) == 0 && on != nullptr && on->path != "/" && Exists(path);
    };
    for (const std::string& path : masked_) {
      if (!MayBeMissing(path) && would_be_seen(path)) return path + " is not masked";
    }
    for (const std::string& path : read_only_) {
      if (would_be_seen(path)) return path + " is not read-only";
    }
    return "";
  }

 private:
  std::string Judge(const Message& entry, bool external, const std::string& key, const std::string& from, const std::string& options,
                    ImageMount* mount) {
    const std::string& path = mount->path;
    flags_ = 0;
    if (path == "/") {
      mount->kind = MountKind::kRoot;
      if (external) return "is mounted from elsewhere";
      return root_read_only_ && !mount->read_only ? "is not read-only" : "";
    }
    const uint32_t type = entry.Word(kType), flags = entry.Word(kFlags) | (mount->read_only ? uint32_t{MS_RDONLY} : 0U);
    if (const auto wanted = wanted_.find(path); wanted != wanted_.end()) {
      flags_ = wanted->second.flags;
      return OfTheSpec(wanted->second, external, key, from, type, flags, options, mount);
    }
    const std::string parent = path.substr(0, path.rfind('/'));
    if (const auto wanted = wanted_.find(parent); wanted != wanted_.end() && wanted->second.type == "cgroup") {
      if (type != kCgroup || (external ? key != path : from != "/")) return "is not the container's own cgroup";
      if ((wanted->second.flags & ~flags) != 0) return "is mounted with more rights than its spec gives";
      return external || AreHarmless(options) ? "" : "is mounted with options " + options;
    }
    if (std::find(masked_.begin(), masked_.end(), path) != masked_.end()) {
      if (external ? key == "/dev/null" : type == kTmpfs && from == "/" && mount->read_only && AreHarmless(options)) return "";
      return "is masked by its spec, and would not be";
    }
    if (std::find(read_only_.begin(), read_only_.end(), path) != read_only_.end()) return ReadOnly(external, from, type, mount);
    if (path == "/dev/console" && !external && type == kDevpts && IsNumber(from)) return "";
    if (external && key == path && devices_.count(path) != 0) return "";
    return "is mounted, where its spec mounts nothing";
  }

  static bool IsNumber(const std::string& from) {
    return from.size() > 1 && from[0] == '/' && from.find_first_not_of("0123456789", 1) == std::string::npos;
  }

  std::string OfTheSpec(const SpecMount& wanted, bool external, const std::string& key, const std::string& from, uint32_t type,
                        uint32_t flags, const std::string& options, ImageMount* mount) {
    if (wanted.type == "bind") {
      mount->kind = MountKind::kBind;
      mount->source = wanted.source;
      if (!external || key != mount->path) return "is mounted from elsewhere than its spec says";
      return (wanted.flags & ~flags & MS_RDONLY) != 0 ? "is not read-only" : "";
    }
    // Of cgroup v1 it is a tmpfs with one more mount for each controller.
    const bool v1 = wanted.type == "cgroup" && type == kTmpfs;
    const std::map<std::string, uint32_t> types = {{"proc", kProc},     {"sysfs", kSysfs},    {"tmpfs", kTmpfs},    {"devpts", kDevpts},
                                                   {"mqueue", kMqueue}, {"cgroup", kCgroup2}, {"cgroup2", kCgroup2}};
    const auto known = types.find(wanted.type);
    // Of cgroup v2 the root is what CRIU saw from where it ran; it mounts the container's own.
    const bool whole = type == kCgroup2 ? IsPlainPath(from) : from == "/";
    if (external || !whole || known == types.end() || (known->second != type && !v1)) return "is not the " + wanted.type + " of its spec";
    if ((wanted.flags & ~flags & ~(v1 ? uint32_t{MS_RDONLY} : 0U)) != 0) return "is mounted with more rights than its spec gives";
    if (!AreHarmless(options)) return "is mounted with options " + options;
    if (type == kTmpfs) mount->kind = MountKind::kTmpfs;
    if (type == kProc) mount->kind = MountKind::kProc;
    return "";
  }

  // A part of /proc or /sys that is mounted onto itself: nothing in these can be made to lead elsewhere.
  std::string ReadOnly(bool external, const std::string& from, uint32_t type, ImageMount* mount) const {
    const std::string top = type == kProc ? "/proc" : type == kSysfs ? "/sys" : "";
    if (external || top.empty() || !IsPlainPath(from) || from == "/" || top + from != mount->path)
      return "is mounted from elsewhere than its spec says";
    if (type == kProc) mount->kind = MountKind::kProc;
    return mount->read_only ? "" : "is not read-only";
  }

  const std::map<std::string, SpecMount> wanted_;
  std::set<std::string> devices_, paths_;
  std::vector<std::string> masked_, read_only_;
  bool root_read_only_ = false;
  uint32_t flags_ = 0;  // of what was judged last
};

// Each mount stands on the one that its path lies on, so that none is hidden or reached from elsewhere.
std::string Misplaced(const ImageMounts& all) {
  std::map<uint32_t, const ImageMount*> by_id;
  for (const ImageMount& mount : all.mounts) {
    if (!by_id.emplace(mount.id, &mount).second) return mount.path + " is mounted twice";
  }
  for (const ImageMount& mount : all.mounts) {
    if (mount.path == "/") continue;
    const ImageMount* on = all.Of(mount.path.substr(0, std::max<size_t>(mount.path.rfind('/'), 1)));
    if (on == nullptr || on->id != mount.parent) return mount.path + " is mounted where it is not seen";
  }
  return "";
}

}  // namespace

const ImageMount* ImageMounts::Of(std::string_view path) const {
  const ImageMount* deepest = nullptr;
  for (const ImageMount& mount : mounts) {
    if (IsWithin(path, mount.path) && (deepest == nullptr || mount.path.size() > deepest->path.size())) deepest = &mount;
  }
  return deepest;
}

Result<ImageMounts> CheckImageMounts(const std::string& images, const Json& spec, const std::string& root) {
  ImageMounts all;
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(images));
  const bool may_mount = (BoundingSet(spec) & kCapSysAdmin) != 0;
  Comparison comparison(spec, root);
  std::string read;
  for (const std::string& name : names) {
    if (!name.starts_with("mountpoints-")) continue;
    if (may_mount) continue;
    if (!read.empty()) return WiderImage(name, "there are mounts that only a container with CAP_SYS_ADMIN can make");
    read = name;
    HF_ASSIGN_OR_RETURN(const std::string image, ReadImage(images, name));
    std::string what;
    size_t count = 0;
    const bool whole = ForEachEntry(image, kMountsMagic, [&](std::string_view bytes) {
      Message entry;
      std::string path;
      if (++count > kMaxMounts || !entry.Read(bytes) || !entry.Text(kPath, &path)) return false;
      if (what.empty() && !IsPlainPath(path)) what = "\"" + Shown(path) + "\" is mounted";
      if (!what.empty()) return true;
      what = comparison.Add(entry, path, &all);
      if (!what.empty()) what = Shown(path) + " " + Shown(what);
      return true;
    });
    if (!whole) return DamagedImage(images, name);
    if (what.empty()) what = Misplaced(all);
    if (what.empty()) what = comparison.Missing(all);
    if (!what.empty()) return WiderImage(name, what);
  }
  return all;
}

Result<std::string> NarrowMounts(std::string_view image, const std::map<std::string, uint32_t>& narrower) {
  std::optional<std::string> rewritten = RewriteEntries(image, kMountsMagic, [&](std::string_view bytes, std::string* out) {
    Message entry;
    std::string path;
    if (!entry.Read(bytes) || !entry.Text(kPath, &path)) return false;
    const auto found = narrower.find(path);
    for (const protobuf::Field& field : entry.fields()) {
      if (field.number == kFlags && found != narrower.end()) {
        protobuf::WriteNumber(out, kFlags, (field.value & 0xffffffff) | found->second);
      } else {
        out->append(field.whole);
      }
    }
    return true;
  });
  if (!rewritten) return Status(Code::kDataLoss, "the mounts of the images are damaged or of another CRIU");
  return *std::move(rewritten);
}

}  // namespace holdfast::runtime
