#include "kube/exchange.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "kube/lane.h"
#include "kube/transport_error.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxHeaderBytes = 256 << 10;
constexpr size_t kMaxErrorBodyBytes = 1 << 20;  // of a stream's answer that is not 2xx
// A stream is paused when its reader is so far behind, and goes on when it has caught up.
constexpr size_t kPauseAtBytes = 1 << 20, kResumeAtBytes = 256 << 10;
constexpr size_t kChunkBytes = 64 << 10;  // small chunks are joined up to this
// A peer that acknowledges nothing for so long is gone; without it a dead connection lingers for 15 minutes of retransmissions.
constexpr unsigned kTcpUserTimeoutMs = 30000;

int OnSocket(void*, curl_socket_t socket, curlsocktype) {
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kTcpUserTimeoutMs, sizeof kTcpUserTimeoutMs);
  return CURL_SOCKOPT_OK;
}

void SetBlob(CURL* easy, CURLoption option, const std::string& pem) {
  if (pem.empty()) return;
  curl_blob blob{const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_NOCOPY};
  curl_easy_setopt(easy, option, &blob);
}

std::string Milliseconds(Duration duration) { return std::to_string(std::chrono::duration_cast<milliseconds>(duration).count()) + " ms"; }

}  // namespace

Exchange::Exchange(Order order) : order_(std::move(order)) {}

Exchange::~Exchange() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
}

// What libcurl keeps by reference (PEM, the body, the headers) lives in `order_` and `headers_`.
Status Exchange::Open(Lane* lane) {
  lane_ = lane;
  easy_ = curl_easy_init();
  if (easy_ == nullptr) return {Code::kInternal, order_.what + ": libcurl has no memory for a handle"};
  curl_easy_setopt(easy_, CURLOPT_URL, order_.url.c_str());
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS);
  curl_easy_setopt(easy_, CURLOPT_ACCEPT_ENCODING, "gzip");
  curl_easy_setopt(easy_, CURLOPT_USERAGENT, order_.user_agent.c_str());
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::chrono::ceil<milliseconds>(order_.connect_timeout).count()));
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPIDLE, 30L);
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPINTVL, 10L);
  curl_easy_setopt(easy_, CURLOPT_SOCKOPTFUNCTION, OnSocket);
  curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, order_.request.method.c_str());
  if (order_.request.method == "HEAD") curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  SetBody();
  SetTls();
  headers_ = curl_slist_append(headers_, "Expect:");  // a 100-continue costs a round trip
  for (const auto& [name, value] : order_.request.headers) headers_ = curl_slist_append(headers_, (name + ": " + value).c_str());
  if (!order_.authorization.empty()) headers_ = curl_slist_append(headers_, ("Authorization: " + order_.authorization).c_str());
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, detail_);
  curl_easy_setopt(easy_, CURLOPT_PRIVATE, this);
  return Status::Ok();
}

