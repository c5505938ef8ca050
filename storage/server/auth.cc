#include "storage/server/auth.h"

#include "storage/aead.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMaxEntries = 1024, kMaxAsking = 16;
constexpr size_t kMaxTokenBytes = 16 << 10;

// Without random bytes there is no cache key, and without a cache the store would ask the API server for every request: rather not start.
HashKey KeyOrZero() {
  HashKey key{};
  return FillRandom(key).ok() ? key : HashKey{};
}

Status Nobody() { return Status(Code::kUnauthenticated, "the bearer token is not valid: send this pod's service-account token"); }

}  // namespace

CachedAuthenticator::CachedAuthenticator(std::unique_ptr<Authenticator> inner, Duration known_for, Duration unknown_for, Clock& clock)
    : inner_(std::move(inner)), known_for_(known_for), unknown_for_(unknown_for), clock_(clock), key_(KeyOrZero()) {}

Result<Caller> CachedAuthenticator::Authenticate(const std::string& token, std::stop_token stop) {
  if (token.empty() || token.size() > kMaxTokenBytes) return Nobody();
  const SegmentId id = HashSegment(key_, AsBytes(token));
  bool was_good = false;
  {
    std::lock_guard lock(mutex_);
    auto known = known_.find(id);
    was_good = known != known_.end();
    if (was_good && clock_.Mono() < known->second.until) return known->second.caller;
    auto nobodys = nobodys_.find(id);
    if (nobodys != nobodys_.end() && clock_.Mono() < nobodys->second.until) return Nobody();
    if (!was_good && asking_ >= kMaxAsking) return Status(Code::kUnavailable, "many new tokens are being reviewed: try again");
    asking_ += was_good ? 0 : 1;
  }
  Result<Caller> caller = inner_->Authenticate(token, stop);
  std::lock_guard lock(mutex_);
  asking_ -= was_good ? 0 : 1;
  if (!caller.ok() && caller.status().code() != Code::kUnauthenticated) return caller;
  Entries& entries = caller.ok() ? known_ : nobodys_;
  if (!caller.ok()) known_.erase(id);
  MakeRoom(&entries);
  entries[id] = Entry{.caller = caller.ok() ? *caller : Caller(), .until = clock_.Mono() + (caller.ok() ? known_for_ : unknown_for_)};
  return caller;
}

void CachedAuthenticator::MakeRoom(Entries* entries) {
  if (entries->size() < kMaxEntries) return;
  std::erase_if(*entries, [&](const auto& entry) { return clock_.Mono() >= entry.second.until; });
  if (entries->size() >= kMaxEntries) entries->clear();
}

Status AllowList::Add(const std::string& flag) {
  const size_t equals = flag.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return Status(Code::kInvalidArgument, "--allow " + flag + ": write it as system:serviceaccount:NAMESPACE:NAME=read-write or =delete");
  }
  unsigned roles = 0;
  for (size_t at = equals + 1; at <= flag.size();) {
    const size_t end = std::min(flag.find(',', at), flag.size());
    const std::string role = flag.substr(at, end - at);
    if (role != "read-write" && role != "delete")
      return Status(Code::kInvalidArgument, "--allow " + flag + ": the roles are read-write and delete");
    roles |= static_cast<unsigned>(role == "delete" ? Role::kDelete : Role::kReadWrite);
    at = end + 1;
  }
  roles_[flag.substr(0, equals)] |= roles;
  return Status::Ok();
}

bool AllowList::Allows(const std::string& user, Role role) const {
  auto known = roles_.find(user);
  return known != roles_.end() && (known->second & static_cast<unsigned>(role)) != 0;
}

}  // namespace holdfast::storage
