#include "kube/json_patch.h"

namespace holdfast::kube {

std::string EscapePointer(std::string_view token) {
  std::string out;
  for (char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace holdfast::kube
