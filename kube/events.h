// events.k8s.io/v1 events on objects, sent in the background: bounded queue, equal events joined into a series, a failure is only logged.
#pragma once

#include <memory>
#include <string>

#include "kube/client.h"

namespace holdfast::kube {

struct ObjectReference {
  std::string api_version, kind, ns, name, uid;
  static ObjectReference To(const Resource& resource, const ObjectMeta& meta);
};

class EventRecorder {
 public:
  EventRecorder(Client& client, std::string controller, std::string instance);
  ~EventRecorder();  // sends what is queued, for at most 2 s
  void Normal(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note);
  void Warning(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
