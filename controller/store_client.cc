#include "controller/store_client.h"

#include "base/file.h"
#include "base/json.h"

namespace holdfast::controller {
namespace {

constexpr Duration kProbeEvery = std::chrono::seconds(5);
constexpr Duration kDownAfter = std::chrono::seconds(30);

}  // namespace

StoreClient::StoreClient(std::unique_ptr<kube::Transport> transport, Clock& clock)
    : transport_(std::move(transport)), clock_(clock), last_answer_ns_(clock.Mono().time_since_epoch().count()) {}
StoreClient::~StoreClient() { Stop(); }

Status StoreClient::Delete(const std::string& manifest_id, int64_t term, std::stop_token stop) {
  if (!transport_) return {Code::kUnavailable, "no store is configured: set --store-url"};
  if (!IsSafeName(manifest_id)) return {Code::kInvalidArgument, "the manifest id is not one"};
  kube::HttpRequest request;
  request.method = "DELETE";
  request.path = "/v1/manifests/" + manifest_id;
  if (term != 0) request.headers["holdfast-term"] = std::to_string(term);
  request.timeout = std::chrono::seconds(20);
  auto answer = transport_->Send(request, stop);
  if (!answer.ok()) return answer.status().With("checkpoint store");
  if (answer->status / 100 == 2 || answer->status == 404) return Status::Ok();
  auto error = ParseJson(answer->body);
  const std::string message = error.ok() ? GetString(*error, {"message"}) : "";
  const Code code = answer->status == 412 ? Code::kFailedPrecondition : Code::kUnavailable;
  return {code, "the checkpoint store answers " + std::to_string(answer->status) + (message.empty() ? "" : ": " + message)};
}

void StoreClient::Probe(std::stop_token stop) {
  kube::HttpRequest request;
  request.path = "/healthz";
  request.timeout = std::chrono::seconds(3);
  // Any answer is one, even a refusal.
  if (!transport_->Send(request, stop).ok()) return;
  last_answer_ns_ = clock_.Mono().time_since_epoch().count();
  answered_ = true;
}

bool StoreClient::down() const { return answered_ && clock_.Mono().time_since_epoch().count() - last_answer_ns_ > kDownAfter.count(); }

void StoreClient::Start() {
  if (!transport_) return;
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