void Exchange::SetTls() {
  if (order_.tls == nullptr) return;
  // Wait for a connection that is being made rather than make another. Without TLS there is no HTTP/2 and nothing to wait for.
  curl_easy_setopt(easy_, CURLOPT_PIPEWAIT, 1L);
  if (order_.insecure) {
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  SetBlob(easy_, CURLOPT_CAINFO_BLOB, order_.tls->ca_pem);
  SetBlob(easy_, CURLOPT_SSLCERT_BLOB, order_.tls->certificate_pem);
  SetBlob(easy_, CURLOPT_SSLKEY_BLOB, order_.tls->key_pem);
}

// A body goes out through a function that cannot rewind. So libcurl, which sends a request again when a kept connection breaks before an
// answer came, cannot do that to a write whose fate is unknown.
void Exchange::SetBody() {
  const std::string& method = order_.request.method;
  if (order_.request.body.empty() && method != "POST" && method != "PUT" && method != "PATCH") return;
  curl_easy_setopt(easy_, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(easy_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(order_.request.body.size()));
  curl_easy_setopt(easy_, CURLOPT_READFUNCTION, OnRead);
  curl_easy_setopt(easy_, CURLOPT_READDATA, this);
}

size_t Exchange::OnRead(char* buffer, size_t size, size_t count, void* user) {
  auto* self = static_cast<Exchange*>(user);
  const size_t n = std::min(size * count, self->order_.request.body.size() - self->sent_);
  self->order_.request.body.copy(buffer, n, self->sent_);
  self->sent_ += n;
  return n;
}

size_t Exchange::OnHeader(char* data, size_t size, size_t count, void* self) {
  return static_cast<Exchange*>(self)->TakeHeader({data, size * count});
}

size_t Exchange::OnBody(char* data, size_t size, size_t count, void* self) {
  return static_cast<Exchange*>(self)->TakeBody({data, size * count});
}

size_t Exchange::TakeHeader(std::string_view line) {
  const size_t size = line.size();
  last_byte_ = Clock::Real().Mono();
  header_bytes_ += size;
  if (header_bytes_ > kMaxHeaderBytes) {
    too_long_ = true;
    return 0;
  }
  if (headers_done_) return size;   // a trailer
  if (line.starts_with("HTTP/")) {  // also after an interim 1xx answer
    lane_->Heard(line.starts_with("HTTP/2"));
    response_.headers.clear();
    return size;
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.empty()) {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    response_.status = static_cast<int>(status);
    headers_done_ = status >= 200;
    if (order_.streams) lane_->LookAgain();  // from now on only silence counts
    return size;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  response_.headers[name] = std::string(value);
  return size;
}

size_t Exchange::TakeBody(std::string_view chunk) {
  last_byte_ = Clock::Real().Mono();
  lane_->Heard();
  if (Streams()) return Buffer(chunk);
  const size_t limit = order_.streams ? kMaxErrorBodyBytes : order_.request.max_body_bytes;
  if (response_.body.size() + chunk.size() > limit) {
    too_long_ = true;
    return 0;
  }
  response_.body.append(chunk);
  return chunk.size();
}

size_t Exchange::Buffer(std::string_view chunk) {
  std::lock_guard lock(mutex_);
  if (unread_bytes_ >= kPauseAtBytes) {
    paused_ = waits_for_reader_ = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  if (!chunks_.empty() && chunks_.back().size() + chunk.size() <= kChunkBytes) {
    chunks_.back().append(chunk);
  } else {
    chunks_.emplace_back(chunk);
  }
  unread_bytes_ += chunk.size();
  changed_.notify_all();
  return chunk.size();
}

void Exchange::Resume(MonoTime now) {
  if (finished()) return;
  last_byte_ = now;
  waits_for_reader_ = false;
  lane_->LookAgain();
  curl_easy_pause(easy_, CURLPAUSE_CONT);
}

MonoTime Exchange::Deadline() const {
  if (waits_for_reader_) return MonoTime::max();
  if (headers_done_ && Streams()) return last_byte_ + order_.request.idle_timeout;
  return started_ + order_.request.timeout;
}

Status Exchange::OutOfTime() const {
  if (headers_done_ && Streams())
    return {Code::kDeadlineExceeded, order_.what + ": no byte for " + Milliseconds(order_.request.idle_timeout)};
  return {Code::kDeadlineExceeded, order_.what + ": no answer within " + Milliseconds(order_.request.timeout)};
}

void Exchange::Complete(CURLcode code) {
  if (code == CURLE_OK) {
    Finish(Status::Ok());
  } else if (too_long_) {
    const size_t limit = order_.streams ? kMaxErrorBodyBytes : order_.request.max_body_bytes;
    Finish(Status(Code::kResourceExhausted, order_.what + ": the answer is longer than " + std::to_string(limit) + " bytes"));
  } else {
    Finish(TransportError(easy_, code, detail_, order_));
  }
}

void Exchange::Finish(Status status) {
  curl_easy_cleanup(std::exchange(easy_, nullptr));
  lane_ = nullptr;
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.notify_all();
}

Result<HttpResponse> Exchange::Wait(const OnChunk* on_chunk, const std::stop_token& stop, const std::function<void()>& cancel,
                                    const std::function<void()>& resume) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, stop, [this] { return done_ || !chunks_.empty(); });
    if (stop.stop_requested()) {
      cancel();
      return Status(Code::kCancelled, order_.what + ": cancelled");
    }
    if (chunks_.empty()) {  // so it is done
      if (!status_.ok()) return status_;
      return std::move(response_);
    }
    const std::string chunk = std::move(chunks_.front());
    chunks_.pop_front();
    lock.unlock();
    const bool more = (*on_chunk)(chunk);
    lock.lock();
    if (!more) {
      cancel();
      return HttpResponse{.status = response_.status, .headers = response_.headers};
    }
    unread_bytes_ -= chunk.size();
    if (paused_ && unread_bytes_ <= kResumeAtBytes) {
      paused_ = false;
      resume();
    }
  }
}

}  // namespace holdfast::kube
