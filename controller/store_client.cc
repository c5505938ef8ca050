#include "controller/store_client.h"

namespace holdfast::controller {
namespace {

constexpr Duration kProbeEvery = std::chrono::seconds(5), kProbeLimit = std::chrono::seconds(3), kDeleteLimit = std::chrono::seconds(20);
constexpr Duration kUseLimit = std::chrono::seconds(5), kReadLimit = std::chrono::seconds(10);
constexpr Duration kDownAfter = std::chrono::seconds(30);

}  // namespace

StoreClient::StoreClient(std::unique_ptr<storage::RemoteStore> store, Clock& clock)
    : store_(std::move(store)), clock_(clock), last_answer_ns_(clock.Mono().time_since_epoch().count()) {}
StoreClient::~StoreClient() { Stop(); }

std::unique_ptr<storage::RemoteStore> StoreClient::Within(Duration limit, std::stop_token stop) const {
  return store_->Within(clock_.Mono() + limit, std::move(stop));
}

Status StoreClient::Delete(const std::string& manifest_id, int64_t term, std::stop_token stop) {
  const Status deleted = Within(kDeleteLimit, std::move(stop))->Delete(manifest_id, term);
  // A store has deleted what it does not have: a 404 is the word of something else at its address, and proves nothing.
  if (deleted.code() == Code::kNotFound)
    return {Code::kUnavailable, "what answers at --store-url is no checkpoint store: " + deleted.message()};
  return deleted.With("checkpoint store");
}

Result<reconcilers::checkpoint::Content> StoreClient::Read(const std::string& manifest_id, std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(storage::ManifestInfo read, Within(kReadLimit, std::move(stop))->InfoOf(manifest_id));
  return reconcilers::checkpoint::Content{.store = "",
                                          .ns = read.ns,
                                          .checkpoint = read.checkpoint,
                                          .digest = read.digest,
                                          .created = read.created,
                                          .stored_bytes = static_cast<int64_t>(std::min<uint64_t>(read.new_bytes, int64_t{1} << 62)),
                                          .info = std::move(read.info)};
}

Result<reconcilers::checkpoint::Damages> StoreClient::Damaged(std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(std::vector<storage::DamagedCheckpoint> all, Within(kUseLimit, std::move(stop))->Damaged());
  reconcilers::checkpoint::Damages why;
  for (storage::DamagedCheckpoint& damaged : all) why[damaged.id] = std::move(damaged.why);
  return why;
}

Result<reconcilers::restorepolicy::VolumeUse> StoreClient::Use(std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(storage::StoreSpace space, Within(kUseLimit, std::move(stop))->Space());
  auto bytes = [](uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, int64_t{1} << 62)); };
  return reconcilers::restorepolicy::VolumeUse{bytes(space.live_bytes), bytes(space.pack_bytes), bytes(space.room_bytes)};
}

void StoreClient::Probe(std::stop_token stop) {
  if (!Within(kProbeLimit, std::move(stop))->Ping().ok()) return;
  last_answer_ns_ = clock_.Mono().time_since_epoch().count();
  answered_ = true;
}

bool StoreClient::down() const { return answered_ && clock_.Mono().time_since_epoch().count() - last_answer_ns_ > kDownAfter.count(); }

void StoreClient::Start() {
  thread_ = Thread([this](std::stop_token stop) {
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
