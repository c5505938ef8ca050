#include "runtime/posix_acl.h"

#include <archive.h>
#include <archive_entry.h>
#include <endian.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace holdfast::runtime {
namespace {

// linux/posix_acl_xattr.h, little-endian.
constexpr uint32_t kVersion = 2;
enum Tag : uint16_t { kUserObj = 1, kUser = 2, kGroupObj = 4, kGroup = 8, kMask = 16, kOther = 32 };
struct Entry {
  uint16_t tag, perm;
  uint32_t id;
};

Tag TagOf(int tag) {
  switch (tag) {
    case ARCHIVE_ENTRY_ACL_USER:
      return kUser;
    case ARCHIVE_ENTRY_ACL_USER_OBJ:
      return kUserObj;
    case ARCHIVE_ENTRY_ACL_GROUP:
      return kGroup;
    case ARCHIVE_ENTRY_ACL_GROUP_OBJ:
      return kGroupObj;
    case ARCHIVE_ENTRY_ACL_MASK:
      return kMask;
    default:
      return kOther;
  }
}

}  // namespace

std::string AclText(std::string_view attribute) {
  if (attribute.size() < sizeof kVersion || (attribute.size() - sizeof kVersion) % sizeof(Entry) != 0) return "";
  attribute.remove_prefix(sizeof kVersion);
  std::string text;
  for (; !attribute.empty(); attribute.remove_prefix(sizeof(Entry))) {
    Entry entry;
    memcpy(&entry, attribute.data(), sizeof entry);
    const uint16_t tag = le16toh(entry.tag), perm = le16toh(entry.perm);
    const std::string id = std::to_string(le32toh(entry.id));
    const bool named = tag == kUser || tag == kGroup;
    if (!text.empty()) text += ",";
    text += tag == kUserObj || tag == kUser ? "user:" : tag == kGroupObj || tag == kGroup ? "group:" : tag == kMask ? "mask:" : "other:";
    text += (named ? id : "") + ":";
    for (const auto& [bit, letter] : {std::pair(4, 'r'), std::pair(2, 'w'), std::pair(1, 'x')}) text += (perm & bit) != 0 ? letter : '-';
    if (named) text += ":" + id;
  }
  return text;
}

std::string AclAttribute(archive_entry* entry, bool of_default) {
  const int want = of_default ? ARCHIVE_ENTRY_ACL_TYPE_DEFAULT : ARCHIVE_ENTRY_ACL_TYPE_ACCESS;
  if (archive_entry_acl_reset(entry, want) <= (of_default ? 0 : 3)) return "";
  std::vector<Entry> entries;
  int type, permset, tag, id;
  const char* name;
  while (archive_entry_acl_next(entry, want, &type, &permset, &tag, &id, &name) == ARCHIVE_OK) {
    const Tag ours = TagOf(tag);
    entries.push_back({ours, static_cast<uint16_t>(permset & 7), ours == kUser || ours == kGroup ? static_cast<uint32_t>(id) : UINT32_MAX});
  }
  // The kernel takes them in this order only.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return std::pair(a.tag, a.id) < std::pair(b.tag, b.id); });
  std::string value(sizeof kVersion + entries.size() * sizeof(Entry), '\0');
  const uint32_t version = htole32(kVersion);
  memcpy(value.data(), &version, sizeof version);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry ready{htole16(entries[i].tag), htole16(entries[i].perm), htole32(entries[i].id)};
    memcpy(value.data() + sizeof version + i * sizeof ready, &ready, sizeof ready);
  }
  return value;
}

}  // namespace holdfast::runtime
