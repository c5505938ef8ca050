// Which checkpoints a node may touch: it writes those that were assigned to it, and reads those that it wrote or that one of its pods has
// claimed. So whoever breaks into a node gets from the store what runs there anyway, and nothing else.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "kube/client.h"

namespace holdfast::storage {

enum class Use {
  kWrite,
  kEnd,  // abort it, or ask what became of it
  kRead,
};

class Authorizer {
 public:
  virtual ~Authorizer() = default;
  // `checkpoint`: its uid. kPermissionDenied: not this node's. kNotFound: there is no such Checkpoint, so it is nobody's. kUnavailable:
  // whoever could tell did not answer. Thread-safe.
  virtual Status Check(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint, std::stop_token stop) = 0;
};

// Asks the API server: Checkpoint.status.nodeName and .claim, and where the claiming pod runs. Needs get and list on checkpoints and get on
// pods. A yes is remembered for a while (an assignment never changes, a claim only when its pod is gone), a no only for a moment. What a
// uid is called is looked up once, in pages of metadata; from then on the object is read by its name.
class KubeAuthorizer final : public Authorizer {
 public:
  KubeAuthorizer(std::shared_ptr<kube::Client> client, Clock& clock) : client_(std::move(client)), clock_(clock) {}
  Status Check(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint, std::stop_token stop) override;

 private:
  using Key = std::tuple<std::string, Use, std::string, std::string>;  // node, use, namespace, checkpoint
  struct Known {
    Status answer;
    MonoTime until;
  };
  Status Ask(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint, const std::stop_token& stop);
  // The object, as it may be used; kNotFound: there is none.
  Result<Json> Find(Use use, const std::string& ns, const std::string& checkpoint, const kube::CallOptions& options);
  Result<Json> Search(Use use, const std::string& ns, const std::string& checkpoint, const kube::CallOptions& options);
  Result<Json> Read(Use use, const std::string& ns, const std::string& name, const std::string& checkpoint,
                    const kube::CallOptions& options);

  const std::shared_ptr<kube::Client> client_;
  Clock& clock_;
  std::mutex mutex_;
  std::map<Key, Known> known_;
  std::map<std::pair<std::string, std::string>, std::string> names_;  // by namespace and checkpoint
};

}  // namespace holdfast::storage
