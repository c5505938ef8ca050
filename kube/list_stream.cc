#include "kube/list_stream.h"

#include "kube/list_cutter.h"

namespace holdfast::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kIdleTimeout = seconds(30);
constexpr Duration kPageTimeout = minutes(5);  // of one answer, however steadily it trickles in
constexpr int kPageTries = 3;
constexpr Duration kPagePause = seconds(1);
constexpr Duration kLongestRetryAfter = seconds(30);

struct Page {
  Status status;
  Refusal refusal{};
  std::string version, next;  // next: the continue token
};

// Whether the same page may come if it is asked for again.
bool WorthAnotherTry(const Page& page) {
  if (page.refusal.version_too_large) return false;
  return page.status.code() == Code::kUnavailable || page.status.code() == Code::kResourceExhausted ||
         page.status.code() == Code::kDeadlineExceeded;
}

class Lister {
 public:
  Lister(Client& client, const ListSpec& spec, const ListCalls& calls, std::stop_token stop)
      : client_(client), spec_(spec), calls_(calls), stop_(std::move(stop)) {}

  ListEnd Run() {
    ListEnd end;
    std::string token;
    bool whole = false;  // a list without pages cannot lose its snapshot
    for (;;) {
      Page page = ReadWithRetries(whole ? 0 : spec_.page_size, token);
      if (page.refusal.expired() && !token.empty() && !whole) {
        whole = true;
        calls_.on_restart();
        end.version.clear();
        token.clear();
        continue;
      }
      if (!page.status.ok()) return {.status = page.status, .refusal = page.refusal};
      if (end.version.empty()) end.version = page.version;
      if (page.next.empty()) return end;
      if (page.next == token) return {.status = {Code::kUnavailable, What() + ": the server sends the same page again and again"}};
      token = page.next;
    }
  }

 private:
  std::string What() const { return "list " + spec_.resource.Path(""); }

  Page ReadWithRetries(int page_size, const std::string& token) {
    for (int tries = 1;; ++tries) {
      Page page = Read(page_size, token);
      // The first page costs nothing to give up: whoever called waits and starts over.
      if (page.status.ok() || token.empty() || tries == kPageTries || !WorthAnotherTry(page)) return page;
      Duration pause = std::clamp<Duration>(page.refusal.retry_after, kPagePause, kLongestRetryAfter);
      if (!client_.clock().Sleep(pause, stop_)) return {.status = {Code::kCancelled, What() + ": cancelled"}};
    }
  }

  HttpRequest Request(int page_size, const std::string& token) const {
    HttpRequest request;
    // A continue token knows its version; the server refuses a request that names both.
    request.path = spec_.resource.Path(spec_.scope.ns) + UrlQuery({{"labelSelector", spec_.scope.label_selector},
                                                                   {"fieldSelector", spec_.scope.field_selector},
                                                                   {"limit", page_size > 0 ? std::to_string(page_size) : ""},
                                                                   {"continue", token},
                                                                   {"resourceVersion", token.empty() ? spec_.version : ""}});
    request.headers["accept"] = AcceptHeader(spec_.metadata_only, /*list=*/true);
    request.timeout = spec_.timeout;
    request.idle_timeout = kIdleTimeout;
    return request;
  }

  Page Read(int page_size, const std::string& token) {
    const MonoTime deadline = client_.clock().Mono() + kPageTimeout;
    ListCutter cutter;
    Status broken;
    auto on_item = [&](std::string_view text) {
      Result<Json> item = ParseJson(text);
      if (!item.ok()) return item.status();
      calls_.on_item(*item);
      return Status::Ok();
    };
    auto on_chunk = [&](std::string_view chunk) {
      broken = cutter.Feed(chunk, on_item);
      if (broken.ok() && client_.clock().Mono() > deadline) {
        broken = Status(Code::kDeadlineExceeded, "the answer takes longer than " + std::to_string(kPageTimeout / minutes(1)) + " minutes");
      }
      return broken.ok() && !stop_.stop_requested();
    };
    Result<HttpResponse> answer = client_.transport().Stream(Request(page_size, token), on_chunk, stop_);
    if (stop_.stop_requested()) return {.status = {Code::kCancelled, What() + ": cancelled"}};
    if (!broken.ok()) return {.status = Status(Code::kUnavailable, broken.message()).With(What())};
    if (!answer.ok()) return {.status = answer.status()};
    if (answer->status < 200 || answer->status > 299) {
      Refusal refusal = Refusal::FromResponse(*answer, What());
      return {.status = refusal.status, .refusal = refusal};
    }
    return ReadEnd(cutter);
  }

  Page ReadEnd(const ListCutter& cutter) const {
    Result<Json> rest = cutter.Finish();
    if (!rest.ok()) return {.status = Status(Code::kUnavailable, rest.status().message()).With(What())};
    // Go writes an empty slice that was never made as null.
    const Json* items = Find(*rest, {"items"});
    if (GetString(*rest, {"kind"}) == "Table" || (!cutter.has_items() && (items == nullptr || !items->is_null()))) {
      return {.status = {Code::kUnavailable, What() + ": the answer is no list but a " + GetString(*rest, {"kind"}, "thing without kind")}};
    }
    Page page{.status = Status::Ok(),
              .version = GetString(*rest, {"metadata", "resourceVersion"}),
              .next = GetString(*rest, {"metadata", "continue"})};
    if (page.version.empty()) page.status = Status(Code::kUnavailable, What() + ": the list has no resourceVersion");
    return page;
  }

  Client& client_;
  const ListSpec& spec_;
  const ListCalls& calls_;
  const std::stop_token stop_;
};

}  // namespace

std::string AcceptHeader(bool metadata_only, bool list) {
  if (!metadata_only) return "application/json";
  // A server that cannot reduce the objects sends them whole.
  return std::string("application/json;as=PartialObjectMetadata") + (list ? "List" : "") + ";g=meta.k8s.io;v=v1,application/json";
}

ListEnd StreamList(Client& client, const ListSpec& spec, const ListCalls& calls, std::stop_token stop) {
  return Lister(client, spec, calls, std::move(stop)).Run();
}

}  // namespace holdfast::kube
