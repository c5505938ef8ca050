// Feeds a controller from an informer: which changes count, and which keys they mean.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kube/controller.h"
#include "kube/predicates.h"

namespace holdfast::kube {

template <class T>
struct WatchOptions {
  Predicate<T> when{};                                       // unset: every change
  std::function<std::vector<std::string>(const T&)> keys{};  // of the object before and after the change; unset: its own key
  Duration after{0};                                         // reconciled so much later, so that a burst of changes is one reconcile
  bool changes_only = false;                                 // what is there at the start, another watch of the controller hands over
};

// Registers a handler, so before the informer starts; the informer is not started or stopped by it, and may feed several controllers.
// `controller` outlives the informer's run. Nothing is enqueued before the source starts, so the queue of a controller that waits for its
// lease stays empty: the start hands over what the cache has then. Those keys, and keys of resyncs, have kLowPriority.
// (An Informer is what has AddHandler, List, synced, WaitForSync and WaitFor as kube/informer.h has them.)
template <class Informer, class T = std::remove_const_t<typename Informer::Ptr::element_type>>
Source Watch(Informer& informer, Controller& controller, WatchOptions<T> options = {}) {
  auto enqueue = [&controller, options](const T& object, int priority) {
    auto add = [&](const std::string& key) {
      if (options.after > Duration(0)) return controller.EnqueueAfter(key, options.after);
      controller.Enqueue(key, priority);
    };
    if (!options.keys) return add(object.meta.Key());
    for (const std::string& key : options.keys(object)) add(key);
  };
  auto started = std::make_shared<std::atomic<bool>>(false);
  informer.AddHandler([&informer, enqueue, options, started](const std::shared_ptr<const T>& old, const std::shared_ptr<const T>& now) {
    const bool synced = informer.synced();
    if (!*started || (options.changes_only && !synced)) return;
    if (options.when && !options.when(old.get(), now.get())) return;
    const int priority = synced && old != now ? 0 : kLowPriority;
    // Who was meant before the change may be somebody else than after it.
    if (old && old != now && options.keys) enqueue(*old, priority);
    if (now) {
      enqueue(*now, priority);
    } else if (old && !options.keys) {
      enqueue(*old, priority);
    }
  });
  Source source;
  source.name = T::kResource.plural;
  source.start = [&informer, enqueue, options, started](std::stop_token) {
    *started = true;  // first: a change from here on is heard, one before is in the cache
    if (options.changes_only) return Status::Ok();
    for (const auto& object : informer.List()) {
      if (!options.when || options.when(nullptr, object.get())) enqueue(*object, kLowPriority);
    }
    return Status::Ok();
  };
  source.wait_for_sync = [&informer](Duration limit, std::stop_token stop) { return informer.WaitForSync(limit, std::move(stop)); };
  source.collection = T::kResource.Path("");
  source.wait_for_version = [&informer](const std::string& version, Duration limit, std::stop_token stop) {
    return informer.WaitFor(version, limit, std::move(stop));
  };
  return source;
}

}  // namespace holdfast::kube
