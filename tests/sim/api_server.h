// An API server in memory: resource versions, optimistic locks, finalizers, graceful deletion, evictions with budgets, watches that can be
// late, break off and answer 410, admission called as the real one calls it. Where it is simpler than kube-apiserver: docs/simulation.md.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kube/admission.h"
#include "kube/http.h"
#include "tests/sim/turns.h"

namespace holdfast::sim {

class ApiServer {
 public:
  using Object = std::shared_ptr<const Json>;
  struct Change {
    MonoTime at;
    int64_t version = 0;
    const char* type = "";  // ADDED, MODIFIED, DELETED
    Object now, before;     // now: also of DELETED, as it was last
  };
  struct Target {
    std::string collection, ns, name, subresource, version, group, plural;
    std::string Key() const { return ns.empty() ? name : ns + "/" + name; }
    std::map<std::string, std::string> query;
    bool dry_run() const { return query.contains("dryRun"); }
  };
  static std::optional<Target> Parse(const std::string& path);
  // Null: no webhook of that kind answers, and the request goes on without (failurePolicy: Ignore).
  using Webhook = std::function<std::optional<kube::AdmissionResponse>(const kube::AdmissionRequest&)>;

  explicit ApiServer(Turns& turns) : turns_(turns) {}

  kube::HttpResponse Handle(const kube::HttpRequest& request, const std::string& user);

  // By "group/plural" ("pods" for core kinds), then "namespace/name" or "name".
  Object Find(const std::string& collection, const std::string& key) const;
  std::vector<Object> All(const std::string& collection) const;
  // What a part of Kubernetes that is simulated itself writes: `change` works on a copy of what is there. Nothing when it is not there.
  void Update(const std::string& collection, const std::string& key, const std::function<void(Json&)>& change);
  void Put(const std::string& collection, Json object);  // creates

  Webhook mutate_pod, validate_eviction;
  std::function<void(const std::string& collection, const Change& change)> on_change;  // at once, for the judge and the story
  std::function<void(const Json& event)> on_event;

  // For watches.
  const std::deque<Change>& Changes(const std::string& collection) { return collections_[collection].changes; }
  int64_t FirstChange(const std::string& collection) { return collections_[collection].first; }  // number of the oldest that is kept
  int64_t oldest_version(const std::string& collection) { return collections_[collection].compacted; }
  void Compact();  // forgets all changes: who was behind is answered 410
  int64_t version() const { return version_; }

 private:
  struct Collection {
    std::map<std::string, Object> objects;
    std::deque<Change> changes;
    int64_t first = 0;      // number of changes.front() since the start
    int64_t compacted = 0;  // nothing is known of what came before this version
  };
  kube::HttpResponse Create(const Target& target, Json object, const std::string& user);
  kube::HttpResponse Write(const Target& target, const kube::HttpRequest& request, const Json& body);
  kube::HttpResponse Delete(const Target& target, const Json& options);
  kube::HttpResponse Evict(const Target& target, const Json& body, const std::string& user);
  kube::HttpResponse List(const Target& target);
  std::string Budget(const Json& pod) const;
  void Commit(const std::string& collection, const std::string& key, const char* type, Json now, const Object& before);
  void Remove(const std::string& collection, const std::string& key);
  std::string Uid();

  Turns& turns_;
  std::map<std::string, Collection> collections_;
  int64_t version_ = 1000, uids_ = 0;
  uint64_t names_ = 0;
  std::set<std::string> events_;  // names
};

// Whether `selector` ("status.nodeName=n1", "spec.nodeName=n1", or empty) means the object.
bool Selected(const Json& object, const std::string& selector);

}  // namespace holdfast::sim
