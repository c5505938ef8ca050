// Each route of PROTOCOL.md: who may ask, what is read, what is answered.
#pragma once

#include <semaphore>

#include "base/fence.h"
#include "kube/http_server.h"
#include "storage/local_store.h"
#include "storage/server/auth.h"
#include "storage/server/authorizer.h"
#include "storage/server/metrics.h"
#include "storage/server/refusal_log.h"

namespace holdfast::storage {

class Routes {
 public:
  Routes(LocalStore& store, Fence& fence, Authenticator* authenticator, Authorizer* authorizer, const AllowList& allowed, Clock& clock)
      : store_(store), fence_(fence), authenticator_(authenticator), authorizer_(authorizer), allowed_(allowed), clock_(clock) {}
  void AddTo(httplib::Server& server);

  Metrics& metrics() { return metrics_; }
  // From now on requests are answered with kUnavailable; true when none ran any more before `patience` was over.
  bool Drain(Duration patience);

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  using Work = std::function<Status(const std::string& id, const Request&, Response&, const httplib::ContentReader*)>;
  enum class Access { kReadWrite, kDelete, kEither };
  struct Route {
    const char* operation;
    Access access;
    std::optional<Use> use;  // nothing: no node is asked for
  };

  void Serve(const Route& route, const Work& work, const Request& request, Response& response, const httplib::ContentReader* body);
  Status Admit(const Route& route, const Request& request);
  Result<Caller> Authenticate(const Request& request);
  Status Authorize(const Caller& caller, Access access) const;
  // The second question: whether this checkpoint is the caller's node's.
  Status AuthorizeNode(const Caller& caller, Use use, const std::string& ns, const std::string& id);
  bool NeverWillBe(const Request& request, const std::string& ns, const std::string& id);
  bool MayReadKeys(const Request& request);

  Status Open(const std::string& id, const Request& request, Response& response);
  Status State(const std::string& id, Response& response);
  Status Space(Response& response);
  Status Damaged(Response& response);
  Status Info(const std::string& id, Response& response);
  using Question = Result<std::vector<bool>> (Session::*)(std::span<const SegmentId>);
  Status Ask(const std::string& id, Question question, Response& response, const httplib::ContentReader& body);
  Status Hold(const std::string& id, const Request& request, Response& response);
  Status Put(const std::string& id, Response& response, const httplib::ContentReader& body);
  Status Commit(const std::string& id, Response& response, const httplib::ContentReader& body);
  Status AbortSession(const std::string& id, const Request& request);
  Status ReadManifest(const std::string& id, const Request& request, Response& response);
  Status Delete(const std::string& id, const Request& request);
  Status ReadSegments(const std::string& id, const Request& request, Response& response, const httplib::ContentReader& body);

  LocalStore& store_;
  Fence& fence_;
  Authenticator* const authenticator_;
  Authorizer* const authorizer_;  // null: whoever may write may write everything
  const AllowList& allowed_;
  Clock& clock_;
  Metrics metrics_;
  RefusalLog refusals_{clock_};
  std::mutex mutex_;
  std::condition_variable_any idle_;
  bool draining_ = false;
  size_t running_ = 0;
  std::stop_source stop_;
  std::counting_semaphore<64> large_{6};  // requests that hold megabytes in memory at once
};

}  // namespace holdfast::storage
