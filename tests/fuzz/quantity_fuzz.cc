// A Kubernetes quantity (ParseQuantity): what it reads as is a size, reads as itself when written in digits, and grows with its suffix.
#include <string>

#include "api/restore_policy.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto value = api::ParseQuantity(text);
  if (!value) return 0;
  if (*value < 0 || api::ParseQuantity(std::to_string(*value)) != value) __builtin_trap();
  // Only a whole number ("-0" is one) may be followed by a suffix, and then it multiplies.
  const bool digits = text.find_first_not_of("0123456789-") == std::string::npos;
  int64_t last = *value;
  for (const char* suffix : {"k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "P", "Pi"}) {
    const auto more = api::ParseQuantity(text + suffix);
    if (!more) continue;
    if (!digits || *more < last) __builtin_trap();
    last = *more;
  }
  return 0;
}
