// What is mounted where, in our own mount namespace.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// The upper directory of the overlay mounted at `path`; empty when what is mounted there is no overlay, or a read-only one.
// kNotFound when nothing is mounted there.
Result<std::string> OverlayUpper(const std::string& path);
// The same from the text of a mountinfo.
Result<std::string> OverlayUpperIn(std::string_view mountinfo, const std::string& path);

// Mounts the overlay at `path` again with an emptied upper directory: what a failed restore wrote there is gone.
Status ResetOverlay(const std::string& path);

}  // namespace holdfast::runtime
