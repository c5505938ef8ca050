// A Transport whose answers a test gives. Send answers from a function; Stream hands every opened watch to the test, which feeds it and
// says how it ends.
#pragma once

#include <deque>
#include <memory>

#include "base/json.h"
#include "kube/http.h"

namespace holdfast::kube {

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
      sent_.push_back(request);
      answer = answer_;
      changed_.notify_all();
    }
    return answer(request);
  }

  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    auto watch = std::make_shared<Watch>(request);
    {
      std::lock_guard lock(mutex_);
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
  std::vector<HttpRequest> sent() {
    std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Answer answer_;
  std::vector<HttpRequest> sent_;
  std::vector<std::shared_ptr<Watch>> watches_;
};

// Waits for up to 10 s of real time.
template <class Ready>
bool Eventually(Ready ready) {
  for (MonoTime end = Clock::Real().Mono() + std::chrono::seconds(10); Clock::Real().Mono() < end;) {
    if (ready()) return true;
    Clock::Real().Sleep(std::chrono::milliseconds(1), {});
  }
  return ready();
}

// Moves `clock` in small steps until `ready`, through at most `limit` of virtual time.
template <class Ready>
bool AdvanceUntil(FakeClock& clock, Duration step, Duration limit, Ready ready) {
  for (Duration passed{0}; passed <= limit; passed += step) {
    // Real time for the code under test to reach its next wait.
    for (MonoTime end = Clock::Real().Mono() + std::chrono::milliseconds(10); Clock::Real().Mono() < end;) {
      if (ready()) return true;
      Clock::Real().Sleep(std::chrono::milliseconds(1), {});
    }
    clock.Advance(step);
  }
  return ready();
}

}  // namespace holdfast::kube
