// Which connection a request takes, and what becomes of connections. The life of a call: the calling thread puts an Exchange together
// (credentials are read there), posts it to the loop and waits; the loop finds it a Lane; libcurl's callbacks fill the Exchange; the
// caller wakes.
#include "kube/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <list>

#include "kube/exchange.h"
#include "kube/lane.h"
#include "kube/loop.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxRequestBytes = 16 << 20;
constexpr size_t kLongAnswerBytes = 64 << 20;  // a Send that allows more goes with the streams

bool IsUrl(const std::string& path) { return path.starts_with("https://") || path.starts_with("http://"); }

// "https://host:port" of a URL.
std::string OriginOf(const std::string& url) {
  const size_t host = url.find("://") + 3;
  return url.substr(0, std::min(url.find_first_of("/?#", host), url.size()));
}

class CurlTransport final : public Transport {
 public:
  CurlTransport(ClientConfig config, TransportOptions options)
      : config_(std::move(config)), options_(std::move(options)), credentials_(config_, Clock::Real(), options_.recheck_files) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)initialised;
    loop_.Post([this] {
      housekeeping_ = std::make_unique<EventLoop::Timer>(loop_, [this] { KeepHouse(); });
      housekeeping_->Start(options_.recheck_files);
    });
  }

  ~CurlTransport() override {
    loop_.Post([this] {
      housekeeping_.reset();
      closing_ = true;
      lanes_.clear();
    });
  }

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override { return Run(request, nullptr, stop); }
  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    return Run(request, &on_chunk, stop);
  }

 private:
  Result<HttpResponse> Run(HttpRequest request, const Exchange::OnChunk* on_chunk, const std::stop_token& stop);
  Result<Order> Prepare(const HttpRequest& request, bool streams);
  Result<HttpResponse> Once(Order order, const Exchange::OnChunk* on_chunk, const std::stop_token& stop);

  // On the loop's thread.
  void Start(const std::shared_ptr<Exchange>& exchange);
  void TlsChangedTo(const TlsMaterial& now);
  void KeepHouse();
  void Sweep();

  const ClientConfig config_;
  const TransportOptions options_;
  Credentials credentials_;

  // The loop's.
  std::list<Lane> lanes_;
  uint64_t tls_version_ = 0;
  bool closing_ = false, sweep_posted_ = false;
  std::unique_ptr<EventLoop::Timer> housekeeping_;

  EventLoop loop_;  // last: its thread uses the others
};

Result<Order> CurlTransport::Prepare(const HttpRequest& request, bool streams) {
  Order order{.request = request};
  order.url = IsUrl(request.path) ? request.path : config_.server + request.path;
  order.origin = OriginOf(order.url);
  order.what = request.method + " " + order.url.substr(0, order.url.find('?'));
  if (request.body.size() > kMaxRequestBytes) {
    return Status(Code::kInvalidArgument, order.what + ": a request of " + std::to_string(request.body.size()) + " bytes is too long");
  }
  if (!request.headers.contains("authorization")) order.authorization = credentials_.Authorization();
  if (order.url.starts_with("https://")) {
    Result<std::shared_ptr<const TlsMaterial>> tls = credentials_.Tls();
    if (!tls.ok()) return tls.status().With(order.what);
    order.tls = std::move(*tls);
  }
  order.user_agent = config_.user_agent;
  order.insecure = config_.insecure_skip_tls_verify;
  order.streams = streams;
  order.connect_timeout = options_.connect_timeout;
  return order;
}

