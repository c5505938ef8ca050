#include "storage/server/upkeep.h"

#include "base/log.h"

namespace holdfast::storage {
namespace {

constexpr Duration kExpireAgain = std::chrono::seconds(1), kCollectAgain = std::chrono::seconds(5), kScrubAgain = std::chrono::seconds(5);

}  // namespace

Upkeep::Upkeep(LocalStore& store, UpkeepOptions options, Clock& clock) : store_(store), options_(std::move(options)), clock_(clock) {
  expirer_ = Thread([this](std::stop_token stop) { Expire(stop); });
  collector_ = Thread([this](std::stop_token stop) { Collect(stop); });
  if (options_.scrub.every > Duration(0)) scrubber_ = Thread([this](std::stop_token stop) { Scrub(stop); });
}

void Upkeep::RequestStop() {
  for (Thread* thread : {&expirer_, &collector_, &scrubber_}) thread->request_stop();
}

void Upkeep::Expire(const std::stop_token& stop) {
  while (clock_.Sleep(kExpireAgain, stop)) store_.ExpireSessions();
}

void Upkeep::Collect(const std::stop_token& stop) {
  std::string told;
  while (clock_.Sleep(kCollectAgain, stop)) {
    Result<CollectReport> report =
        store_.Collect({.bytes_per_second = options_.collect_bytes_per_second, .tighten_after = options_.tighten_after, .stop = stop});
    if (!report.ok() && report.status().message() != told)
      LogWarning("space cannot be given back", {{"error", report.status().ToString()}});
    told = report.status().message();
    if (report.ok() && (report->removed > 0 || report->repacked > 0)) {
      LogInfo("space given back", {{"removed_packs", report->removed},
                                   {"repacked", report->repacked},
                                   {"tightened", report->tightened},
                                   {"copied_bytes", report->copied_bytes}});
    }
  }
}

void Upkeep::Scrub(const std::stop_token& stop) {
  std::string told;
  ScrubOptions scrub = options_.scrub;
  scrub.stop = stop;
  while (clock_.Sleep(kScrubAgain, stop)) {
    const Status status = store_.Scrub(scrub);
    if (!status.ok() && status.message() != told) LogWarning("scrub: how far it is cannot be written down", {{"error", status.ToString()}});
    told = status.message();
  }
}

}  // namespace holdfast::storage
