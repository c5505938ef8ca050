#include "runtime/pax.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace holdfast::runtime {
namespace {

constexpr size_t kBlock = 512;

// The fields of a ustar header, where they begin and how long they are.
struct Field {
  size_t at, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12}, kTime{136, 12}, kSum{148, 8}, kType{156, 1},
    kLink{157, 100}, kMagic{257, 8}, kMajor{329, 8}, kMinor{337, 8};

class Block {
 public:
  Block() { bytes_.fill('\0'); }
  void Put(Field field, std::string_view text) { memcpy(bytes_.data() + field.at, text.data(), std::min(text.size(), field.size)); }
  // In octal, or 0 where it does not fit: then a record of the extended header says it.
  void Put(Field field, uint64_t number) {
    char text[32];
    const int digits = snprintf(text, sizeof text, "%0*llo", static_cast<int>(field.size) - 1, static_cast<unsigned long long>(number));
    Put(field, static_cast<size_t>(digits) < field.size ? std::string_view(text) : std::string_view("0"));
  }
  std::string Finish() {
    Put(kMagic, std::string_view("ustar\0"
                                 "00",
                                 8));
    Put(kSum, std::string_view("        "));
    unsigned sum = 0;
    for (char byte : bytes_) sum += static_cast<unsigned char>(byte);
    char text[8];
    snprintf(text, sizeof text, "%06o", sum);
    Put(kSum, std::string_view(text, 7));  // six digits, NUL, and the last of the blanks
    return {bytes_.data(), bytes_.size()};
  }

 private:
  std::array<char, kBlock> bytes_;
};

std::string Padded(std::string text) {
  text.resize((text.size() + kBlock - 1) / kBlock * kBlock, '\0');
  return text;
}

// "LENGTH KEY=VALUE\n", where the length counts itself.
std::string Record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  std::string record = std::to_string(length);
  record.append(" ").append(key).append("=").append(value).append("\n");
  return record;
}

std::string TimeText(const timespec& time) {
  char text[64];
  // A negative time with a fraction counts back from the next second: rounded to whole ones.
  const long nanoseconds = time.tv_sec < 0 ? 0 : time.tv_nsec;
  snprintf(text, sizeof text, "%lld.%09ld", static_cast<long long>(time.tv_sec), nanoseconds);
  return text;
}

char TypeOf(const PaxEntry& entry) {
  if (!entry.hardlink.empty()) return '1';
  switch (entry.info.st_mode & S_IFMT) {
    case S_IFLNK:
      return '2';
    case S_IFCHR:
      return '3';
    case S_IFDIR:
      return '5';
    case S_IFIFO:
      return '6';
    default:
      return '0';
  }
}

std::string MapOf(const PaxEntry& entry) {
  std::string map = std::to_string(entry.extents.size()) + "\n";
  for (const Extent& extent : entry.extents) map += std::to_string(extent.offset) + "\n" + std::to_string(extent.size) + "\n";
  return Padded(std::move(map));
}

}  // namespace

off_t DataSize(const PaxEntry& entry) {
  if (!S_ISREG(entry.info.st_mode) || !entry.hardlink.empty()) return 0;
  if (!entry.sparse) return entry.info.st_size;
  off_t size = 0;
  for (const Extent& extent : entry.extents) size += extent.size;
  return size;
}

std::string PaxHeader(const PaxEntry& entry) {
  const struct stat& info = entry.info;
  const bool sparse = entry.sparse && entry.hardlink.empty();
  const std::string map = sparse ? MapOf(entry) : "";
  const auto size = static_cast<uint64_t>(DataSize(entry)) + map.size();
  const std::string& link = entry.hardlink.empty() ? entry.target : entry.hardlink;
  // Names are bytes, of whatever character set.
  std::string records = Record("hdrcharset", "BINARY") + Record("path", entry.path) + Record("mtime", TimeText(info.st_mtim)) +
                        Record("atime", TimeText(info.st_atim)) + Record("uid", std::to_string(info.st_uid)) +
                        Record("gid", std::to_string(info.st_gid)) + Record("size", std::to_string(size));
  if (!link.empty()) records += Record("linkpath", link);
  if (entry.hardlink.empty()) {
    for (const auto& [name, value] : entry.attributes) records += Record("SCHILY.xattr." + name, value);
    if (!entry.acl.empty()) records += Record("SCHILY.acl.access", entry.acl);
    if (!entry.default_acl.empty()) records += Record("SCHILY.acl.default", entry.default_acl);
  }
  if (sparse) {
    records += Record("GNU.sparse.major", "1") + Record("GNU.sparse.minor", "0") + Record("GNU.sparse.name", entry.path) +
               Record("GNU.sparse.realsize", std::to_string(info.st_size));
  }

  Block extended;
  extended.Put(kName, std::string_view("PaxHeader/holdfast"));
  extended.Put(kMode, uint64_t{0644});
  extended.Put(kUid, uint64_t{0});
  extended.Put(kGid, uint64_t{0});
  extended.Put(kSize, records.size());
  extended.Put(kTime, uint64_t{0});
  extended.Put(kType, std::string_view("x"));
  Block header;
  header.Put(kName, entry.path);
  header.Put(kMode, info.st_mode & 07777);
  header.Put(kUid, info.st_uid);
  header.Put(kGid, info.st_gid);
  header.Put(kSize, size);
  header.Put(kTime, static_cast<uint64_t>(std::max<time_t>(info.st_mtim.tv_sec, 0)));
  const char type = TypeOf(entry);
  header.Put(kType, std::string_view(&type, 1));
  header.Put(kLink, link);
  header.Put(kMajor, uint64_t{0});  // of devices only whiteouts are kept
  header.Put(kMinor, uint64_t{0});
  return extended.Finish() + Padded(std::move(records)) + header.Finish() + map;
}

std::string PaxEnd() { return std::string(2 * kBlock, '\0'); }

}  // namespace holdfast::runtime
