#include "tests/sim/wire.h"

#include <algorithm>

#include "kube/server_time.h"

namespace holdfast::sim {
namespace {

using kube::HttpRequest;
using kube::HttpResponse;

constexpr Duration kBookmarkEvery = std::chrono::seconds(60);

std::string Line(const char* type, const Json& object) { return DumpJson({{"type", type}, {"object", object}}) + "\n"; }

Status NoAnswer() { return {Code::kUnavailable, "the network is down"}; }

}  // namespace

Result<HttpResponse> Wire::Send(const HttpRequest& request, std::stop_token stop) {
  if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
  if (before_send && Open()) before_send();
  if (!Open() || turns_.random().Chance(weather_.lost_requests)) return NoAnswer();
  HttpResponse response = server_.Handle(request, user_);
  response.headers["date"] = kube::HttpDate(turns_.Wall());
  if (!Open() || turns_.random().Chance(weather_.lost_answers)) return NoAnswer();
  return response;
}

Result<HttpResponse> Wire::Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk, std::stop_token stop) {
  if (request.path.find("watch=1") == std::string::npos) {
    Result<HttpResponse> answer = Send(request, stop);
    if (!answer.ok() || answer->status > 299) return answer;
    on_chunk(std::exchange(answer->body, ""));
    return answer;
  }
  const std::optional<ApiServer::Target> target = ApiServer::Parse(request.path);
  if (!target || !Open()) return NoAnswer();
  if (target->query.contains("sendInitialEvents")) return HttpResponse{.status = 422, .body = R"({"kind":"Status","code":422})"};
  return Watch(*target, on_chunk, stop);
}

Result<HttpResponse> Wire::Watch(const ApiServer::Target& target, const std::function<bool(std::string_view)>& on_chunk,
                                 const std::stop_token& stop) {
  auto query = [&](const char* name) {
    const auto found = target.query.find(name);
    return found == target.query.end() ? std::string() : found->second;
  };
  const std::string selector = query("fieldSelector");
  int64_t version = std::stoll(query("resourceVersion"));
  const MonoTime end = turns_.Mono() + std::chrono::seconds(std::stoll(query("timeoutSeconds")));
  MonoTime bookmark = turns_.Mono() + kBookmarkEvery;
  const std::deque<ApiServer::Change>& changes = server_.Changes(target.collection);
  // The first that it has not seen, by its number since the start.
  auto first = [&] {
    const auto at =
        std::upper_bound(changes.begin(), changes.end(), version, [](int64_t v, const ApiServer::Change& c) { return v < c.version; });
    return at - changes.begin() + server_.FirstChange(target.collection);
  };
  int64_t next = version < server_.oldest_version(target.collection) ? -1 : first();
  for (;;) {
    if (next < server_.FirstChange(target.collection)) {
      on_chunk(Line("ERROR", {{"kind", "Status"}, {"apiVersion", "v1"}, {"code", 410}, {"reason", "Expired"}, {"message", "too old"}}));
      return HttpResponse{.status = 200};
    }
    auto begin = [&] { return static_cast<size_t>(std::max<int64_t>(next - server_.FirstChange(target.collection), 0)); };
    auto waits = [&] { return begin() < changes.size(); };
    (void)turns_.Await([&] { return waits() || !Open(); }, std::min(end, bookmark), stop);
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    if (!Open() || turns_.random().Chance(weather_.broken_watches)) return NoAnswer();
    if (turns_.Mono() >= end) return HttpResponse{.status = 200};
    if (!waits()) {
      version = std::max(version, server_.version());
      if (!on_chunk(Line("BOOKMARK", {{"kind", "Bookmark"}, {"metadata", {{"resourceVersion", std::to_string(version)}}}})))
        return HttpResponse{.status = 200};
      bookmark = turns_.Mono() + kBookmarkEvery;
      continue;
    }
    // News is late; what happens meanwhile comes with it.
    turns_.Pause(std::max<Duration>(turns_.random().Between(weather_.least_lag, weather_.most_lag), deaf_until_ - turns_.Mono()));
    for (const MonoTime now = turns_.Mono(); Open() && waits() && next >= server_.FirstChange(target.collection);) {
      const ApiServer::Change change = changes[begin()];
      if (change.at > now) break;
      ++next;
      version = change.version;
      const bool was = change.before && Selected(*change.before, selector);
      const bool is = std::string_view(change.type) != "DELETED" && Selected(*change.now, selector);
      if (!was && !is) continue;
      if (!target.ns.empty() && GetString(*change.now, {"metadata", "namespace"}) != target.ns) continue;
      if (!on_chunk(Line(!was ? "ADDED" : is ? "MODIFIED" : "DELETED", *change.now))) return HttpResponse{.status = 200};
      if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    }
  }
}

}  // namespace holdfast::sim
