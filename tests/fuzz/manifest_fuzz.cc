// Manifests: what is read is within every bound, and is written as bytes that read as the same.
#include "storage/limits.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto manifest = Manifest::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!manifest.ok()) return 0;
  if (!CheckManifest(*manifest).ok()) __builtin_trap();
  const std::string text = manifest->Serialize();
  auto again = Manifest::Parse(text);
  if (!again.ok() || again->Serialize() != text || again->TotalBytes() != manifest->TotalBytes()) __builtin_trap();
  return 0;
}
