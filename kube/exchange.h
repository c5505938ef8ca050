// One request on its way, between the thread that waits for it and the loop that runs it.
#pragma once

#include <curl/curl.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "kube/credentials.h"
#include "kube/http.h"

namespace holdfast::kube {

class Lane;

// What goes out, and with what.
struct Order {
  HttpRequest request;
  std::string url, origin;  // origin: https://host:port
  std::string what;         // "GET https://host/path", for messages: without the query
  std::string authorization, user_agent;
  std::shared_ptr<const TlsMaterial> tls;  // null for http://
  bool insecure = false;                   // TLS without verification
  bool streams = false;
  Duration connect_timeout{};
};

class Exchange {
 public:
  explicit Exchange(Order order);
  ~Exchange();  // on the loop's thread, or after a Finish
  const Order& order() const { return order_; }

  // ---- On the thread that waits.
  using OnChunk = std::function<bool(std::string_view)>;
  // Until there is an answer. `on_chunk` is null for Send. Calls `cancel` when nobody waits for the rest any more, and `resume` when there
  // is room again after a pause.
  Result<HttpResponse> Wait(const OnChunk* on_chunk, const std::stop_token& stop, const std::function<void()>& cancel,
                            const std::function<void()>& resume);

  // ---- On the loop's thread.
  Status Open(Lane* lane);  // makes the handle, ready for a multi
  CURL* easy() const { return easy_; }
  // When it is out of time; MonoTime::max() while its reader makes it wait.
  MonoTime Deadline() const;
  Status OutOfTime() const;
  void Resume(MonoTime now);
  // libcurl is done with it, successfully or not.
  void Complete(CURLcode code);
  // The end: `status` OK hands out the response. The handle must be out of its multi.
  void Finish(Status status);
  MonoTime started() const { return started_; }
  bool finished() const { return easy_ == nullptr; }

 private:
  static size_t OnHeader(char* data, size_t size, size_t count, void* self);
  static size_t OnBody(char* data, size_t size, size_t count, void* self);
  static size_t OnRead(char* buffer, size_t size, size_t count, void* self);
  size_t TakeHeader(std::string_view line);
  size_t TakeBody(std::string_view chunk);
  size_t Buffer(std::string_view chunk);
  void SetTls();
  void SetBody();
  bool Streams() const { return order_.streams && response_.status >= 200 && response_.status < 300; }

  const Order order_;
  const MonoTime started_ = Clock::Real().Mono();

  // The loop's, until `done_`. `response_` without its body may be read by the waiter once there is a chunk.
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
  Lane* lane_ = nullptr;
  char detail_[CURL_ERROR_SIZE] = "";
  HttpResponse response_;
  size_t header_bytes_ = 0, sent_ = 0;
  bool headers_done_ = false, too_long_ = false, waits_for_reader_ = false;
  MonoTime last_byte_ = started_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by `mutex_`.
  std::deque<std::string> chunks_;
  size_t unread_bytes_ = 0;  // in `chunks_` and in the hands of on_chunk
  bool paused_ = false, done_ = false;
  Status status_;
};

}  // namespace holdfast::kube
