// The life of a watch event: the API server writes one JSON line; the transport hands its bytes to WatchLines; the line is parsed on its
// own, its object goes to the sink, which keeps a projection, and the JSON is dropped. The version of each event is where the next watch
// starts. Lists are quorum reads (no resourceVersion), so that a restarted controller cannot see less than it has already acted upon.
#include "kube/informer.h"

#include <atomic>
#include <random>
#include <thread>

#include "base/log.h"
#include "kube/api_error.h"
#include "kube/watch_lines.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kFirstPause = milliseconds(800);
constexpr Duration kLongestPause = seconds(30);
constexpr Duration kForgetPauses = minutes(2);  // so long without a failure: start from kFirstPause again
constexpr Duration kShortWatch = seconds(1);    // a watch that ends so soon without an event is a failure
constexpr Duration kSteadyWatch = seconds(5);   // one that broke after this much is opened again at once
constexpr Duration kListTimeout = seconds(60);
// The API server sends a bookmark about every minute. Where it sends none, a quiet resource costs one list in this time.
constexpr Duration kSilence = seconds(150);
constexpr size_t kMaxEventBytes = 32 << 20;
// An older list than what we saw is refused so often: then the server's storage was restored from a backup.
constexpr int kOldListsRefused = 3;

class Backoff {
 public:
  explicit Backoff(Clock& clock) : clock_(clock) {}
  Duration Next() {
    MonoTime now = clock_.Mono();
    if (now - last_ > pause_ + kForgetPauses) pause_ = kFirstPause;
    std::uniform_real_distribution<double> jitter(1.0, 2.0);
    Duration pause(static_cast<int64_t>(static_cast<double>(pause_.count()) * jitter(random_)));
    pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
    last_ = now + pause;
    return pause;
  }
  int64_t WatchSeconds() { return std::uniform_int_distribution<int64_t>(300, 600)(random_); }

 private:
  Clock& clock_;
  std::mt19937_64 random_{std::random_device()()};
  Duration pause_ = kFirstPause;
  MonoTime last_{};
};

}  // namespace

struct Reflector::Impl {
  enum class Next { kWatch, kList };

  Client& client;
  const Resource resource;
  const ListOptions scope;
  const Sink sink;
  Backoff backoff{client.clock()};
  std::atomic<bool> synced{false};
  std::string version{};  // of the last list or event
  int old_lists = 0;
  std::jthread thread{};  // last: it uses the others

  void Run(const std::stop_token& stop);
  Status List(const std::stop_token& stop);
  Next Watch(const std::stop_token& stop);
  Status OnLine(std::string_view line);
  Next Judge(const Result<HttpResponse>& result, const Status& event, Duration lasted, bool quiet, const std::stop_token& stop);
  void Pause(const Status& why, const std::stop_token& stop, Duration at_least = Duration(0));
  void Advance(const Json& object) {
    std::string now = GetString(object, {"metadata", "resourceVersion"});
    if (!now.empty() && !IsOlderVersion(now, version)) version = std::move(now);
  }
};

void Reflector::Impl::Pause(const Status& why, const std::stop_token& stop, Duration at_least) {
  Duration pause = std::max(backoff.Next(), at_least);
  LogWarning(
      "list or watch failed, trying again",
      {{"resource", resource.plural}, {"error", why.ToString()}, {"in_ms", std::chrono::duration_cast<milliseconds>(pause).count()}});
  client.clock().Sleep(pause, stop);
}

void Reflector::Impl::Run(const std::stop_token& stop) {
  Next next = Next::kList;
  while (!stop.stop_requested()) {
    if (next == Next::kWatch) {
      next = Watch(stop);
      continue;
    }
    Status status = List(stop);
    if (status.ok()) {
      next = Next::kWatch;
    } else if (!stop.stop_requested()) {
      Pause(status, stop);
    }
  }
}

Status Reflector::Impl::List(const std::stop_token& stop) {
  std::string listed;
  CallOptions options;
  options.timeout = kListTimeout;
  options.stop = stop;
  sink.list_restart();
  Status status = client.ListPages(
      resource, scope,
      [&](const ListPage& page) {
        listed = page.resource_version;
        for (const Json& item : page.items) sink.list_item(item);
      },
      sink.list_restart, options);
  if (status.ok() && listed.empty()) status = Status(Code::kUnavailable, "the list has no resourceVersion");
  bool older = status.ok() && IsOlderVersion(listed, version);
  if (older && ++old_lists <= kOldListsRefused) {
    status = Status(Code::kUnavailable, "a list of version " + listed + " is older than version " + version + ", which we saw already");
  }
  if (!status.ok()) {
    sink.list_restart();
    return status;
  }
  if (older) LogError("the API server's storage went back in time, following it", {{"resource", resource.plural}, {"version", listed}});
  old_lists = 0;
  version = listed;
  sink.list_done(listed, older);
  synced = true;
  return status;
}

