#include "storage/http_caller.h"

#include <curl/curl.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/random_seed.h"
#include "storage/wire.h"

namespace holdfast::storage {
namespace {

constexpr size_t kIdleHandles = 8;
constexpr Duration kFirstBackoff = std::chrono::milliseconds(50), kLongestBackoff = std::chrono::seconds(1);

// One try's view of the body and the answer.
struct Transfer {
  const HttpCall* call = nullptr;
  const CallLimits* limits = nullptr;
  size_t part = 0, offset = 0;
  HttpAnswer answer;
  bool too_long = false;
};

size_t ReadBody(char* out, size_t size, size_t count, void* data) {
  auto* transfer = static_cast<Transfer*>(data);
  size_t room = size * count, copied = 0;
  while (room > 0 && transfer->part < transfer->call->body.size()) {
    std::span<const std::byte> part = transfer->call->body[transfer->part].subspan(transfer->offset);
    const size_t n = std::min(room, part.size());
    memcpy(out + copied, part.data(), n);
    copied += n;
    room -= n;
    transfer->offset += n;
    if (n == part.size()) {
      ++transfer->part;
      transfer->offset = 0;
    }
  }
  return copied;
}

// libcurl begins anew when a kept connection turns out to be dead.
int Rewind(void* data, curl_off_t offset, int origin) {
  auto* transfer = static_cast<Transfer*>(data);
  if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  transfer->part = transfer->offset = 0;
  return CURL_SEEKFUNC_OK;
}

size_t WriteAnswer(char* bytes, size_t size, size_t count, void* data) {
  auto* transfer = static_cast<Transfer*>(data);
  const size_t n = size * count;
  transfer->too_long = transfer->answer.body.size() + n > transfer->call->max_answer_bytes;
  if (transfer->too_long) return 0;
  transfer->answer.body.append(bytes, n);
  return n;
}

size_t ReadHeader(char* bytes, size_t size, size_t count, void* data) {
  auto* transfer = static_cast<Transfer*>(data);
  std::string_view line(bytes, size * count);
  constexpr std::string_view kKey = "holdfast-hash-key:", kLength = "content-length:";
  auto named = [line](std::string_view name) {
    return line.size() > name.size() && strncasecmp(line.data(), name.data(), name.size()) == 0;
  };
  auto value = [line](std::string_view name) {
    std::string_view text = line.substr(name.size());
    while (!text.empty() && (text.front() == ' ')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    return std::string(text);
  };
  if (named(kKey)) transfer->answer.hash_key = value(kKey);
  if (named(kLength))
    transfer->answer.body.reserve(std::min<size_t>(strtoull(value(kLength).c_str(), nullptr, 10), transfer->call->max_answer_bytes));
  return line.size();
}

int Watch(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(data)->limits->stop.stop_requested() ? 1 : 0;
}

long Milliseconds(Duration duration) { return std::max<long>(1, std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()); }

}  // namespace

HttpCaller::HttpCaller(HttpCallerOptions options, Clock& clock)
    : options_(std::move(options)), clock_(clock), random_(static_cast<uint32_t>(RandomSeed())) {
  static const bool ready = [] {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the peer has closed
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  }();
  static_cast<void>(ready);
}

HttpCaller::~HttpCaller() {
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* HttpCaller::Borrow() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return curl_easy_init();
  void* handle = idle_.back();
  idle_.pop_back();
  return handle;
}

void HttpCaller::Return(void* handle) {
  curl_easy_reset(handle);  // keeps the connection
  {
    std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleHandles) {
      idle_.push_back(handle);
      return;
    }
  }
  curl_easy_cleanup(handle);
}

Result<std::string> HttpCaller::Token() {
  if (options_.token_file.empty()) return std::string();
  std::lock_guard lock(mutex_);
  // Kubernetes replaces the file long before the token expires.
  if (!token_.empty() && clock_.Mono() - token_read_ < std::chrono::seconds(1)) return token_;
  Result<std::string> read = ReadFile(options_.token_file, 64 << 10);
  // Whatever is wrong with the file, it says nothing about what was asked for.
  if (!read.ok()) return Status(Code::kUnavailable, "the token for " + options_.url + ": " + read.status().message());
  std::string text = std::move(*read);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.find_first_of("\r\n") != std::string::npos)
    return Status(Code::kInvalidArgument, options_.token_file + " does not hold one token");
  token_ = std::move(text);
  token_read_ = clock_.Mono();
  return token_;
}

