// libcurl behind Transport. Each call borrows an easy handle and a multi handle of its own: a stuck watch cannot delay a lease renewal,
// the multi's connection cache survives the call, and curl_multi_wakeup cancels a call at once from any thread.
#include "kube/http.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxIdleHandles = 16;
constexpr size_t kMaxHeaderBytes = 256 << 10;
constexpr size_t kMaxErrorBodyBytes = 1 << 20;  // of a stream's answer that is not 2xx
constexpr Duration kConnectTimeout = seconds(10);
// A peer that acknowledges nothing for so long is gone; without it a dead connection lingers for 15 minutes of retransmissions.
constexpr unsigned kTcpUserTimeoutMs = 30000;

// A small file whose content is looked at again at most once a second. Thread-safe.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}
  // The last content that could be read: a token that is being replaced may be missing for a moment.
  std::string Content() {
    if (path_.empty()) return "";
    std::lock_guard lock(mutex_);
    MonoTime now = Clock::Real().Mono();
    if (!checked_ || now - *checked_ >= seconds(1)) {
      checked_ = now;
      Result<std::string> text = ReadFile(path_, 1 << 20);
      if (text.ok()) {
        content_ = std::move(*text);
        while (!content_.empty() && isspace(static_cast<unsigned char>(content_.back()))) content_.pop_back();
        failed_ = false;
      } else if (!failed_) {
        failed_ = true;
        LogWarning("cannot read credentials, going on with the last ones", {{"error", text.status().ToString()}});
      }
    }
    return content_;
  }

 private:
  const std::string path_;
  std::mutex mutex_;
  std::optional<MonoTime> checked_;
  std::string content_;
  bool failed_ = false;
};

struct Handle {
  CURL* easy = curl_easy_init();
  CURLM* multi = curl_multi_init();
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
};

class HandlePool {
 public:
  std::unique_ptr<Handle> Take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Handle>();
    auto handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
  }
  void Return(std::unique_ptr<Handle> handle) {
    curl_easy_reset(handle->easy);
    std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdleHandles) idle_.push_back(std::move(handle));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;
};

// One exchange while it runs. All of it lives on the calling thread; libcurl calls back on that thread too.
struct Call {
  CURL* easy;
  HttpResponse response{};
  const std::function<bool(std::string_view)>* on_chunk = nullptr;  // null for Send
  size_t max_body_bytes = 0;
  size_t header_bytes = 0;
  bool headers_done = false, too_long = false, ended_by_caller = false;
  MonoTime last_byte{};

  bool Streams() const { return on_chunk != nullptr && response.status >= 200 && response.status < 300; }
};

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto* call = static_cast<Call*>(user);
  std::string_view line(data, size * count);
  call->last_byte = Clock::Real().Mono();
  call->header_bytes += line.size();
  if (call->header_bytes > kMaxHeaderBytes) {
    call->too_long = true;
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // also after an interim 1xx answer
    call->response.headers.clear();
    return line.size();
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.empty()) {
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    call->response.status = static_cast<int>(status);
    call->headers_done = status >= 200;
    return size * count;
  }
  size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    call->response.headers[name] = std::string(value);
  }
  return size * count;
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto* call = static_cast<Call*>(user);
  std::string_view chunk(data, size * count);
  call->last_byte = Clock::Real().Mono();
  if (call->Streams()) {
    if ((*call->on_chunk)(chunk)) return chunk.size();
    call->ended_by_caller = true;
    return 0;
  }
  if (call->response.body.size() + chunk.size() > call->max_body_bytes) {
    call->too_long = true;
    return 0;
  }
  call->response.body.append(chunk);
  return chunk.size();
}

int OnSocket(void*, curl_socket_t socket, curlsocktype) {
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kTcpUserTimeoutMs, sizeof kTcpUserTimeoutMs);
  return CURL_SOCKOPT_OK;
}

class CurlTransport final : public Transport {
 public:
  explicit CurlTransport(ClientConfig config) : config_(std::move(config)), token_(config_.token_file), ca_(config_.ca_file) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)initialised;
  }

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override { return Run(request, nullptr, std::move(stop)); }
  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    return Run(request, &on_chunk, std::move(stop));
  }

 private:
  Result<HttpResponse> Run(const HttpRequest& request, const std::function<bool(std::string_view)>* on_chunk, std::stop_token stop);
  curl_slist* Prepare(const HttpRequest& request, const std::string& url, CURL* easy, std::string* ca);
  Result<HttpResponse> Drive(const HttpRequest& request, const std::string& what, Handle& handle, Call& call, const std::stop_token& stop);

  const ClientConfig config_;
  WatchedFile token_, ca_;
  HandlePool pool_;
};

void SetBlob(CURL* easy, CURLoption option, const std::string& pem) {
  if (pem.empty()) return;
  curl_blob blob{const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_NOCOPY};
  curl_easy_setopt(easy, option, &blob);
}

