// A Transport whose answers a test gives. Send, and Stream of anything but a watch, answer from a function; Stream of a watch hands it to
// the test, which feeds it and says how it ends. A WatchList is refused, as by a server that cannot stream lists, until AllowWatchLists.
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "base/json.h"
#include "kube/http.h"
#include "tests/eventually.h"

namespace holdfast::kube {

using testing::Eventually;

inline HttpResponse JsonAnswer(int status, const Json& body) {
  return {.status = status, .headers = {{"content-type", "application/json"}}, .body = DumpJson(body)};
}

inline HttpResponse Failure(int code, const std::string& reason, const std::string& message = "no") {
  return JsonAnswer(
      code, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Failure"}, {"code", code}, {"reason", reason}, {"message", message}});
}

class FakeTransport : public Transport {
 public:
  using Answer = std::function<Result<HttpResponse>(const HttpRequest&)>;
  // One watch that the code under test has opened.
  class Watch {
   public:
    explicit Watch(HttpRequest request) : request(std::move(request)) {}
    const HttpRequest request;
    void Feed(std::string bytes) {
      std::lock_guard lock(mutex_);
      chunks_.push_back(std::move(bytes));
      changed_.notify_all();
    }
    void Event(const std::string& type, const Json& object) { Feed(DumpJson({{"type", type}, {"object", object}}) + "\n"); }
    // What Stream returns once everything fed was read.
    void End(Result<HttpResponse> result = HttpResponse{.status = 200}) {
      std::lock_guard lock(mutex_);
      end_ = std::move(result);
      changed_.notify_all();
    }

   private:
    friend class FakeTransport;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<std::string> chunks_;
    std::optional<Result<HttpResponse>> end_;
  };

  explicit FakeTransport(Answer answer = nullptr) : answer_(std::move(answer)) {}

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override {
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    Answer answer;
    {
      std::lock_guard lock(mutex_);
      paths_.push_back(request.path);
      sent_.push_back(request);
      answer = answer_;
      changed_.notify_all();
    }
    return answer(request);
  }

  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    if (request.path.find("watch=1") == std::string::npos) return StreamAnswer(Send(request, stop), on_chunk);
    auto watch = std::make_shared<Watch>(request);
    {
      std::lock_guard lock(mutex_);
      paths_.push_back(request.path);
      if (!watch_lists_allowed_ && request.path.find("sendInitialEvents=true") != std::string::npos) {
        ++watch_lists_refused_;
        return Failure(422, "Invalid", "sendInitialEvents is forbidden");
      }
      watches_.push_back(watch);
      changed_.notify_all();
    }
    std::unique_lock lock(watch->mutex_);
    for (;;) {
      watch->changed_.wait(lock, stop, [&] { return !watch->chunks_.empty() || watch->end_; });
      if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
      if (watch->chunks_.empty()) return *watch->end_;
      std::string chunk = std::move(watch->chunks_.front());
      watch->chunks_.pop_front();
      lock.unlock();
      if (!on_chunk(chunk)) return HttpResponse{.status = 200};
      lock.lock();
    }
  }

  void AllowWatchLists() {
    std::lock_guard lock(mutex_);
    watch_lists_allowed_ = true;
  }
  size_t watch_lists_refused() {
    std::lock_guard lock(mutex_);
    return watch_lists_refused_;
  }
  // In what pieces streamed answers come.
  void SetPieces(size_t bytes) { piece_bytes_ = bytes; }

  void SetAnswer(Answer answer) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  // The watch number `index` since the start; waits until it was opened, or null after 10 s.
  std::shared_ptr<Watch> WaitForWatch(size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return watches_.size() > index; });
    return watches_.size() > index ? watches_[index] : nullptr;
  }
  size_t watches() {
    std::lock_guard lock(mutex_);
    return watches_.size();
  }
  // Of all requests, in order.
  std::vector<std::string> paths() {
    std::lock_guard lock(mutex_);
    return paths_;
  }
  std::vector<HttpRequest> sent() {
    std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  Result<HttpResponse> StreamAnswer(Result<HttpResponse> answer, const std::function<bool(std::string_view)>& on_chunk) {
    if (!answer.ok() || answer->status < 200 || answer->status > 299) return answer;
    const std::string body = std::exchange(answer->body, "");
    for (size_t at = 0; at < body.size(); at += piece_bytes_) {
      if (!on_chunk(std::string_view(body).substr(at, piece_bytes_))) break;
    }
    return answer;
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  Answer answer_;
  bool watch_lists_allowed_ = false;
  size_t watch_lists_refused_ = 0;
  std::atomic<size_t> piece_bytes_{16 << 10};
  std::vector<HttpRequest> sent_;
  std::vector<std::string> paths_;
  std::vector<std::shared_ptr<Watch>> watches_;
};

// Moves `clock` in small steps until `ready`, through at most `limit` of virtual time.
template <class Ready>
bool AdvanceUntil(FakeClock& clock, Duration step, Duration limit, Ready ready) {
  for (Duration passed{0}; passed <= limit; passed += step) {
    // Until the code under test waits for time to pass: what is still on its way there must not find that it has passed already.
    const MonoTime start = Clock::Real().Mono();
    for (Duration real{0};
         real < std::chrono::milliseconds(10) || (clock.waiters() == 0 && real < std::chrono::seconds(10) * testing::Slow());
         real = Clock::Real().Mono() - start) {
      if (ready()) return true;
      Clock::Real().Sleep(std::chrono::milliseconds(1), {});
    }
    clock.Advance(step);
  }
  return ready();
}

}  // namespace holdfast::kube