// OK: go on. kGone and other codes are those of an ERROR event or of a line that is no event.
Status Reflector::Impl::OnLine(std::string_view line) {
  Result<Json> event = ParseJson(line);
  if (!event.ok()) return event.status().With("watch event");
  const std::string type = GetString(*event, {"type"});
  const Json& object = GetObject(*event, {"object"});
  if (type == "ERROR") return StatusFromApi(object, 0, "watch " + resource.plural);
  if (type == "ADDED" || type == "MODIFIED") {
    sink.upsert(object);
  } else if (type == "DELETED") {
    sink.remove(object);
  } else if (type != "BOOKMARK") {
    return {Code::kUnavailable, "watch event of unknown type \"" + type + "\""};
  }
  Advance(object);
  return Status::Ok();
}

Reflector::Impl::Next Reflector::Impl::Watch(const std::stop_token& stop) {
  HttpRequest request;
  request.path = resource.Path(scope.ns) + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + UrlEscape(version) +
                 "&timeoutSeconds=" + std::to_string(backoff.WatchSeconds());
  if (!scope.label_selector.empty()) request.path += "&labelSelector=" + UrlEscape(scope.label_selector);
  if (!scope.field_selector.empty()) request.path += "&fieldSelector=" + UrlEscape(scope.field_selector);
  request.headers["accept"] = "application/json";
  request.idle_timeout = kSilence;
  const MonoTime start = client.clock().Mono();
  WatchLines lines(kMaxEventBytes);
  Status event;
  bool quiet = true;
  auto on_line = [&](std::string_view line) {
    quiet = false;
    event = OnLine(line);
    return event.ok() && !stop.stop_requested();
  };
  auto on_chunk = [&](std::string_view chunk) { return lines.Feed(chunk, on_line); };
  Result<HttpResponse> result = client.transport().Stream(request, on_chunk, stop);
  if (lines.too_long()) event = Status(Code::kResourceExhausted, "watch event longer than " + std::to_string(kMaxEventBytes) + " bytes");
  return Judge(result, event, client.clock().Mono() - start, quiet, stop);
}

// Why did the watch end, and what comes next? Lists are dear, so they are only made when events may be missing.
Reflector::Impl::Next Reflector::Impl::Judge(const Result<HttpResponse>& result, const Status& event, Duration lasted, bool quiet,
                                             const std::stop_token& stop) {
  if (stop.stop_requested()) return Next::kWatch;
  if (!event.ok()) {
    // Expired: the usual case after a long silence. Pause only when it happens at once, again and again.
    if (event.code() != Code::kGone || lasted < kShortWatch) Pause(event, stop);
    return Next::kList;
  }
  if (!result.ok()) {
    if (result.status().code() == Code::kDeadlineExceeded) {  // a dead stream
      LogWarning("watch is dead, listing again", {{"resource", resource.plural}, {"error", result.status().ToString()}});
      return Next::kList;
    }
    if (lasted < kSteadyWatch || quiet) Pause(result.status(), stop);
    return Next::kWatch;
  }
  if (result->status >= 200 && result->status < 300) {
    if (lasted < kShortWatch && quiet) Pause(Status(Code::kUnavailable, "watch ended at once, without an event"), stop);
    return Next::kWatch;
  }
  Status refused = ApiError(*result, "watch " + resource.plural);
  switch (refused.code()) {
    case Code::kResourceExhausted:
    case Code::kUnavailable:
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      Pause(refused, stop, std::min<Duration>(RetryAfter(*result).value_or(Duration(0)), kLongestPause));
      return Next::kWatch;
    case Code::kGone:
      if (lasted < kShortWatch) Pause(refused, stop);
      return Next::kList;
    default:
      Pause(refused, stop);
      return Next::kList;
  }
}

Reflector::Reflector(Client& client, Resource resource, ListOptions scope, Sink sink)
    : impl_(new Impl{.client = client, .resource = std::move(resource), .scope = std::move(scope), .sink = std::move(sink)}) {}

Reflector::~Reflector() { Stop(); }

void Reflector::Start() {
  impl_->thread = std::jthread([impl = impl_.get()](const std::stop_token& stop) { impl->Run(stop); });
}

void Reflector::Stop() {
  if (!impl_->thread.joinable()) return;
  impl_->thread.request_stop();
  impl_->thread.join();
}

bool Reflector::synced() const { return impl_->synced; }

}  // namespace holdfast::kube
