// Whether who calls the hub API (hub_api.h) may do what they ask: the API server says whose the bearer token is (TokenReview) and whether
// RBAC lets them do it with SuspendedWorkloads themselves (SubjectAccessReview), so this API gives nobody a right that they did not have.
// Answers are remembered for seconds, by a hash of the token: a token itself is never kept. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kube/client.h"

namespace holdfast::controller {

// What is to be done with SuspendedWorkloads of a namespace; name: empty for all.
struct HubAction {
  std::string verb, ns, name;
};

class HubAccess {
 public:
  // `audience`: tokens must be meant for it; empty: for the API server itself.
  HubAccess(kube::Client& client, std::string audience) : client_(client), audience_(std::move(audience)) {}
  // `authorization`: the header. kUnauthenticated: no token, or nobody's. kPermissionDenied: RBAC says no. kUnavailable: whoever could tell
  // did not answer, or too many tokens that nobody knows are being asked about.
  Status Check(const std::string& authorization, const HubAction& action, std::stop_token stop);

 private:
  struct User {
    std::string name, uid;
    Json groups, extra;
  };
  // By key, until a time; at most 1024, and without room all are forgotten.
  template <class Value>
  class Memory {
   public:
    const Value* Find(const std::string& key, MonoTime now) const;
    void Put(const std::string& key, Value value, MonoTime now, Duration lasts);
    bool Knows(const std::string& key) const { return values_.contains(key); }
    void Forget(const std::string& key) { values_.erase(key); }

   private:
    std::map<std::string, std::pair<Value, MonoTime>> values_;
  };

  Result<User> WhoIs(const std::string& token, const std::string& key, const std::stop_token& stop);
  Result<User> Review(const std::string& token, const std::stop_token& stop);
  Status MayDo(const User& user, const HubAction& action, const std::stop_token& stop);

  kube::Client& client_;
  const std::string audience_;
  std::mutex mutex_;
  Memory<User> known_;
  Memory<bool> nobodys_;    // tokens; apart, so that whoever makes some up keeps nobody else out
  Memory<Status> answers_;  // by token and action
  size_t asking_ = 0;       // about tokens that are not among the known
};

}  // namespace holdfast::controller
