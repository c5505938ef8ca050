// One thread owns the series and sends, so that events of one object arrive in order.
#include "kube/events.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <tuple>

#include "base/log.h"
#include "base/random_seed.h"
#include "base/thread.h"
#include "base/time_format.h"
#include "kube/metrics.h"
#include "kube/objects.h"
#include "kube/token_buckets.h"
#include "kube/utf8.h"

namespace holdfast::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// Limits of events.k8s.io/v1.
constexpr size_t kMaxWordBytes = 128;
constexpr size_t kMaxNoteBytes = 1024;
constexpr size_t kMaxNameBytes = 253;

constexpr size_t kMaxQueued = 1000;
constexpr size_t kMaxSeries = 4096;
constexpr size_t kMaxObjects = 4096;  // whose token buckets are kept
constexpr int kBurst = 25;            // new events on one object
constexpr Duration kRefill = minutes(5);
constexpr Duration kSeriesEnds = minutes(6);
constexpr size_t kTexts = 10;                                     // of one thing that happens; client-go's maxEvents
constexpr char kCombined[] = "(combined from similar events): ";  // as client-go has it
constexpr Duration kRefreshEvery = minutes(30);
constexpr Duration kSweepEvery = minutes(1);
constexpr Duration kLastWords = seconds(2);  // how long the destructor sends
constexpr int kMaxTries = 12;
constexpr Duration kPause = seconds(10);  // between tries, ±25 %, so that clients do not come back in step

struct Key {
  std::string type, action, reason;
  ObjectReference regarding;
  std::optional<ObjectReference> related;
  std::optional<std::string> note;               // none: stands for all texts beyond kTexts
  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes <=> for a pointer
};

struct Occurrence {
  Key key;  // with its note
  WallTime at;
  MonoTime at_mono;
};

struct Series {
  Json event;  // as it was created
  int64_t count = 1;
  int64_t written = 1;  // the count that the server has
  WallTime last_seen{};
  MonoTime last_mono{}, last_write{};
};

Json ToJson(const ObjectReference& reference) {
  Json json = {{"apiVersion", reference.api_version}, {"kind", reference.kind}, {"name", reference.name}};
  if (!reference.ns.empty()) json["namespace"] = reference.ns;
  if (!reference.uid.empty()) json["uid"] = reference.uid;
  return json;
}

// "web-0.<id>", the object's name cut where both are too long.
std::string EventName(const std::string& object, const std::string& id) {
  std::string stem = object.substr(0, kMaxNameBytes - std::min(kMaxNameBytes, id.size() + 1));
  while (!stem.empty() && isalnum(static_cast<unsigned char>(stem.back())) == 0) stem.pop_back();
  return stem + "." + id;
}

// Unique for an object, as client-go does it.
std::string IdOf(WallTime at) {
  char id[20];
  snprintf(id, sizeof id, "%llx", static_cast<unsigned long long>(at.time_since_epoch().count()));
  return id;
}

bool MayPass(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded || status.code() == Code::kResourceExhausted;
}

}  // namespace

ObjectReference ObjectReference::To(const Resource& resource, const ObjectMeta& meta) {
  return {resource.ApiVersion(), resource.kind, meta.ns, meta.name, meta.uid};
}

struct EventRecorder::Impl {
  Client& client;
  const std::string controller, instance;
  RuntimeMetrics* const metrics;
  Clock& clock = client.clock();
  std::atomic<int64_t> dropped{0};
  std::mutex mutex{};
  std::condition_variable_any changed{};
  std::deque<Occurrence> queue{};
  bool full = false;  // said so already
  bool closing = false;
  std::stop_source last_words_over{};  // ends what is on the wire when the destructor's time is up
  // The thread's own:
  std::map<Key, Series> series{};
  TokenBuckets buckets{kBurst, kRefill, kMaxObjects};
  std::mt19937 random{static_cast<uint32_t>(RandomSeed())};
  Thread thread{};

  void Record(const char* type, const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note,
              const std::optional<ObjectReference>& related);
  Status SendOnce(const char* type, const ObjectReference& about, const std::string& id, const std::string& reason,
                  const std::string& action, const std::string& note, const CallOptions& options);
  void Run();
  void Handle(Occurrence what);
  std::map<Key, Series>::iterator Running(const Key& key, MonoTime now);
  bool HasManyTexts(const Key& combined, MonoTime now) const;
  void Create(const Occurrence& what, const std::string& note);
  Status WriteOnce(Series& s, const CallOptions& options);
  void WriteSeries(Series& s);
  void Sweep();
  Json NewEvent(const Occurrence& what, const std::string& note) const;
  template <class Call>
  Status Try(Call call);

  void Drop(const char* why) {
    ++dropped;
    if (metrics != nullptr) metrics->EventDropped(controller, why);
  }
};

