#include "controller/hub_access.h"

#include <openssl/sha.h>

namespace holdfast::controller {
namespace {

constexpr Duration kKnownFor = std::chrono::seconds(30), kNobodysFor = std::chrono::seconds(10);
constexpr Duration kYesFor = std::chrono::seconds(10), kNoFor = std::chrono::seconds(2), kAsk = std::chrono::seconds(5);
constexpr size_t kMaxRemembered = 1024, kMaxAsking = 8, kMaxTokenBytes = 16 << 10;
const kube::Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};
const kube::Resource kAccessReviews{"authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false};

std::string KeyOf(const std::string& token) {
  std::string key(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), reinterpret_cast<unsigned char*>(key.data()));
  return key;
}

std::string TokenOf(const std::string& authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  return authorization.starts_with(kScheme) ? authorization.substr(kScheme.size()) : "";
}

kube::CallOptions Ask(const std::stop_token& stop) {
  kube::CallOptions options;
  options.timeout = kAsk;
  options.stop = stop;
  return options;
}

}  // namespace

template <class Value>
const Value* HubAccess::Memory<Value>::Find(const std::string& key, MonoTime now) const {
  auto found = values_.find(key);
  return found != values_.end() && now < found->second.second ? &found->second.first : nullptr;
}

template <class Value>
void HubAccess::Memory<Value>::Put(const std::string& key, Value value, MonoTime now, Duration lasts) {
  if (values_.size() >= kMaxRemembered) std::erase_if(values_, [&](const auto& entry) { return now >= entry.second.second; });
  if (values_.size() >= kMaxRemembered) values_.clear();
  values_.insert_or_assign(key, std::pair(std::move(value), now + lasts));
}

Status HubAccess::Check(const std::string& authorization, const HubAction& action, std::stop_token stop) {
  const std::string token = TokenOf(authorization);
  if (token.empty() || token.size() > kMaxTokenBytes) {
    return {Code::kUnauthenticated, "the request has no bearer token: send Authorization: Bearer TOKEN, with a service-account token" +
                                        (audience_.empty() ? "" : " of the audience " + audience_)};
  }
  const std::string key = KeyOf(token);
  const std::string what = key + action.verb + "/" + action.ns + "/" + action.name;
  HF_ASSIGN_OR_RETURN(const User user, WhoIs(token, key, stop));
  {
    std::lock_guard lock(mutex_);
    if (const Status* answer = answers_.Find(what, client_.clock().Mono())) return *answer;
  }
  Status answer = MayDo(user, action, stop);
  if (!answer.ok() && answer.code() != Code::kPermissionDenied) return answer;
  std::lock_guard lock(mutex_);
  answers_.Put(what, answer, client_.clock().Mono(), answer.ok() ? kYesFor : kNoFor);
  return answer;
}

Result<HubAccess::User> HubAccess::WhoIs(const std::string& token, const std::string& key, const std::stop_token& stop) {
  const Status nobody(Code::kUnauthenticated, "the bearer token is not valid, or no more: send a fresh service-account token" +
                                                  (audience_.empty() ? "" : " of the audience " + audience_));
  bool new_token = false;
  {
    std::lock_guard lock(mutex_);
    const MonoTime now = client_.clock().Mono();
    if (const User* user = known_.Find(key, now)) return *user;
    if (nobodys_.Find(key, now) != nullptr) return nobody;
    new_token = !known_.Knows(key);
    if (new_token && asking_ >= kMaxAsking) return Status(Code::kUnavailable, "many new tokens are being reviewed: try again");
    asking_ += new_token ? 1 : 0;
  }
  Result<User> user = Review(token, stop);
  std::lock_guard lock(mutex_);
  asking_ -= new_token ? 1 : 0;
  if (user.ok()) {
    known_.Put(key, *user, client_.clock().Mono(), kKnownFor);
    return user;
  }
  if (user.status().code() != Code::kUnauthenticated) return user;
  known_.Forget(key);
  nobodys_.Put(key, true, client_.clock().Mono(), kNobodysFor);
  return nobody;
}

Result<HubAccess::User> HubAccess::Review(const std::string& token, const std::stop_token& stop) {
  Json review = {{"apiVersion", kTokenReviews.ApiVersion()}, {"kind", kTokenReviews.kind}, {"spec", {{"token", token}}}};
  if (!audience_.empty()) review["spec"]["audiences"] = Json::array({audience_});
  const Result<Json> answer = client_.Create(kTokenReviews, "", review, Ask(stop));
  // Whatever went wrong with the question says nothing about the token. The message is the API server's: it has no token in it.
  if (!answer.ok()) return Status(Code::kUnavailable, "the API server does not review tokens: " + answer.status().ToString());
  const Json& status = GetObject(*answer, {"status"});
  User user{.name = GetString(status, {"user", "username"}),
            .uid = GetString(status, {"user", "uid"}),
            .groups = GetArray(status, {"user", "groups"}),
            .extra = GetObject(status, {"user", "extra"})};
  bool fits = audience_.empty();
  for (const Json& audience : GetArray(status, {"audiences"})) fits = fits || audience == audience_;
  if (!GetBool(status, {"authenticated"}) || user.name.empty() || !fits) return Status(Code::kUnauthenticated, "nobody's");
  return user;
}

Status HubAccess::MayDo(const User& user, const HubAction& action, const std::stop_token& stop) {
  Json attributes = {{"verb", action.verb}, {"group", "holdfast.dev"}, {"resource", "suspendedworkloads"}, {"namespace", action.ns}};
  if (!action.name.empty()) attributes["name"] = action.name;
  const Json review = {
      {"apiVersion", kAccessReviews.ApiVersion()},
      {"kind", kAccessReviews.kind},
      {"spec",
       {{"user", user.name}, {"uid", user.uid}, {"groups", user.groups}, {"extra", user.extra}, {"resourceAttributes", attributes}}}};
  const Result<Json> answer = client_.Create(kAccessReviews, "", review, Ask(stop));
  if (!answer.ok()) return {Code::kUnavailable, "the API server does not review access: " + answer.status().ToString()};
  if (GetBool(*answer, {"status", "allowed"}) && !GetBool(*answer, {"status", "denied"})) return Status::Ok();
  const std::string why = GetString(*answer, {"status", "reason"});
  return {Code::kPermissionDenied, user.name + " may not " + action.verb + " suspendedworkloads of holdfast.dev in namespace " + action.ns +
                                       (why.empty() ? "" : " (" + why + ")") + ": give it a Role with that verb there"};
}

}  // namespace holdfast::controller
