// RFC 3339 times and Go's durations: what is read is written and read again as the same.
#include "base/time_format.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto time = ParseTime(text)) {
    const auto again = ParseTime(FormatMicroTime(*time));
    if (!again || std::chrono::abs(*again - *time) >= std::chrono::microseconds(1)) __builtin_trap();
  }
  if (auto duration = ParseDuration(text)) {
    if (*duration < Duration(0) || *duration > std::chrono::hours(24 * 366 * 10)) __builtin_trap();
    if (*duration >= std::chrono::seconds(1) && !ParseDuration(FormatDuration(*duration))) __builtin_trap();
  }
  return 0;
}
