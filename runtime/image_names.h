// Which files a checkpoint's images may be: CRIU reads what it finds by name, and some of it makes it run tools, load policies, or hand on
// a descriptor of its own. Hostile input.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::runtime {

// kFailedPrecondition: a file that no dump of a container of ours has (network dumps, policies, formats of older CRIUs), one that is no
// plain file, or more descriptors to inherit than a container's three.
Status CheckImageNames(const std::string& images, const Json& spec);

// Whether a dump of ours may have a file of this name.
bool IsImageName(std::string_view name);

}  // namespace holdfast::runtime
