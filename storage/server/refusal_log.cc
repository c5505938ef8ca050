#include "storage/server/refusal_log.h"

#include "base/json.h"
#include "base/log.h"

namespace holdfast::storage {
namespace {

constexpr Duration kEvery = std::chrono::minutes(1);
constexpr size_t kMaxKinds = 1024;

}  // namespace

bool RefusalLog::Refused(const std::string& operation, const std::string& id, const std::string& peer, const Status& why) {
  uint64_t untold = 0;
  {
    std::lock_guard lock(mutex_);
    const MonoTime now = clock_.Mono();
    if (seen_.size() >= kMaxKinds) {
      std::erase_if(seen_, [&](const auto& one) { return now >= one.second.next; });
      if (seen_.size() >= kMaxKinds) return false;  // more kinds a minute than anybody would read
    }
    Seen& seen = seen_[{operation, peer, why.code()}];
    if (now < seen.next) {
      ++seen.untold;
      return false;
    }
    untold = std::exchange(seen.untold, 0);
    seen.next = now + kEvery;
  }
  const bool ours = why.code() == Code::kInternal || why.code() == Code::kDataLoss || why.code() == Code::kResourceExhausted;
  Json fields = {{"operation", operation}, {"id", id}, {"peer", peer}, {"error", why.ToString()}};
  if (untold > 0) fields["not_logged_before"] = untold;
  Log(ours ? LogLevel::kWarning : LogLevel::kInfo, "request refused", fields);
  return true;
}

}  // namespace holdfast::storage
