#include "tests/integration/controller/sieve_transport.h"

#include "kube/watch_lines.h"

namespace holdfast::testing {
namespace {

using kube::HttpRequest;
using kube::HttpResponse;
using std::chrono::milliseconds;

constexpr Duration kUntilExpired = milliseconds(500);
const Status kDead{Code::kUnavailable, "the replica was killed"};

bool IsWatch(const HttpRequest& request) { return request.path.find("watch=") != std::string::npos; }

// A GET of a collection, by its path: /api/v1/pods, /apis/g/v/pods, each also below namespaces/ns.
bool IsList(const HttpRequest& request) {
  if (request.method != "GET" || IsWatch(request)) return false;
  const std::string path = request.path.substr(0, request.path.find('?'));
  const bool core = path.starts_with("/api/v1/");
  if (!core && !path.starts_with("/apis/")) return false;
  const long parts = std::count(path.begin(), path.end(), '/') - (core ? 2 : 3);
  return parts == 1 || (parts == 3 && path.find("/namespaces/") != std::string::npos);
}

HttpResponse Answer(int status, const char* reason) {
  return {.status = status,
          .headers = {{"content-type", "application/json"}},
          .body = DumpJson({{"kind", "Status"}, {"status", "Failure"}, {"reason", reason}, {"code", status}, {"message", "disturbed"}})};
}

// The stop of either: the caller's, or our own.
class Either {
 public:
  Either(const std::stop_token& a, const std::stop_token& b)
      : first_(a, [this] { both_.request_stop(); }), second_(b, [this] { both_.request_stop(); }) {}
  std::stop_token token() const { return both_.get_token(); }
  void Stop() { both_.request_stop(); }

 private:
  std::stop_source both_;
  std::stop_callback<std::function<void()>> first_, second_;
};

}  // namespace

SieveTransport::SieveTransport(std::shared_ptr<kube::Transport> api_server, std::string ns, Disturbance disturbance)
    : api_server_(std::move(api_server)), ns_(std::move(ns)), disturbance_(std::move(disturbance)) {}

bool SieveTransport::Stale() {
  if (disturbance_.stale_version.empty()) return false;
  std::lock_guard lock(mutex_);
  const MonoTime now = Clock::Real().Mono();
  if (fresh_at_ == MonoTime()) fresh_at_ = now + disturbance_.stale_for;
  return now < fresh_at_;
}

bool SieveTransport::Foreign(const Json& object) const {
  const std::string ns = GetString(object, {"metadata", "namespace"});
  return ns.starts_with("test-") && ns != ns_;
}

std::string SieveTransport::Filtered(const std::string& list) const {
  auto json = ParseJson(list);
  if (!json.ok() || !json->contains("items")) return list;
  Json items = Json::array();
  for (Json& item : (*json)["items"]) {
    if (!Foreign(item)) items.push_back(std::move(item));
  }
  (*json)["items"] = std::move(items);
  return DumpJson(*json);
}

kube::HttpRequest SieveTransport::AsOf(const HttpRequest& request) const {
  HttpRequest past = request;
  past.path =
      request.path.substr(0, request.path.find('?')) + "?resourceVersion=" + disturbance_.stale_version + "&resourceVersionMatch=Exact";
  return past;
}

Result<HttpResponse> SieveTransport::List(const HttpRequest& request, std::stop_token stop) {
  const bool stale = Stale();
  auto answer = api_server_->Send(stale ? AsOf(request) : request, stop);
  if (answer.ok() && answer->status == 200) answer->body = Filtered(answer->body);
  return answer;
}

Result<HttpResponse> SieveTransport::Send(const HttpRequest& request, std::stop_token stop) {
  if (dead()) return kDead;
  Either either(stop, dead_.get_token());
  if (IsList(request)) return List(request, either.token());
  const bool counts = request.method != "GET" && request.path.find("/namespaces/" + ns_ + "/") != std::string::npos &&
                      request.path.find("/events") == std::string::npos && request.path.find("dryRun=") == std::string::npos &&
                      request.body.find("\"dryRun\"") == std::string::npos;
  auto answer = api_server_->Send(request, either.token());
  if (!counts || !answer.ok() || answer->status / 100 != 2) return answer;
  if (++writes_ != disturbance_.die_after_write) return answer;
  dead_.request_stop();
  return kDead;
}

Result<HttpResponse> SieveTransport::Watch(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                           std::stop_token stop) {
  // A server that is behind cannot stream a list of the past.
  if (!disturbance_.stale_version.empty() && request.path.find("sendInitialEvents") != std::string::npos) return Answer(422, "Invalid");
  const MonoTime start = Clock::Real().Mono();
  Either either(stop, dead_.get_token());
  while (Stale() && Clock::Real().Sleep(milliseconds(20), either.token())) {
    if (Clock::Real().Mono() - start > disturbance_.stale_for) break;
  }
  kube::WatchLines lines(32 << 20);
  std::atomic<bool> lost = false;
  std::jthread expiry;
  bool wants_more = true;
  auto on_line = [&](std::string_view line) {
    auto event = ParseJson(line);
    const bool bookmark = event.ok() && GetString(*event, {"type"}) == "BOOKMARK";
    if (lost) return true;  // what follows comes with the list
    if (event.ok() && !bookmark && Foreign(GetObject(*event, {"object"}))) return true;
    const bool counts = event.ok() && !bookmark && GetString(*event, {"object", "metadata", "namespace"}) == ns_;
    if (counts && ++events_ == disturbance_.lose_event) {
      lost = true;
      expiry = std::jthread([&] {
        Clock::Real().Sleep(kUntilExpired, either.token());
        either.Stop();
      });
      return true;
    }
    wants_more = on_chunk(std::string(line) + "\n");
    return wants_more;
  };
  auto result = api_server_->Stream(
      request, [&](std::string_view chunk) { return lines.Feed(chunk, on_line); }, either.token());
  if (dead()) return kDead;
  if (lost && !stop.stop_requested()) {
    on_chunk(DumpJson({{"type", "ERROR"}, {"object", *ParseJson(Answer(410, "Expired").body)}}) + "\n");
    return HttpResponse{.status = 200};
  }
  return result;
}

Result<HttpResponse> SieveTransport::Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                            std::stop_token stop) {
  if (dead()) return kDead;
  if (IsWatch(request)) return Watch(request, on_chunk, stop);
  Either either(stop, dead_.get_token());
  auto answer = List(request, either.token());
  if (!answer.ok() || answer->status != 200) return answer;
  on_chunk(answer->body);
  answer->body.clear();
  return answer;
}

}  // namespace holdfast::testing