void EventRecorder::Impl::Record(const char* type, const ObjectReference& about, const std::string& reason, const std::string& action,
                                 const std::string& note, const std::optional<ObjectReference>& related) {
  Occurrence what{
      {type, Clip(action.empty() ? reason : action, kMaxWordBytes), Clip(reason, kMaxWordBytes), about, related, Clip(note, kMaxNoteBytes)},
      clock.Wall(),
      clock.Mono()};
  std::lock_guard lock(mutex);
  if (closing) return;
  if (queue.size() >= kMaxQueued) {
    Drop("queue_full");
    if (!full) LogWarning("too many events wait to be sent, dropping new ones", {{"recorder", controller}});
    full = true;
    return;
  }
  full = false;
  queue.push_back(std::move(what));
  changed.notify_all();
}

void EventRecorder::Impl::Run() {
  MonoTime sweep = clock.Mono() + kSweepEvery;
  std::unique_lock lock(mutex);
  for (;;) {
    clock.WaitUntil(lock, changed, sweep, {}, [this] { return !queue.empty() || closing; });
    if (closing && (queue.empty() || last_words_over.stop_requested())) break;
    std::optional<Occurrence> what;
    if (!queue.empty()) {
      what = std::move(queue.front());
      queue.pop_front();
    }
    lock.unlock();
    if (what) Handle(std::move(*what));
    if (clock.Mono() >= sweep) {
      Sweep();
      sweep = clock.Mono() + kSweepEvery;
    }
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
  for (int tries = 1;; ++tries) {
    Status status = call(options);
    if (!MayPass(status) || tries == kMaxTries) return status;
    std::uniform_real_distribution<double> jitter(0.75, 1.25);
    Duration pause(static_cast<int64_t>(static_cast<double>(kPause.count()) * jitter(random)));
    std::unique_lock lock(mutex);
    // The destructor's two seconds are not for waiting.
    if (clock.WaitUntil(lock, changed, clock.Mono() + pause, options.stop, [this] { return closing; }) || options.stop.stop_requested()) {
      return status;
    }
  }
}

// The series of this key; one that was quiet for too long ends here.
std::map<Key, Series>::iterator EventRecorder::Impl::Running(const Key& key, MonoTime now) {
  auto found = series.find(key);
  if (found == series.end() || now - found->second.last_mono < kSeriesEnds) return found;
  if (found->second.count > found->second.written) WriteSeries(found->second);
  series.erase(found);
  return series.end();
}

bool EventRecorder::Impl::HasManyTexts(const Key& combined, MonoTime now) const {
  size_t texts = 0;
  Key key = combined;
  for (auto at = series.upper_bound(combined); at != series.end() && texts < kTexts; ++at) {
    key.note = at->first.note;
    if (at->first != key) break;
    if (now - at->second.last_mono < kSeriesEnds) ++texts;
  }
  return texts == kTexts;
}

// An event's note cannot be changed, so each text is an event of its own, until there are too many.
void EventRecorder::Impl::Handle(Occurrence what) {
  auto found = Running(what.key, what.at_mono);
  if (found == series.end()) {
    Key combined = what.key;
    combined.note.reset();
    found = Running(combined, what.at_mono);
    if (found == series.end()) {
      const std::string note = *what.key.note;
      if (HasManyTexts(combined, what.at_mono)) what.key = std::move(combined);
      return Create(what, note);
    }
  }
  Series& s = found->second;
  ++s.count;
  s.last_seen = what.at;
  s.last_mono = what.at_mono;
  if (s.count == 2) WriteSeries(s);
}

Json EventRecorder::Impl::NewEvent(const Occurrence& what, const std::string& note) const {
  const ObjectReference& about = what.key.regarding;
  Json event = {{"apiVersion", kEvents.ApiVersion()},
                {"kind", kEvents.kind},
                {"metadata", {{"name", EventName(about.name, IdOf(what.at))}, {"namespace", about.ns.empty() ? "default" : about.ns}}},
                {"eventTime", FormatMicroTime(what.at)},
                {"reportingController", Clip(controller, kMaxWordBytes)},
                {"reportingInstance", Clip(instance, kMaxWordBytes)},
                {"type", what.key.type},
                {"reason", what.key.reason},
                {"action", what.key.action},
                {"note", what.key.note ? note : Clip(kCombined + note, kMaxNoteBytes)},
                {"regarding", ToJson(about)}};
  if (what.key.related) event["related"] = ToJson(*what.key.related);
  return event;
}

void EventRecorder::Impl::Create(const Occurrence& what, const std::string& note) {
  const ObjectReference& about = what.key.regarding;
  if (!buckets.Take(about.kind + "/" + about.ns + "/" + about.name + "/" + about.uid, what.at_mono)) return Drop("rate_limited");
  Json event = NewEvent(what, note);
  const std::string ns = GetString(event, {"metadata", "namespace"});
  Status status = Try([&](const CallOptions& options) { return client.Create(kEvents, ns, event, options).status(); });
  // AlreadyExists: an earlier try came through though its answer did not.
  if (!status.ok() && status.code() != Code::kAlreadyExists) {
    Drop("rejected");
    LogWarning("cannot send an event",
               {{"about", ns + "/" + about.name}, {"reason", what.key.reason}, {"note", note}, {"error", status.ToString()}});
    return;
  }
  if (series.size() >= kMaxSeries) Sweep();
  if (series.size() >= kMaxSeries) return;  // repetitions become events of their own
  series[what.key] = {.event = std::move(event), .last_seen = what.at, .last_mono = what.at_mono, .last_write = clock.Mono()};
}

// One try: the count onto the event; the event anew when the server has dropped it.
Status EventRecorder::Impl::WriteOnce(Series& s, const CallOptions& options) {
  const std::string ns = GetString(s.event, {"metadata", "namespace"}), name = GetString(s.event, {"metadata", "name"});
  const Json count = {{"series", {{"count", s.count}, {"lastObservedTime", FormatMicroTime(s.last_seen)}}}};
  Status status = client.Patch(kEvents, ns, name, PatchType::kMerge, count, options).status();
  if (status.code() != Code::kNotFound) return status;
  Json anew = s.event;
  anew.update(count);
  status = client.Create(kEvents, ns, anew, options).status();
  // It is there after all: the next try patches it.
  return status.code() == Code::kAlreadyExists ? Status(Code::kUnavailable, status.message()) : status;
}

void EventRecorder::Impl::WriteSeries(Series& s) {
  s.last_write = clock.Mono();
  Status status = Try([&](const CallOptions& options) { return WriteOnce(s, options); });
  if (status.ok()) {
    s.written = s.count;
  } else {
    LogWarning("cannot update an event", {{"event", GetString(s.event, {"metadata", "name"})}, {"error", status.ToString()}});
  }
}

// Refreshes what runs and ends what was quiet. One try each: with the API server away there is a next time.
void EventRecorder::Impl::Sweep() {
  CallOptions options;
  options.timeout = seconds(10);
  options.stop = last_words_over.get_token();
  for (auto at = series.begin(); at != series.end();) {
    Series& s = at->second;
    const MonoTime now = clock.Mono();
    const bool over = now - s.last_mono >= kSeriesEnds;
    if (over ? s.count > s.written : s.count > 1 && now - s.last_write >= kRefreshEvery) {
      Status status = WriteOnce(s, options);
      if (MayPass(status)) return;
      s.written = s.count;
      s.last_write = now;
      if (!status.ok())
        LogWarning("cannot update an event", {{"event", GetString(s.event, {"metadata", "name"})}, {"error", status.ToString()}});
    }
    at = over ? series.erase(at) : std::next(at);
  }
}

EventRecorder::EventRecorder(Client& client, std::string controller, std::string instance, RuntimeMetrics* metrics)
    : impl_(new Impl{.client = client, .controller = std::move(controller), .instance = std::move(instance), .metrics = metrics}) {
  impl_->thread = Thread([impl = impl_.get()] { impl->Run(); });
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

void EventRecorder::Normal(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note,
                           const std::optional<ObjectReference>& related) {
  impl_->Record("Normal", about, reason, action, note, related);
}

void EventRecorder::Warning(const ObjectReference& about, const std::string& reason, const std::string& action, const std::string& note,
                            const std::optional<ObjectReference>& related) {
  impl_->Record("Warning", about, reason, action, note, related);
}

Status EventRecorder::Impl::SendOnce(const char* type, const ObjectReference& about, const std::string& id, const std::string& reason,
                                     const std::string& action, const std::string& note, const CallOptions& options) {
  const std::string text = Clip(note, kMaxNoteBytes);
  const Occurrence what{{type, Clip(action, kMaxWordBytes), Clip(reason, kMaxWordBytes), about, {}, text}, clock.Wall(), clock.Mono()};
  Json event = NewEvent(what, text);
  event["metadata"]["name"] = EventName(about.name, id);
  const Status sent = client.Create(kEvents, GetString(event, {"metadata", "namespace"}), event, options).status();
  return sent.code() == Code::kAlreadyExists ? Status::Ok() : sent;
}

Status EventRecorder::NormalOnce(const ObjectReference& about, const std::string& id, const std::string& reason, const std::string& action,
                                 const std::string& note, const CallOptions& options) {
  return impl_->SendOnce("Normal", about, id, reason, action, note, options);
}

Status EventRecorder::WarnOnce(const ObjectReference& about, const std::string& id, const std::string& reason, const std::string& action,
                               const std::string& note, const CallOptions& options) {
  return impl_->SendOnce("Warning", about, id, reason, action, note, options);
}

int64_t EventRecorder::dropped() const { return impl_->dropped; }

}  // namespace holdfast::kube
