#include "kube/server_time.h"

#include <time.h>

#include <algorithm>

namespace holdfast::kube {
namespace {

constexpr char kHttpDate[] = "%a, %d %b %Y %H:%M:%S GMT";
constexpr Duration kTick = std::chrono::seconds(1);  // of a Date
constexpr Duration kSlow = std::chrono::seconds(5);
// Between two servers behind one address, and for a Date that was written before the answer was ready.
constexpr Duration kAlike = std::chrono::seconds(1);

class TellingTransport final : public Transport {
 public:
  TellingTransport(std::shared_ptr<Transport> inner, ServerClock& clock) : inner_(std::move(inner)), clock_(clock) {}

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override {
    const MonoTime sent = clock_.Mono();
    Result<HttpResponse> response = inner_->Send(request, std::move(stop));
    if (!response.ok()) return response;
    const auto date = response->headers.find("date");
    if (date != response->headers.end()) clock_.Note(date->second, sent, clock_.Mono());
    return response;
  }

  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    return inner_->Stream(request, on_chunk, std::move(stop));
  }

 private:
  const std::shared_ptr<Transport> inner_;
  ServerClock& clock_;
};

}  // namespace

void ServerClock::Note(std::string_view date, MonoTime sent, MonoTime answered) {
  tm parts{};
  const std::string text(date);
  const char* rest = strptime(text.c_str(), kHttpDate, &parts);
  if (rest == nullptr || *rest != '\0' || answered < sent || answered - sent > kSlow) return;
  const WallTime told(std::chrono::seconds(timegm(&parts)));
  // It was written between the two, within its second.
  const Duration least = told.time_since_epoch() - answered.time_since_epoch() - kAlike;
  const Duration most = told.time_since_epoch() + kTick - sent.time_since_epoch() + kAlike;
  at_zero_ = std::clamp(at_zero_.load(), least.count(), most.count());
}

std::shared_ptr<Transport> TellTime(std::shared_ptr<Transport> transport, ServerClock& clock) {
  return std::make_shared<TellingTransport>(std::move(transport), clock);
}

std::string HttpDate(WallTime time) {
  const time_t seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  tm parts;
  gmtime_r(&seconds, &parts);
  char text[64];
  strftime(text, sizeof text, kHttpDate, &parts);
  return text;
}

}  // namespace holdfast::kube
