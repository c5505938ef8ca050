// Read-your-own-writes for a controller: what a reconcile wrote, the next one of its key finds in the caches that it reads. The Client
// notes each write that succeeds, so no reconciler has to think of it. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/json.h"
#include "kube/resource.h"

namespace holdfast::kube {

// `written` is what the API server answered to a write. Counts only on a thread that an OwnWrites::Scope stands on.
void NoteWrite(const Resource& resource, const Json& written);

// Informer::WaitFor, as a function.
using WaitForVersion = std::function<bool(const std::string& resource_version, Duration limit, std::stop_token stop)>;

class OwnWrites {
 public:
  // A write is waited for until so long after it; what it left in memory goes then too.
  OwnWrites(Clock& clock, Duration patience) : clock_(clock), patience_(patience) {}

  // A cache of `collection` (Resource::Path of all namespaces). Writes to what no cache shows are not waited for. Before the first Scope.
  void AddCache(const std::string& collection, WaitForVersion wait);

  // Before a reconcile of `key`: waits until the caches have what the last one wrote. False: one is still behind, and patience is over.
  bool Await(const std::string& key, std::stop_token stop);

  // Around a reconcile of `key`, on its thread.
  class Scope {
   public:
    Scope(OwnWrites& writes, const std::string& key);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend void NoteWrite(const Resource& resource, const Json& written);
    void Note(const Resource& resource, const Json& written);
    OwnWrites& writes_;
    const std::string& key_;
    std::map<std::string, std::string> versions_;  // collection → the newest version written
  };

  size_t size() const;  // keys with writes that may have to be waited for

 private:
  struct Written {
    std::map<std::string, std::string> versions;
    MonoTime until;
  };
  void Keep(const std::string& key, std::map<std::string, std::string> versions);

  Clock& clock_;
  const Duration patience_;
  std::map<std::string, WaitForVersion> caches_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Written> written_;  // by key
  size_t sweep_at_ = 1024;                            // entries
};

}  // namespace holdfast::kube
