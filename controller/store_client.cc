#include "controller/store_client.h"

namespace holdfast::controller {
namespace {

constexpr Duration kProbeEvery = std::chrono::seconds(5), kProbeLimit = std::chrono::seconds(3), kDeleteLimit = std::chrono::seconds(20);
constexpr Duration kDownAfter = std::chrono::seconds(30);

}  // namespace

StoreClient::StoreClient(std::unique_ptr<storage::RemoteStore> store, Clock& clock)
    : store_(std::move(store)), clock_(clock), last_answer_ns_(clock.Mono().time_since_epoch().count()) {}
StoreClient::~StoreClient() { Stop(); }

std::unique_ptr<storage::RemoteStore> StoreClient::Within(Duration limit, std::stop_token stop) const {
  return store_->Within(clock_.Mono() + limit, std::move(stop));
}

Status StoreClient::Delete(const std::string& manifest_id, int64_t term, std::stop_token stop) {
  if (!store_) return {Code::kUnavailable, "no store is configured: set --store-url"};
  const Status deleted = Within(kDeleteLimit, std::move(stop))->Delete(manifest_id, term);
  // A store has deleted what it does not have: a 404 is the word of something else at its address, and proves nothing.
  if (deleted.code() == Code::kNotFound)
    return {Code::kUnavailable, "what answers at --store-url is no checkpoint store: " + deleted.message()};
  return deleted.With("checkpoint store");
}

void StoreClient::Probe(std::stop_token stop) {
  if (!Within(kProbeLimit, std::move(stop))->Ping().ok()) return;
  last_answer_ns_ = clock_.Mono().time_since_epoch().count();
  answered_ = true;
}

bool StoreClient::down() const { return answered_ && clock_.Mono().time_since_epoch().count() - last_answer_ns_ > kDownAfter.count(); }

void StoreClient::Start() {
  if (!store_) return;
  thread_ = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      Probe(stop);
      clock_.Sleep(kProbeEvery, stop);
    }
  });
}

void StoreClient::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace holdfast::controller
