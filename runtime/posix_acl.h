// POSIX ACLs between the three ways they are told: the kernel's attribute (system.posix_acl_access and _default), an archive entry's, and
// text, as archives have them.
#pragma once

#include <string>
#include <string_view>

struct archive_entry;

namespace holdfast::runtime {

inline constexpr char kAccessAcl[] = "system.posix_acl_access", kDefaultAcl[] = "system.posix_acl_default";

// Of the attribute's value; empty when it is none.
std::string AclText(std::string_view attribute);
// The attribute's value for one of an entry's ACLs; empty when it has none beside its mode.
std::string AclAttribute(archive_entry* entry, bool of_default);

}  // namespace holdfast::runtime
