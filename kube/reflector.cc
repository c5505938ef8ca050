// Lists, and what happens after failures. The first list is a quorum read (no resourceVersion), so that a restarted controller cannot see
// less than it has already acted upon; later ones ask for at least the last version, which the server answers from memory.
#include "kube/reflector.h"

#include <algorithm>

#include "base/log.h"
#include "kube/metrics.h"
#include "kube/reflector_impl.h"

namespace holdfast::kube {
namespace {

// An older list than what we saw is refused so often: then the server's storage was restored from a backup.
constexpr int kOldListsRefused = 3;
constexpr Duration kLongestRetryAfter = std::chrono::seconds(30);

}  // namespace

Reflector::Impl::Impl(Client& client, Resource resource, ListOptions scope, Sink sink, ReflectorOptions options)
    : client(client),
      resource(std::move(resource)),
      scope(std::move(scope)),
      sink(std::move(sink)),
      options(std::move(options)),
      metrics(client.metrics() != nullptr ? &client.metrics()->Reflector(this->resource.plural) : nullptr),
      backoff(client.clock(), this->options.random ? this->options.random : MakeRandom()),
      internal_errors(client.clock(), this->options.internal_error_retry),
      watch_list_from(client.clock().Mono()) {}

void Reflector::Impl::Run(const std::stop_token& stop) {
  for (Next next = Next::kList; !stop.stop_requested();) {
    switch (next) {
      case Next::kWatch:
        next = Watch(stop);
        break;
      case Next::kList:
        next = options.watch_list && client.clock().Mono() >= watch_list_from ? WatchList(stop) : Next::kPagedList;
        break;
      case Next::kPagedList:
        next = List(stop);
        break;
    }
  }
}

void Reflector::Impl::Pause(const Status& why, const std::stop_token& stop, Duration at_least) {
  if (stop.stop_requested()) return;
  Duration pause = std::max(backoff.Next(), std::min<Duration>(at_least, kLongestRetryAfter));
  LogWarning("list or watch failed, trying again",
             {{"resource", resource.plural}, {"error", why.ToString()}, {"in_ms", pause / std::chrono::milliseconds(1)}});
  client.clock().Sleep(pause, stop);
}

const std::string& Reflector::Impl::list_version() const {
  static const std::string kNewest;
  return version_lost ? kNewest : version;
}

Reflector::Impl::Next Reflector::Impl::List(const std::stop_token& stop) {
  ListEnd end = ListPages(stop);
  if (end.status.ok()) end.status = TakeOver(end.version);
  if (end.status.ok()) return Next::kWatch;
  Restart();
  Pause(end.status, stop, end.refusal.retry_after);
  return Next::kList;
}

ListEnd Reflector::Impl::ListPages(const std::stop_token& stop) {
  const ListCalls calls{.on_item =
                            [this](const Json& item) {
                              if (!IsOurs(item)) return;
                              ++list_items;
                              sink.list_item(item);
                            },
                        .on_restart = [this] { Restart(); }};
  for (;;) {
    Restart();
    ListSpec spec{.resource = resource, .scope = scope, .version = list_version(), .metadata_only = metadata_only()};
    // Only a request without a limit is answered from the server's memory; items come one by one anyway.
    spec.page_size = spec.version.empty() ? options.page_size : 0;
    ListEnd end = StreamList(client, spec, calls, stop);
    if ((end.refusal.expired() || end.refusal.version_too_large) && !spec.version.empty()) {
      version_lost = true;
      continue;
    }
    if (end.refusal.code == 406 && spec.metadata_only) {
      LogInfo("the server does not send metadata alone, taking whole objects", {{"resource", resource.plural}});
      whole_objects = true;
      continue;
    }
    return end;
  }
}

void Reflector::Impl::Restart() {
  list_items = 0;
  list_start = client.clock().Mono();
  sink.list_restart();
}

// The items of a whole list are with the sink: makes them what everybody sees, unless the list is from the past.
Status Reflector::Impl::TakeOver(const std::string& listed) {
  const bool older = IsOlderVersion(listed, version);
  if (older && ++old_lists <= kOldListsRefused) {
    return {Code::kUnavailable, "a list of version " + listed + " is older than version " + version + ", which we saw already"};
  }
  if (older) LogError("the API server's storage went back in time, following it", {{"resource", resource.plural}, {"version", listed}});
  old_lists = 0;
  version = listed;
  version_lost = false;
  ++counters.lists;
  if (metrics != nullptr) metrics->List(client.clock().Mono() - list_start, list_items, version);
  sink.list_done(listed, older);
  synced = true;
  return Status::Ok();
}

// Lists of built-in kinds leave the kind of their items out.
bool Reflector::Impl::IsOurs(const Json& object) {
  const std::string kind = GetString(object, {"kind"});
  if (kind.empty() || kind == resource.kind || (options.metadata_only && kind == "PartialObjectMetadata")) return true;
  const uint64_t skipped = ++counters.skipped;
  if ((skipped & (skipped - 1)) == 0) {  // a server that sends nothing else must not fill the log
    LogError("an object of another kind was skipped", {{"resource", resource.plural}, {"kind", kind}, {"skipped", skipped}});
  }
  return false;
}

Reflector::Reflector(Client& client, Resource resource, ListOptions scope, Sink sink, ReflectorOptions options)
    : impl_(std::make_unique<Impl>(client, std::move(resource), std::move(scope), std::move(sink), std::move(options))) {}

Reflector::~Reflector() { Stop(); }

void Reflector::Start() {
  if (impl_->thread.joinable()) return;
  impl_->thread = Thread([impl = impl_.get()](const std::stop_token& stop) { impl->Run(stop); });
}

void Reflector::Stop() {
  if (!impl_->thread.joinable()) return;
  impl_->thread.request_stop();
  impl_->thread.join();
}

bool Reflector::synced() const { return impl_->synced; }

ReflectorStats Reflector::stats() const {
  const Impl::Counters& counters = impl_->counters;
  return {.lists = counters.lists, .watch_lists = counters.watch_lists, .events = counters.events, .skipped = counters.skipped};
}

}  // namespace holdfast::kube
