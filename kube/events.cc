// The first of equal events is created; the second makes it a series; later ones are counted here and written at most once a minute.
#include "kube/events.h"

#include <deque>
#include <map>
#include <thread>

#include "base/log.h"
#include "base/time_format.h"
#include "kube/objects.h"

namespace holdfast::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// Limits of events.k8s.io/v1.
constexpr size_t kMaxWordBytes = 128;
constexpr size_t kMaxNoteBytes = 1024;

constexpr size_t kMaxQueued = 1000;
constexpr size_t kMaxSeries = 1024;
constexpr Duration kSeriesEnds = minutes(6);  // a repetition after this is a new event
constexpr Duration kWriteEvery = minutes(1);  // of one series
constexpr Duration kLastWords = seconds(2);   // how long the destructor sends
constexpr int kMaxTries = 5;

std::string Clip(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

struct Occurrence {
  ObjectReference about;
  std::string type, reason, action, note;
  WallTime at;
  MonoTime at_mono;

  std::string Key() const {
    std::string key;
    for (const std::string* part : {&about.api_version, &about.kind, &about.ns, &about.name, &about.uid, &type, &reason, &action, &note}) {
      key += *part;
      key += '\n';
    }
    return key;
  }
};

struct Series {
  std::string ns{}, name{};
  int64_t count = 1, written = 1;
  WallTime last_seen{};
  MonoTime last_mono{}, last_write{};
};

}  // namespace

ObjectReference ObjectReference::To(const Resource& resource, const ObjectMeta& meta) {
  return {resource.ApiVersion(), resource.kind, meta.ns, meta.name, meta.uid};
}

struct EventRecorder::Impl {
  Client& client;
  const std::string controller, instance;
  Clock& clock = client.clock();
  std::mutex mutex{};
  std::condition_variable_any changed{};
  std::deque<Occurrence> queue{};
  int64_t dropped = 0;
  bool closing = false;
  std::stop_source last_words_over{};      // ends what is on the wire when the destructor's time is up
  std::map<std::string, Series> series{};  // the thread's own
  std::jthread thread{};

  void Record(const ObjectReference& about, const char* type, const std::string& reason, const std::string& action,
              const std::string& note);
  void Run();
  void Handle(const Occurrence& what);
  void Create(const Occurrence& what, const std::string& key);
  void WriteSeries(Series& s);
  void Sweep();
  template <class Call>
  Status Try(Call call);
};

void EventRecorder::Impl::Record(const ObjectReference& about, const char* type, const std::string& reason, const std::string& action,
                                 const std::string& note) {
  Occurrence what{about,
                  type,
                  Clip(reason, kMaxWordBytes),
                  Clip(action.empty() ? reason : action, kMaxWordBytes),
                  Clip(note, kMaxNoteBytes),
                  clock.Wall(),
                  clock.Mono()};
  std::lock_guard lock(mutex);
  if (closing) return;
  if (queue.size() >= kMaxQueued) {
    if (dropped++ == 0) LogWarning("too many events wait to be sent, dropping new ones", {{"controller", controller}});
    return;
  }
  queue.push_back(std::move(what));
  changed.notify_all();
}

void EventRecorder::Impl::Run() {
  std::unique_lock lock(mutex);
  for (;;) {
    clock.WaitUntil(lock, changed, clock.Mono() + kWriteEvery, {}, [this] { return !queue.empty() || closing; });
    if (closing && (queue.empty() || last_words_over.stop_requested())) break;
    if (queue.empty()) {
      lock.unlock();
      Sweep();
      lock.lock();
      continue;
    }
    Occurrence what = std::move(queue.front());
    queue.pop_front();
    if (queue.empty() && dropped > 0) {
      LogWarning("events were dropped", {{"controller", controller}, {"count", dropped}});
      dropped = 0;
    }
    lock.unlock();
    Handle(what);
    lock.lock();
  }
  lock.unlock();
  for (auto& [key, s] : series) {
    if (s.count > s.written && !last_words_over.stop_requested()) WriteSeries(s);
  }
}

// Retries what may pass; the status of the last try.
template <class Call>
Status EventRecorder::Impl::Try(Call call) {
  CallOptions options;
  options.timeout = seconds(10);
  options.stop = last_words_over.get_token();
  Duration pause = seconds(1);
  for (int tries = 1;; ++tries, pause *= 2) {
    Status status = call(options);
    bool again =
        status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded || status.code() == Code::kResourceExhausted;
    if (!again || tries == kMaxTries) return status;
    if (!clock.Sleep(pause, options.stop)) return status;
  }
}

