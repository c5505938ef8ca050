// Overlays and what runc mounts, in our own mount namespace.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace holdfast::runtime {

// The upper directory of the overlay mounted at `path`; empty when what is mounted there is no overlay, or a read-only one.
// kNotFound when nothing is mounted there.
Result<std::string> OverlayUpper(const std::string& path);
// The same from the text of a mountinfo.
Result<std::string> OverlayUpperIn(std::string_view mountinfo, const std::string& path);

// Mounts the overlay at `path` again with an emptied upper directory: what a failed restore wrote there is gone.
Status ResetOverlay(const std::string& path);

// Unmounts what a `runc restore` that was killed leaves mounted in its state folder, which cannot be removed before. OK when there is none.
Status UnmountCriuRoot(const std::string& runc_root, const std::string& container_id);

}  // namespace holdfast::runtime
