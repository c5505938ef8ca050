// events.k8s.io/v1 events on objects, sent in the background as client-go's recorder does:
// - equal events (type, action, reason, controller, instance, regarding, related, note) are one series: the first is created, the second
//   makes it a series with count 2, later ones are only counted here;
// - a new text of what is equal but for the note is an event of its own, since the API lets no note change. Of more than 10 such texts at a
//   time the further ones are one series together, whose note begins with "(combined from similar events)";
// - every 30 minutes running series are written again, so that the API server keeps them; one that was quiet for 6 minutes gets its last
//   count and ends: the next equal event is a new one;
// - new events on one object are limited to 25, and one more every 5 minutes;
// - at most 1000 wait to be sent, further ones are dropped. What is dropped is counted, and failures are only logged.
// Thread-safe; nothing blocks the caller.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kube/client.h"

namespace holdfast::kube {

class RuntimeMetrics;

struct ObjectReference {
  std::string api_version, kind, ns, name, uid;
  static ObjectReference To(const Resource& resource, const ObjectMeta& meta);
  auto operator<=>(const ObjectReference&) const = default;  // NOLINT(modernize-use-nullptr)
};

class EventRecorder {
 public:
  // `controller` is a qualified name such as example.org/agent; `metrics` may be null.
  EventRecorder(Client& client, std::string controller, std::string instance, RuntimeMetrics* metrics = nullptr);
  ~EventRecorder();  // sends what is queued, and the last counts, for at most 2 s
  // Texts that are longer than the API allows are cut. An empty action is the reason.
  void Normal(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note,
              const std::optional<ObjectReference>& related = {});
  void Warning(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note,
               const std::optional<ObjectReference>& related = {});
  // One that has to come through, once, whoever may have sent it before: named after `id`, sent before it returns. OK when the API server
  // has it already. Blocks for as long as `options` let it.
  Status NormalOnce(const ObjectReference& about, const std::string& id, const std::string& reason, const std::string& action,
                    const std::string& note, const CallOptions& options);
  Status WarnOnce(const ObjectReference& about, const std::string& id, const std::string& reason, const std::string& action,
                  const std::string& note, const CallOptions& options);
  int64_t dropped() const;  // for any reason, since the start

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
