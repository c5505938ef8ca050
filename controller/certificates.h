// X.509 by OpenSSL, as much as our own CA needs: ECDSA P-256 keys, PEM in and out. Pure but for the random generator.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::controller {

struct KeyPair {
  std::string cert_pem, key_pem;
};

struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> hosts;  // DNS names and IP addresses; none: a CA
  Duration validity;
};

// Self-signed, may sign servers.
Result<KeyPair> MakeCa(const CertificateRequest& request, WallTime now);
// For TLS servers, signed by `ca`.
Result<KeyPair> IssueServer(const KeyPair& ca, const CertificateRequest& request, WallTime now);

struct CertificateFacts {
  WallTime not_before, not_after;
  std::vector<std::string> hosts;
};
Result<CertificateFacts> ReadCertificate(const std::string& cert_pem);  // the first one of the PEM
bool SignedBy(const std::string& cert_pem, const std::string& ca_pem);  // the first ones

}  // namespace holdfast::controller