void EventRecorder::Impl::Handle(const Occurrence& what) {
  std::string key = what.Key();
  auto found = series.find(key);
  if (found != series.end() && what.at_mono - found->second.last_mono >= kSeriesEnds) {
    if (found->second.count > found->second.written) WriteSeries(found->second);
    series.erase(found);
    found = series.end();
  }
  if (found == series.end()) return Create(what, key);
  Series& s = found->second;
  ++s.count;
  s.last_seen = what.at;
  s.last_mono = what.at_mono;
  if (s.count == 2 || clock.Mono() - s.last_write >= kWriteEvery) WriteSeries(s);
}

void EventRecorder::Impl::Create(const Occurrence& what, const std::string& key) {
  const std::string ns = what.about.ns.empty() ? "default" : what.about.ns;
  char suffix[20];
  snprintf(suffix, sizeof suffix, ".%016llx", static_cast<unsigned long long>(what.at.time_since_epoch().count()));
  const std::string name = what.about.name.substr(0, 253 - 17) + suffix;
  Json regarding = {{"apiVersion", what.about.api_version}, {"kind", what.about.kind}, {"name", what.about.name}};
  if (!what.about.ns.empty()) regarding["namespace"] = what.about.ns;
  if (!what.about.uid.empty()) regarding["uid"] = what.about.uid;
  Json event = {{"apiVersion", kEvents.ApiVersion()},
                {"kind", kEvents.kind},
                {"metadata", {{"name", name}, {"namespace", ns}}},
                {"eventTime", FormatMicroTime(what.at)},
                {"reportingController", controller},
                {"reportingInstance", Clip(instance, kMaxWordBytes)},
                {"type", what.type},
                {"reason", what.reason},
                {"action", what.action},
                {"note", what.note},
                {"regarding", std::move(regarding)}};
  Status status = Try([&](const CallOptions& options) { return client.Create(kEvents, ns, event, options).status(); });
  if (!status.ok() && status.code() != Code::kAlreadyExists) {
    LogWarning("cannot send an event",
               {{"about", ns + "/" + what.about.name}, {"reason", what.reason}, {"note", what.note}, {"error", status.ToString()}});
    return;
  }
  if (series.size() >= kMaxSeries) Sweep();
  if (series.size() >= kMaxSeries) return;  // repetitions become events of their own
  MonoTime now = clock.Mono();
  series.emplace(key, Series{.ns = ns, .name = name, .last_seen = what.at, .last_mono = what.at_mono, .last_write = now});
}

void EventRecorder::Impl::WriteSeries(Series& s) {
  Json patch = {{"series", {{"count", s.count}, {"lastObservedTime", FormatMicroTime(s.last_seen)}}}};
  s.last_write = clock.Mono();
  Status status =
      Try([&](const CallOptions& options) { return client.Patch(kEvents, s.ns, s.name, PatchType::kMerge, patch, options).status(); });
  if (status.ok()) {
    s.written = s.count;
  } else {
    LogWarning("cannot update an event", {{"event", s.ns + "/" + s.name}, {"error", status.ToString()}});
  }
}

void EventRecorder::Impl::Sweep() {
  for (auto at = series.begin(); at != series.end();) {
    Series& s = at->second;
    MonoTime now = clock.Mono();
    if (s.count > s.written && now - s.last_write >= kWriteEvery) WriteSeries(s);
    at = now - s.last_mono >= kSeriesEnds ? series.erase(at) : std::next(at);
  }
}

EventRecorder::EventRecorder(Client& client, std::string controller, std::string instance)
    : impl_(new Impl{.client = client, .controller = std::move(controller), .instance = std::move(instance)}) {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->Run(); });
}

EventRecorder::~EventRecorder() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->closing = true;
    impl_->changed.notify_all();
  }
  // Real time on purpose: this bounds how long a process takes to end.
  std::jthread timer([over = impl_->last_words_over](const std::stop_token& stop) mutable {
    if (Clock::Real().Sleep(kLastWords, stop)) over.request_stop();
  });
  impl_->thread.join();
}

void EventRecorder::Normal(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note) {
  impl_->Record(about, "Normal", reason, action, note);
}

void EventRecorder::Warning(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note) {
  impl_->Record(about, "Warning", reason, action, note);
}

}  // namespace holdfast::kube
