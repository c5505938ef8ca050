// Who we are to the server and whom we trust, from ClientConfig; files are read again while the process runs, so that a rotated token,
// client certificate or CA needs no restart. A file that is missing, empty or half written leaves what was good before. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "kube/config.h"

namespace holdfast::kube {

// What one TLS connection is made with. Never changes; a rotation makes another one.
struct TlsMaterial {
  std::string ca_pem;                    // empty: the system's CAs
  std::string certificate_pem, key_pem;  // empty: no client certificate
  uint64_t version = 0;                  // grows with every change
  uint64_t identity = 0;                 // grows when our certificate or key changed: connections made with the old ones must go
};

// kUnauthenticated: our client certificate has expired, and stands in the kubeconfig itself, which is not read again: trying cannot help.
Status ExpiredForGood(const ClientConfig& config, WallTime now);

class Credentials {
 public:
  // A file is looked at again when it was not for `recheck`.
  Credentials(const ClientConfig& config, Clock& clock, Duration recheck);

  // The value of the Authorization header, "" for none.
  std::string Authorization();
  // After 401 to a request that carried `used`: reads the token file now. True when there is another token to try.
  bool RenewAfterRefusal(const std::string& used);
  // kUnavailable while the CA file or the client certificate could never be read.
  Result<std::shared_ptr<const TlsMaterial>> Tls();
  // Why the server may refuse us as far as we can tell ("our client certificate … expired …"), or "".
  std::string Doubt();

 private:
  class File {
   public:
    explicit File(std::string path) : path_(std::move(path)) {}
    const std::string& path() const { return path_; }
    // Whether the content may be another than at the last call.
    bool Refresh();
    const std::string& content() const { return content_; }  // the last that could be read and was not empty

   private:
    const std::string path_;
    std::string content_;
    bool failed_ = false;
  };
  bool Due(std::optional<MonoTime>* last) const;
  void RefreshTls();

  const ClientConfig config_;
  Clock& clock_;
  const Duration recheck_;
  std::mutex mutex_;
  File token_, ca_, certificate_, key_;
  std::optional<MonoTime> token_read_, tls_read_;
  std::shared_ptr<const TlsMaterial> tls_;  // null until there is one
  Status tls_problem_;
};

}  // namespace holdfast::kube
