// The life of a watch event: the API server writes one JSON line; the transport hands its bytes to WatchLines; the line is parsed on its
// own, its object goes to the sink, which keeps a projection, and the JSON is dropped. The version of each event is where the next watch
// starts. A WatchList is a watch that first sends everything there is as ADDED events, and then a bookmark; until that bookmark the events
// are a list that comes in, and afterwards the same stream goes on as a watch.
#include <algorithm>

#include "base/log.h"
#include "kube/metrics.h"
#include "kube/reflector_impl.h"
#include "kube/watch_lines.h"

namespace holdfast::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kShortWatch = seconds(1);   // a watch that ends so soon without an event is a failure
constexpr Duration kSteadyWatch = seconds(5);  // one that broke after this much is opened again at once
constexpr Duration kAnswerTimeout = seconds(60);
// The API server sends a bookmark about every minute. Where it sends none, a quiet resource costs one list in this time.
constexpr Duration kSilence = seconds(150);
constexpr size_t kMaxEventBytes = 32 << 20;
constexpr int64_t kMinWatchSeconds = 300;  // up to twice this, so that not all watches end at once
constexpr int kCutStreams = 3;             // so many WatchLists in a row may break off before LIST is tried
// A server that cannot stream lists is asked again after this: it may have been upgraded.
constexpr Duration kWatchListAgain = minutes(60);
constexpr char kInitialEventsEnd[] = "k8s.io/initial-events-end";

}  // namespace

std::string Reflector::Impl::WatchPath(bool initial_events) {
  const auto seconds = kMinWatchSeconds + static_cast<int64_t>(static_cast<double>(kMinWatchSeconds) * backoff.Random());
  return resource.Path(scope.ns) + UrlQuery({{"watch", "1"},
                                             {"allowWatchBookmarks", "true"},
                                             {"resourceVersion", initial_events ? list_version() : version},
                                             {"sendInitialEvents", initial_events ? "true" : ""},
                                             {"resourceVersionMatch", initial_events ? "NotOlderThan" : ""},
                                             {"timeoutSeconds", std::to_string(seconds)},
                                             {"labelSelector", scope.label_selector},
                                             {"fieldSelector", scope.field_selector}});
}

// Returns when the stream has ended.
Result<HttpResponse> Reflector::Impl::Open(Stream* stream, const std::stop_token& stop) {
  HttpRequest request;
  request.path = WatchPath(stream->staging);
  request.headers["accept"] = AcceptHeader(metadata_only(), /*list=*/false);
  // kube-apiserver 1.37 compresses the initial events of a WatchList; libcurl 7.88 ends such a stream with an error right behind them.
  request.headers["accept-encoding"] = "identity";
  request.timeout = kAnswerTimeout;
  request.idle_timeout = kSilence;
  stream->start = client.clock().Mono();
  WatchLines lines(kMaxEventBytes);
  auto on_line = [&](std::string_view line) { return OnLine(stream, line) && !stop.stop_requested(); };
  auto on_chunk = [&](std::string_view chunk) { return lines.Feed(chunk, on_line); };
  Result<HttpResponse> result = client.transport().Stream(request, on_chunk, stop);
  if (lines.too_long()) {
    stream->broken = Status(Code::kResourceExhausted, "watch event longer than " + std::to_string(kMaxEventBytes) + " bytes");
  }
  stream->lasted = client.clock().Mono() - stream->start;
  const bool opened = !stream->quiet || (result.ok() && result->status >= 200 && result->status < 300);
  if (metrics != nullptr && opened) metrics->Watch(stream->lasted, stream->events, stream->quiet && stream->lasted < kShortWatch, version);
  return result;
}

// False: the stream is of no more use, and stream->broken or stream->refusal says why.
bool Reflector::Impl::OnLine(Stream* stream, std::string_view line) {
  stream->quiet = false;
  if (stream->timer != nullptr) stream->timer->OnEvent();
  Result<Json> event = ParseJson(line);
  if (!event.ok()) {
    stream->broken = event.status().With("watch event");
    return false;
  }
  const std::string type = GetString(*event, {"type"});
  const Json& object = GetObject(*event, {"object"});
  if (type == "ERROR") {
    stream->refusal = Refusal::FromEvent(object, "watch " + resource.Path(""));
    return false;
  }
  stream->broken = OnEvent(stream, type, object);
  return stream->broken.ok();
}

Status Reflector::Impl::OnEvent(Stream* stream, const std::string& type, const Json& object) {
  const bool upsert = type == "ADDED" || type == "MODIFIED";
  const bool bookmark = type == "BOOKMARK";
  if (!upsert && !bookmark && type != "DELETED") return {Code::kUnavailable, "watch event of unknown type \"" + type + "\""};
  if (!IsOurs(object)) return Status::Ok();
  if (bookmark) return OnBookmark(stream, object);
  ++counters.events;
  ++stream->events;
  if (stream->staging) {
    // The initial events are in no order of versions, so none of them is where a watch could go on.
    ++list_items;
    (upsert ? sink.list_item : sink.list_remove)(object);
    return Status::Ok();
  }
  (upsert ? sink.upsert : sink.remove)(object);
  std::string now = GetString(object, {"metadata", "resourceVersion"});
  if (!now.empty() && !IsOlderVersion(now, version)) version = std::move(now);
  return Status::Ok();
}

