// What can be said about certificates and keys without a handshake.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::kube {

// kInvalidArgument unless `pem` holds at least one certificate.
Status CheckCertificates(const std::string& pem);
// kInvalidArgument unless `key_pem` is the key, without a password, of the first certificate in `certificate_pem`.
Status CheckKeyPair(const std::string& certificate_pem, const std::string& key_pem);
// Until when the first certificate holds; nothing when it cannot be read.
std::optional<WallTime> CertificateExpiry(const std::string& certificate_pem);

}  // namespace holdfast::kube
