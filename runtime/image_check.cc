#include "runtime/image_check.h"

#include <cstring>

#include "base/file.h"
#include "runtime/criu_entries.h"

namespace holdfast::runtime {
namespace {

// The order is the kernel's.
constexpr std::array<std::string_view, 41> kCapabilities = {"CAP_CHOWN",
                                                            "CAP_DAC_OVERRIDE",
                                                            "CAP_DAC_READ_SEARCH",
                                                            "CAP_FOWNER",
                                                            "CAP_FSETID",
                                                            "CAP_KILL",
                                                            "CAP_SETGID",
                                                            "CAP_SETUID",
                                                            "CAP_SETPCAP",
                                                            "CAP_LINUX_IMMUTABLE",
                                                            "CAP_NET_BIND_SERVICE",
                                                            "CAP_NET_BROADCAST",
                                                            "CAP_NET_ADMIN",
                                                            "CAP_NET_RAW",
                                                            "CAP_IPC_LOCK",
                                                            "CAP_IPC_OWNER",
                                                            "CAP_SYS_MODULE",
                                                            "CAP_SYS_RAWIO",
                                                            "CAP_SYS_CHROOT",
                                                            "CAP_SYS_PTRACE",
                                                            "CAP_SYS_PACCT",
                                                            "CAP_SYS_ADMIN",
                                                            "CAP_SYS_BOOT",
                                                            "CAP_SYS_NICE",
                                                            "CAP_SYS_RESOURCE",
                                                            "CAP_SYS_TIME",
                                                            "CAP_SYS_TTY_CONFIG",
                                                            "CAP_MKNOD",
                                                            "CAP_LEASE",
                                                            "CAP_AUDIT_WRITE",
                                                            "CAP_AUDIT_CONTROL",
                                                            "CAP_SETFCAP",
                                                            "CAP_MAC_OVERRIDE",
                                                            "CAP_MAC_ADMIN",
                                                            "CAP_SYSLOG",
                                                            "CAP_WAKE_ALARM",
                                                            "CAP_BLOCK_SUSPEND",
                                                            "CAP_AUDIT_READ",
                                                            "CAP_PERFMON",
                                                            "CAP_BPF",
                                                            "CAP_CHECKPOINT_RESTORE"};

}  // namespace

uint64_t BoundingSet(const Json& spec) {
  uint64_t set = 0;
  for (const Json& name : GetArray(spec, {"process", "capabilities", "bounding"})) {
    for (size_t i = 0; i < kCapabilities.size(); ++i) {
      if (name.is_string() && name.get_ref<const std::string&>() == kCapabilities[i]) set |= uint64_t{1} << i;
    }
  }
  return set;
}

std::string CapabilityNames(uint64_t capabilities) {
  std::string names;
  for (size_t i = 0; i < 64; ++i) {
    if ((capabilities >> i & 1) == 0) continue;
    names += (names.empty() ? "" : ", ") + (i < kCapabilities.size() ? std::string(kCapabilities[i]) : "capability " + std::to_string(i));
  }
  return names;
}

bool Message::Read(std::string_view bytes, uint64_t repeated) {
  fields_.clear();
  at_.fill(-1);
  return ForEachField(bytes, [&](const protobuf::Field& field) {
    if (field.number == 0 || field.number >= at_.size()) return false;
    if (Has(field.number) && (repeated >> field.number & 1) == 0) return false;
    at_[field.number] = static_cast<int>(fields_.size());
    fields_.push_back(field);
    return true;
  });
}

bool Message::Text(uint32_t number, std::string* text) const {
  text->assign(Bytes(number));
  return text->find('\0') == std::string::npos;
}

Result<std::string> ReadImage(const std::string& images, const std::string& name) {
  Result<std::string> image = ReadFile(images + "/" + name, kMaxParsedImage);
  if (image.status().code() == Code::kResourceExhausted) return WiderImage(name, "is longer than what is read of such a one");
  return image;
}

std::optional<std::string_view> FirstEntry(std::string_view image, uint32_t magic) {
  std::array<uint32_t, 3> words = {};  // common magic, its own, the entry's size
  if (image.size() < sizeof words) return std::nullopt;
  memcpy(words.data(), image.data(), sizeof words);
  image.remove_prefix(sizeof words);
  if (words[0] != kCommonMagic || words[1] != magic || words[2] > image.size()) return std::nullopt;
  return image.substr(0, words[2]);
}

Status DamagedImage(const std::string& images, const std::string& name) {
  return Status(Code::kDataLoss, images + "/" + name + " is damaged or of another CRIU");
}

Status WiderImage(const std::string& name, const std::string& what) {
  return Status(Code::kFailedPrecondition,
                "the checkpoint is wider than the container that it is for: by " + Shown(name) + " " + what +
                    ". Nothing of it ran; if the node that made it is not to be trusted, delete its checkpoints");
}

bool IsPlainPath(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.size() >= 4096) return false;
  if (path == "/") return true;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view step = path.substr(0, path.find('/'));
    if (step.empty() || step == "." || step == "..") return false;
    path.remove_prefix(step.size());
  }
  return true;
}

bool IsWithin(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string Shown(std::string_view name) {
  std::string shown(name.substr(0, 200));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown;
}

}  // namespace holdfast::runtime