Status Reflector::Impl::OnBookmark(Stream* stream, const Json& object) {
  std::string now = GetString(object, {"metadata", "resourceVersion"});
  if (stream->staging) {
    if (GetString(object, {"metadata", "annotations", kInitialEventsEnd}) != "true") return Status::Ok();
    if (now.empty()) return {Code::kUnavailable, "the bookmark that ends the initial events has no resourceVersion"};
    stream->timer->Done();
    stream->timer = nullptr;
    HF_RETURN_IF_ERROR(TakeOver(now));
    ++counters.watch_lists;
    stream->staging = false;
    return Status::Ok();
  }
  if (now.empty() || IsOlderVersion(now, version)) return Status::Ok();
  version = std::move(now);
  sink.bookmark(version);
  return Status::Ok();
}

Reflector::Impl::Next Reflector::Impl::Watch(const std::stop_token& stop) {
  Stream stream;
  Result<HttpResponse> result = Open(&stream, stop);
  return Judge(stream, result, stop);
}

Reflector::Impl::Next Reflector::Impl::WatchList(const std::stop_token& stop) {
  Restart();
  std::stop_source end;
  std::stop_callback passed_on(stop, [&] { end.request_stop(); });
  InitialEventsTimer timer(client.clock(), resource.plural, end);
  Stream stream{.staging = true, .timer = &timer};
  Result<HttpResponse> result = Open(&stream, end.get_token());
  timer.Done();
  if (!stream.staging) {
    cut_streams = 0;
    return Judge(stream, result, stop);
  }
  Restart();
  return JudgeStaging(stream, result, timer.gave_up(), stop);
}

// Why did the initial events not come to their end, and what comes next? The aim is to have a list soon, and not to ask a server that
// cannot stream it each time.
Reflector::Impl::Next Reflector::Impl::JudgeStaging(const Stream& stream, const Result<HttpResponse>& result, bool gave_up,
                                                    const std::stop_token& stop) {
  if (stop.stop_requested()) return Next::kList;
  auto unable = [&](const Status& why) {
    LogInfo("lists do not come as a stream, taking pages", {{"resource", resource.plural}, {"why", why.ToString()}});
    watch_list_from = client.clock().Mono() + kWatchListAgain;
    return Next::kPagedList;
  };
  auto again = [&](const Status& why) {
    if (++cut_streams >= kCutStreams) {
      cut_streams = 0;
      return Next::kPagedList;
    }
    Pause(why, stop);
    return Next::kList;
  };
  if (gave_up) return unable({Code::kDeadlineExceeded, "the initial events did not end"});
  const bool refused = stream.refusal || (result.ok() && (result->status < 200 || result->status > 299));
  if (!refused) {
    if (!stream.broken.ok()) return again(stream.broken);
    return again(result.ok() ? Status(Code::kUnavailable, "the stream ended before the initial events did") : result.status());
  }
  const Refusal refusal = stream.refusal ? *stream.refusal : Refusal::FromResponse(*result, "watch " + resource.Path(""));
  if (refusal.status.code() == Code::kResourceExhausted) {
    Pause(refusal.status, stop, refusal.retry_after);
    return Next::kList;
  }
  if ((refusal.expired() || refusal.version_too_large) && !list_version().empty()) {
    version_lost = true;
    return Next::kList;
  }
  if (refusal.code == 406 && metadata_only()) {
    whole_objects = true;
    return Next::kList;
  }
  // An ERROR event here is how a server says that its etcd cannot do it.
  if (stream.refusal || refusal.code == 400 || refusal.code == 422) return unable(refusal.status);
  return Next::kPagedList;
}

// Why did the watch end, and what comes next? Lists are dear, so they are only made when events may be missing.
Reflector::Impl::Next Reflector::Impl::Judge(const Stream& stream, const Result<HttpResponse>& result, const std::stop_token& stop) {
  if (stop.stop_requested()) return Next::kWatch;
  if (stream.refusal) return JudgeRefusal(stream, *stream.refusal, /*opened=*/true, stop);
  if (!stream.broken.ok()) {
    Pause(stream.broken, stop);
    return Next::kList;
  }
  if (!result.ok()) {
    if (result.status().code() == Code::kDeadlineExceeded) {  // a dead stream
      LogWarning("watch is dead, listing again", {{"resource", resource.plural}, {"error", result.status().ToString()}});
      return Next::kList;
    }
    if (stream.lasted < kSteadyWatch || stream.quiet) Pause(result.status(), stop);
    return Next::kWatch;
  }
  if (result->status >= 200 && result->status < 300) {
    if (stream.lasted < kShortWatch && stream.quiet) Pause({Code::kUnavailable, "watch ended at once, without an event"}, stop);
    return Next::kWatch;
  }
  return JudgeRefusal(stream, Refusal::FromResponse(*result, "watch " + resource.Path("")), /*opened=*/false, stop);
}

Reflector::Impl::Next Reflector::Impl::JudgeRefusal(const Stream& stream, const Refusal& refusal, bool opened,
                                                    const std::stop_token& stop) {
  if (refusal.expired()) {
    // The usual case after a long silence. Pause only when it happens at once, again and again.
    if (stream.lasted < kShortWatch) Pause(refusal.status, stop);
    return Next::kList;
  }
  if (refusal.code == 406 && metadata_only()) {
    whole_objects = true;
    return Next::kWatch;
  }
  bool rewatch = false;
  switch (refusal.status.code()) {
    case Code::kResourceExhausted:
      rewatch = true;
      break;
    case Code::kUnavailable:
      // An ERROR event may stand for an event that cannot be read (a corrupt object, deleted by force): only a list shows what is left.
      rewatch = !opened || (refusal.internal && internal_errors.ShouldRetry());
      break;
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      rewatch = !opened;
      break;
    default:
      break;
  }
  Pause(refusal.status, stop, refusal.retry_after);
  return rewatch ? Next::kWatch : Next::kList;
}

}  // namespace holdfast::kube
