// The images folder that a restore uses: hard links to the fetched images, which stay as they are, with the few files replaced that must
// differ in the new pod. So a restore can be tried again. (Not symbolic links: CRIU opens some images from inside the new root.)
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"

namespace holdfast::runtime {

struct ImagesView {
  // Old address → new address, same family. Sockets that are bound to an old one and are not TCP connections get the new one: else the
  // restore fails, or the listener never hears again.
  std::map<std::string, std::string> addresses;
  // Every container's dump holds the whole IPC namespace of its pod: only the first restore may bring it back.
  bool with_ipc = true;
  // Flags that mounts get beside their own, by path (image_mounts.h).
  std::map<std::string, uint32_t> narrower;
};

// Makes `view` (a fresh folder on the same file system) from `images`.
Status MakeImagesView(const std::string& images, const std::string& view, const ImagesView& options);

// The content of files.img with addresses replaced; unknown fields stay byte by byte. kDataLoss when it is not a files.img.
Result<std::string> RewriteFilesImage(std::string_view image, const std::map<std::string, std::string>& addresses);

}  // namespace holdfast::runtime