// What libcurl keeps by reference (`ca`, the request's body, the headers) must outlive the call.
curl_slist* CurlTransport::Prepare(const HttpRequest& request, const std::string& url, CURL* easy, std::string* ca) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS);
  curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "gzip");
  curl_easy_setopt(easy, CURLOPT_USERAGENT, config_.user_agent.c_str());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::chrono::duration_cast<milliseconds>(kConnectTimeout).count()));
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 10L);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, OnSocket);
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.data());
  }
  if (request.method == "HEAD") curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  if (config_.insecure_skip_tls_verify) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  *ca = config_.ca_pem.empty() ? ca_.Content() : config_.ca_pem;
  SetBlob(easy, CURLOPT_CAINFO_BLOB, *ca);
  SetBlob(easy, CURLOPT_SSLCERT_BLOB, config_.client_certificate_pem);
  SetBlob(easy, CURLOPT_SSLKEY_BLOB, config_.client_key_pem);

  curl_slist* headers = curl_slist_append(nullptr, "Expect:");  // a 100-continue costs a round trip
  for (const auto& [name, value] : request.headers) headers = curl_slist_append(headers, (name + ": " + value).c_str());
  if (!request.headers.contains("authorization")) {
    std::string token = token_.Content();
    if (token.empty()) token = config_.token;
    if (!token.empty()) {
      headers = curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
    } else if (!config_.username.empty()) {
      curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
      curl_easy_setopt(easy, CURLOPT_USERNAME, config_.username.c_str());
      curl_easy_setopt(easy, CURLOPT_PASSWORD, config_.password.c_str());
    }
  }
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  return headers;
}

Status TransportError(CURLcode code, const char* detail, const std::string& what) {
  std::string why = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  if (code == CURLE_OPERATION_TIMEDOUT) return {Code::kDeadlineExceeded, what + ": " + why};
  if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) return {Code::kInvalidArgument, what + ": " + why};
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    why += " (the server's certificate does not match the configured CA or the host name in the URL)";
  }
  return {Code::kUnavailable, what + ": " + why};
}

// Runs the transfer until it ends, is cancelled, or is out of time. The handle may be used again whatever the outcome: removing an easy
// handle from its multi closes the connection of an unfinished transfer.
Result<HttpResponse> CurlTransport::Drive(const HttpRequest& request, const std::string& what, Handle& handle, Call& call,
                                          const std::stop_token& stop) {
  char detail[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle.easy, CURLOPT_ERRORBUFFER, detail);
  const MonoTime start = Clock::Real().Mono();
  std::stop_callback wake(stop, [multi = handle.multi] { curl_multi_wakeup(multi); });
  for (;;) {
    int running = 0;
    CURLMcode failed = curl_multi_perform(handle.multi, &running);
    if (failed != CURLM_OK) return Status(Code::kInternal, what + ": libcurl: " + curl_multi_strerror(failed));
    int left = 0;
    if (const CURLMsg* done = curl_multi_info_read(handle.multi, &left); done != nullptr && done->msg == CURLMSG_DONE) {
      if (call.ended_by_caller || done->data.result == CURLE_OK) return std::move(call.response);
      if (call.too_long)
        return Status(Code::kResourceExhausted, what + ": the answer is longer than " + std::to_string(call.max_body_bytes) + " bytes");
      return TransportError(done->data.result, detail, what);
    }
    if (stop.stop_requested()) return Status(Code::kCancelled, what + ": cancelled");
    const MonoTime now = Clock::Real().Mono();
    MonoTime deadline = start + request.timeout;
    if (call.headers_done && call.Streams()) {
      deadline = call.last_byte + request.idle_timeout;
      if (now >= deadline) {
        return Status(Code::kDeadlineExceeded,
                      what + ": no byte for " + std::to_string(std::chrono::duration_cast<seconds>(request.idle_timeout).count()) + " s");
      }
    } else if (now >= deadline) {
      return Status(Code::kDeadlineExceeded, what + ": no answer within " +
                                                 std::to_string(std::chrono::duration_cast<milliseconds>(request.timeout).count()) + " ms");
    }
    auto wait = std::chrono::ceil<milliseconds>(std::min<Duration>(deadline - now, seconds(1)));
    curl_multi_poll(handle.multi, nullptr, 0, static_cast<int>(wait.count()), nullptr);
  }
}

Result<HttpResponse> CurlTransport::Run(const HttpRequest& request, const std::function<bool(std::string_view)>* on_chunk,
                                        std::stop_token stop) {
  bool absolute = request.path.starts_with("https://") || request.path.starts_with("http://");
  const std::string url = absolute ? request.path : config_.server + request.path;
  const std::string what = request.method + " " + url.substr(0, url.find('?'));
  if (stop.stop_requested()) return Status(Code::kCancelled, what + ": cancelled");
  std::unique_ptr<Handle> handle = pool_.Take();
  if (handle->easy == nullptr || handle->multi == nullptr) return Status(Code::kInternal, what + ": libcurl has no memory for a handle");

  Call call{.easy = handle->easy, .on_chunk = on_chunk};
  call.max_body_bytes = on_chunk == nullptr ? request.max_body_bytes : kMaxErrorBodyBytes;
  call.last_byte = Clock::Real().Mono();
  std::string ca;
  curl_slist* headers = Prepare(request, url, handle->easy, &ca);
  curl_easy_setopt(handle->easy, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(handle->easy, CURLOPT_HEADERDATA, &call);
  curl_easy_setopt(handle->easy, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(handle->easy, CURLOPT_WRITEDATA, &call);
  curl_multi_add_handle(handle->multi, handle->easy);
  Result<HttpResponse> result = Drive(request, what, *handle, call, stop);
  curl_multi_remove_handle(handle->multi, handle->easy);
  pool_.Return(std::move(handle));
  curl_slist_free_all(headers);
  return result;
}

}  // namespace

std::unique_ptr<Transport> MakeCurlTransport(ClientConfig config) { return std::make_unique<CurlTransport>(std::move(config)); }

}  // namespace holdfast::kube
