// Standard base64 (RFC 4648, padded), as Secrets, kubeconfigs and admission patches carry it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace holdfast::kube {

std::string EncodeBase64(std::string_view bytes);
// Line breaks and spaces are skipped; nothing for any other foreign character or a wrong length.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace holdfast::kube
