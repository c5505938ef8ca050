// What the images mount, compared with what the new container's spec mounts: CRIU mounts as root whatever they name. Hostile input.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::runtime {

enum class MountKind { kRoot, kBind, kTmpfs, kProc, kOther };

struct ImageMount {
  std::string path;
  MountKind kind = MountKind::kOther;
  uint32_t id = 0, parent = 0, device = 0;
  bool read_only = false;
  std::string source;  // of a bind: the spec's
};

struct ImageMounts {
  std::vector<ImageMount> mounts;
  // Flags (MS_NOSUID, MS_NODEV, MS_NOEXEC) that binds of the spec have and the images lack, by path: a runtime of another release may have
  // asked for less. They are to be added.
  std::map<std::string, uint32_t> narrower;
  // The mount that a path of the container lies on.
  const ImageMount* Of(std::string_view path) const;
};

// kFailedPrecondition: something is mounted that the spec does not mount there, from elsewhere, of another kind, or not read-only; or what
// it masks or has read-only would not be. `root`: the new container's root folder, for destinations that are links in it. Nothing is
// compared for a container that is allowed CAP_SYS_ADMIN: it may mount by itself.
Result<ImageMounts> CheckImageMounts(const std::string& images, const Json& spec, const std::string& root);

// A mountpoints image with flags added. kDataLoss: damaged.
Result<std::string> NarrowMounts(std::string_view image, const std::map<std::string, uint32_t>& narrower);

}  // namespace holdfast::runtime