Result<HttpAnswer> HttpCaller::Try(const HttpCall& call, const CallLimits& limits) {
  std::string token;
  if (!call.anonymous) {
    HF_ASSIGN_OR_RETURN(token, Token());
  }
  const Duration left = limits.deadline - clock_.Mono();
  if (left <= Duration(0)) return Status(Code::kUnavailable, "no time left to ask " + options_.url);
  Result<HttpAnswer> answer =
      options_.exchange
          ? options_.exchange(call, {.deadline = clock_.Mono() + std::min(options_.attempt_timeout, left), .stop = limits.stop})
          : Exchange(call, token, left, limits);
  if (limits.stop.stop_requested()) return Status(Code::kCancelled, "stopped while asking " + options_.url);
  if (answer.ok() && (answer->status < 200 || answer->status > 299)) return DecodeError(answer->status, answer->body);
  return answer;
}

// Over libcurl.
Result<HttpAnswer> HttpCaller::Exchange(const HttpCall& call, const std::string& token, Duration left, const CallLimits& limits) {
  CURL* curl = Borrow();
  if (curl == nullptr) return Status(Code::kResourceExhausted, "libcurl has no memory for a request");
  Transfer transfer;
  transfer.call = &call;
  transfer.limits = &limits;
  curl_off_t length = 0;
  for (const auto& part : call.body) length += static_cast<curl_off_t>(part.size());
  char error[CURL_ERROR_SIZE] = {};
  curl_slist* headers = curl_slist_append(nullptr, "Expect:");  // an answer that comes before all was sent is heard all the same
  if (!token.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
  headers = curl_slist_append(headers, "Content-Type: application/octet-stream");
  for (const auto& [name, value] : call.headers) headers = curl_slist_append(headers, (name + ": " + value).c_str());
  curl_easy_setopt(curl, CURLOPT_URL, (options_.url + call.path).c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "holdfast/" HOLDFAST_VERSION);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(std::min(options_.connect_timeout, left)));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, Milliseconds(std::min(options_.attempt_timeout, left)));
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, static_cast<long>(CURL_MAX_READ_SIZE));
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
  curl_easy_setopt(curl, CURLOPT_CA_CACHE_TIMEOUT, 0L);  // the CA may be replaced
  if (!options_.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call.method.c_str());
  if (call.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, length);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, ReadBody);
    curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, Rewind);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, &transfer);
  }
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, WriteAnswer);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, ReadHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, Watch);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  Return(curl);
  if (transfer.too_long)
    return Status(Code::kInternal,
                  options_.url + call.path + " answers with more than " + std::to_string(call.max_answer_bytes) + " bytes");
  if (code != CURLE_OK) return Status(Code::kUnavailable, options_.url + ": " + (error[0] != '\0' ? error : curl_easy_strerror(code)));
  transfer.answer.status = static_cast<int>(status);
  return std::move(transfer.answer);
}

// Between half and all of it, so that agents that lost the same server do not come back together.
Duration HttpCaller::Jittered(Duration backoff) {
  std::lock_guard lock(mutex_);
  return backoff / 2 + backoff / 2 * static_cast<long>(random_() % 1024) / 1024;
}

Result<HttpAnswer> HttpCaller::Call(const HttpCall& call, const CallLimits& limits) {
  Duration backoff = kFirstBackoff;
  while (true) {
    if (limits.stop.stop_requested()) return Status(Code::kCancelled, "stopped while asking " + options_.url);
    Result<HttpAnswer> answer = Try(call, limits);
    if (answer.ok() || answer.status().code() != Code::kUnavailable) return answer;
    const Duration pause = Jittered(backoff);
    if (clock_.Mono() + pause >= limits.deadline) return answer.status().With("the store did not answer in time");
    if (!clock_.Sleep(pause, limits.stop)) return Status(Code::kCancelled, "stopped while waiting for " + options_.url);
    backoff = std::min(backoff * 2, kLongestBackoff);
  }
}

}  // namespace holdfast::storage
