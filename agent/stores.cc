#include "agent/stores.h"

#include <algorithm>

#include "api/stores.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kOneTry = std::chrono::seconds(2), kAllTries = std::chrono::seconds(8);  // of several; a single one has its own time
constexpr Duration kSilentFor = std::chrono::seconds(10);

class NoStore final : public storage::Store {
 public:
  Result<std::unique_ptr<storage::Session>> OpenSession(const std::string&, const std::string&) override { return None(); }
  Result<storage::SessionState> StateOf(const std::string&) override { return None(); }
  Result<storage::Manifest> GetManifest(const std::string&) override { return None(); }
  Result<std::string> GetSegment(const std::string&, const storage::SegmentRef&) override { return None(); }
  Status Abort(const std::string&, const std::string&) override { return None(); }
  Status Delete(const std::string&) override { return None(); }

 private:
  static Status None() { return {Code::kUnavailable, "the store that has it is none of those of --store-url"}; }
};

}  // namespace

Stores::Stores(std::map<std::string, storage::Store*> stores, Within within, Clock& clock, Room room)
    : stores_(std::move(stores)), within_(std::move(within)), clock_(clock), room_(std::move(room)), none_(std::make_unique<NoStore>()) {}
Stores::~Stores() = default;

storage::Store& Stores::Of(const std::string& name) const {
  const auto found = stores_.find(name);
  return found == stores_.end() ? *none_ : *found->second;
}

std::unique_ptr<storage::Store> Stores::OfWithin(const std::string& name, MonoTime deadline, std::stop_token stop) const {
  return within_ && Has(name) ? within_(name, deadline, std::move(stop)) : nullptr;
}

Status Stores::Missing(const std::string& name) {
  return {Code::kUnavailable, "the store \"" + name +
                                  "\", which has it, is not among this agent's stores: was store.replicas of the chart made smaller? "
                                  "Its volume is still there: make it as large as it was"};
}

std::vector<std::string> Stores::InOrder(const std::string& ns, const std::string& workload) {
  std::vector<std::string> names;
  for (const auto& [name, store] : stores_) names.push_back(name);
  names = api::StoresFor(std::move(names), ns, workload);
  const MonoTime now = clock_.Mono();
  std::lock_guard lock(mutex_);
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
    const auto silent = silent_until_.find(name);
    return silent == silent_until_.end() || silent->second <= now;
  });
  return names;
}

void Stores::Heard(const std::string& name, bool answered) {
  std::lock_guard lock(mutex_);
  if (answered) {
    silent_until_.erase(name);
  } else {
    silent_until_[name] = clock_.Mono() + kSilentFor;
  }
}

Status Stores::HasRoom(const std::string& name, uint64_t bytes, std::stop_token stop) const {
  if (!room_ || bytes == 0) return Status::Ok();
  const Result<uint64_t> room = room_(name, clock_.Mono() + kOneTry, std::move(stop));
  if (!room.ok() || *room >= bytes) return Status::Ok();
  return Status(Code::kResourceExhausted, "the store is full: it has room for " + std::to_string(*room >> 20) +
                                              " MiB, and this checkpoint may take " + std::to_string(bytes >> 20) +
                                              " MiB there: delete checkpoints or enlarge its volume");
}

Result<std::string> Stores::Open(const std::string& id, const std::string& ns, const std::string& workload, std::stop_token stop,
                                 uint64_t bytes) {
  const MonoTime end = clock_.Mono() + kAllTries;
  const bool single = stores_.size() == 1;
  bool full = !stores_.empty();
  std::string why;
  for (const std::string& name : InOrder(ns, workload)) {
    if (!single && clock_.Mono() >= end) break;
    std::unique_ptr<storage::Store> hasty = single ? nullptr : OfWithin(name, std::min(end, clock_.Mono() + kOneTry), stop);
    Status opened = (hasty ? *hasty : Of(name)).OpenSession(id, ns).status();
    if (opened.ok()) opened = HasRoom(name, bytes, stop);
    if (opened.code() == Code::kCancelled || opened.code() == Code::kFailedPrecondition) return opened;
    const bool is_full = opened.code() == Code::kResourceExhausted;
    Heard(name, opened.ok() || is_full);
    if (opened.ok()) {
      if (!why.empty()) LogWarning("a checkpoint goes to another store than its workload's", {{"uid", id}, {"store", name}, {"why", why}});
      return name;
    }
    full = full && is_full;
    why += (why.empty() ? "" : "; ") + (single ? "" : "store " + name + ": ") + opened.message();
  }
  return Status(full ? Code::kResourceExhausted : Code::kUnavailable, why.empty() ? "there is no store" : why);
}

}  // namespace holdfast::agent