Result<HttpResponse> CurlTransport::Run(HttpRequest request, const Exchange::OnChunk* on_chunk, const std::stop_token& stop) {
  const MonoTime start = Clock::Real().Mono();
  for (bool again = false;; again = true) {
    HF_ASSIGN_OR_RETURN(Order order, Prepare(request, on_chunk != nullptr));
    if (stop.stop_requested()) return Status(Code::kCancelled, order.what + ": cancelled");
    const std::string used = order.authorization;
    Result<HttpResponse> result = Once(std::move(order), on_chunk, stop);
    if (result.ok() && result->status == 401) {
      request.timeout -= Clock::Real().Mono() - start;
      if (!again && !used.empty() && request.timeout > Duration(0) && credentials_.RenewAfterRefusal(used)) continue;
      result->hint = credentials_.Doubt();
    }
    if (!result.ok() && result.status().code() == Code::kUnavailable) {
      if (std::string doubt = credentials_.Doubt(); !doubt.empty()) {
        return Status(Code::kUnavailable, result.status().message() + "; " + doubt);
      }
    }
    return result;
  }
}

Result<HttpResponse> CurlTransport::Once(Order order, const Exchange::OnChunk* on_chunk, const std::stop_token& stop) {
  auto exchange = std::make_shared<Exchange>(std::move(order));
  loop_.Post([this, exchange] { Start(exchange); });
  auto cancel = [this, exchange] {
    loop_.Post([this, exchange] {
      for (Lane& lane : lanes_) lane.Cancel(exchange.get(), Status(Code::kCancelled, "cancelled"));
    });
  };
  auto resume = [this, exchange] { loop_.Post([exchange] { exchange->Resume(Clock::Real().Mono()); }); };
  return exchange->Wait(on_chunk, stop, cancel, resume);
}

void CurlTransport::Start(const std::shared_ptr<Exchange>& exchange) {
  if (closing_) return exchange->Finish(Status(Code::kCancelled, "the transport is closing"));
  const Order& order = exchange->order();
  LaneKey key{.origin = order.origin, .streams = order.streams || order.request.max_body_bytes > kLongAnswerBytes};
  if (order.tls != nullptr) {
    TlsChangedTo(*order.tls);
    key.tls_version = order.tls->version;
    key.tls_identity = order.tls->identity;
  }
  auto fits = [&](const Lane& lane) {
    return lane.Open() && lane.key().origin == key.origin && lane.key().streams == key.streams && lane.key().tls_version == key.tls_version;
  };
  auto lane = std::find_if(lanes_.begin(), lanes_.end(), fits);
  if (lane == lanes_.end()) {
    auto on_empty = [this] {
      if (std::exchange(sweep_posted_, true) || closing_) return;
      loop_.Post([this] { Sweep(); });
    };
    lane = lanes_.emplace(lanes_.end(), loop_, std::move(key), options_, on_empty);
  }
  lane->Start(exchange);
}

// Connections that were made with what is no longer ours must go; those made when another CA was trusted may finish.
void CurlTransport::TlsChangedTo(const TlsMaterial& now) {
  if (now.version <= tls_version_) return;
  tls_version_ = now.version;
  for (Lane& lane : lanes_) {
    if (lane.key().tls_version == 0) continue;  // http://
    lane.Retire();
    if (lane.key().streams && lane.key().tls_identity != now.identity) {
      lane.Kill(
          Status(Code::kUnavailable, lane.key().origin + ": our client certificate changed, the connection of the old one is closed"));
    }
  }
  Sweep();
}

void CurlTransport::KeepHouse() {
  if (Result<std::shared_ptr<const TlsMaterial>> tls = credentials_.Tls(); tls.ok() && !lanes_.empty()) TlsChangedTo(**tls);
  Sweep();
  housekeeping_->Start(options_.recheck_files);
}

void CurlTransport::Sweep() {
  sweep_posted_ = false;
  const MonoTime unused_since = Clock::Real().Mono() - options_.idle_connection;
  lanes_.remove_if([&](const Lane& lane) { return lane.empty() && (lane.retired() || lane.last_used() < unused_since); });
}

}  // namespace

std::unique_ptr<Transport> MakeCurlTransport(ClientConfig config, TransportOptions options) {
  return std::make_unique<CurlTransport>(std::move(config), std::move(options));
}

}  // namespace holdfast::kube
