// The checkpoint stores that this agent knows (api/stores.h), and which of them a new checkpoint goes to. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"

namespace holdfast::agent {

class Stores {
 public:
  // The same store for one piece of work, giving up at a deadline or a stop request.
  using Within = std::function<std::unique_ptr<storage::Store>(const std::string& name, MonoTime deadline, std::stop_token stop)>;
  // Bytes that the store `name` may still write before it takes no more sessions; asked at most until then.
  using Room = std::function<Result<uint64_t>(const std::string& name, MonoTime deadline, std::stop_token stop)>;
  // By name; they outlive this. `within` unset: there are only the stores themselves, whose own calls are short. `room` unset: not known.
  Stores(std::map<std::string, storage::Store*> stores, Within within, Clock& clock, Room room = nullptr);
  ~Stores();

  bool Has(const std::string& name) const { return stores_.contains(name); }
  // Where there is none of that name: one that answers every call with kUnavailable.
  storage::Store& Of(const std::string& name) const;
  // Null when `within` is unset, or there is none of that name.
  std::unique_ptr<storage::Store> OfWithin(const std::string& name, MonoTime deadline, std::stop_token stop) const;
  // Why nothing can be asked of the store `name`, and what to do. kUnavailable.
  static Status Missing(const std::string& name);

  // Opens the session `id`: in the workload's own store, or else, when that is full or does not answer, in the next one that takes it.
  // Returns its name. Ends after some seconds, however many are silent; those that were a moment ago are asked last. kResourceExhausted:
  // all are full. kUnavailable: none has taken it, and one may yet. Another code: a store's last word on this id. A store that has not
  // `bytes` of room is full.
  Result<std::string> Open(const std::string& id, const std::string& ns, const std::string& workload, std::stop_token stop,
                           uint64_t bytes = 0);
  // kResourceExhausted, with figures: the store `name` says that it has less. One that does not say is no reason.
  Status HasRoom(const std::string& name, uint64_t bytes, std::stop_token stop) const;

 private:
  std::vector<std::string> InOrder(const std::string& ns, const std::string& workload);
  void Heard(const std::string& name, bool answered);

  const std::map<std::string, storage::Store*> stores_;
  const Within within_;
  Clock& clock_;
  const Room room_;
  const std::unique_ptr<storage::Store> none_;
  std::mutex mutex_;
  std::map<std::string, MonoTime> silent_until_;
};

}  // namespace holdfast::agent
