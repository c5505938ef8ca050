// Who calls, and what they may do.
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "storage/hash.h"

namespace holdfast::storage {

struct Caller {
  std::string user;
  std::string node;  // on which the pod runs that the token was made for; empty: none
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // kUnauthenticated: the token is nobody's. kUnavailable: whoever could tell did not answer. Thread-safe.
  virtual Result<Caller> Authenticate(const std::string& token, std::stop_token stop) = 0;
};

// Remembers the answers of another one for a while, by a keyed hash of the token: a token itself is never kept. Tokens that were not good
// before are asked about a few at a time, and forgotten apart from the good ones, so that whoever makes some up keeps nobody else out.
class CachedAuthenticator final : public Authenticator {
 public:
  CachedAuthenticator(std::unique_ptr<Authenticator> inner, Duration known_for, Duration unknown_for, Clock& clock);
  Result<Caller> Authenticate(const std::string& token, std::stop_token stop) override;

 private:
  struct Entry {
    Caller caller;
    MonoTime until;
  };
  using Entries = std::map<SegmentId, Entry>;
  void MakeRoom(Entries* entries);
  const std::unique_ptr<Authenticator> inner_;
  const Duration known_for_, unknown_for_;
  Clock& clock_;
  const HashKey key_;
  std::mutex mutex_;
  Entries known_, nobodys_;
  size_t asking_ = 0;  // about tokens that are not among the known
};

enum class Role : unsigned { kReadWrite = 1, kDelete = 2 };

// User names and their roles, from --allow USER=read-write[,delete].
class AllowList {
 public:
  Status Add(const std::string& flag);
  bool Allows(const std::string& user, Role role) const;
  bool Knows(const std::string& user) const { return roles_.contains(user); }
  bool empty() const { return roles_.empty(); }

 private:
  std::map<std::string, unsigned> roles_;
};

}  // namespace holdfast::storage
