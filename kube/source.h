// Feeds a controller from an informer: which changes count, and which keys they mean.
#pragma once

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
};

// Registers a handler, so before the informer starts; the informer is not started or stopped by it, and may feed several controllers.
// `controller` outlives the informer's run. Keys of the first list, and of resyncs, have kLowPriority.
// (An Informer is what has AddHandler, synced and WaitForSync as kube/informer.h has them.)
template <class Informer, class T = std::remove_const_t<typename Informer::Ptr::element_type>>
Source Watch(Informer& informer, Controller& controller, WatchOptions<T> options = {}) {
  informer.AddHandler([&informer, &controller, options](const std::shared_ptr<const T>& old, const std::shared_ptr<const T>& now) {
    if (options.when && !options.when(old.get(), now.get())) return;
    const bool news = informer.synced() && old != now;
    auto enqueue = [&](const T& object) {
      if (!options.keys) return controller.Enqueue(object.meta.Key(), news ? 0 : kLowPriority);
      for (const std::string& key : options.keys(object)) controller.Enqueue(key, news ? 0 : kLowPriority);
    };
    // Who was meant before the change may be somebody else than after it.
    if (old && old != now && options.keys) enqueue(*old);
    if (now) {
      enqueue(*now);
    } else if (old && !options.keys) {
      enqueue(*old);
    }
  });
  return {.name = T::kResource.plural,
          .wait_for_sync = [&informer](Duration limit, std::stop_token stop) { return informer.WaitForSync(limit, std::move(stop)); }};
}

}  // namespace holdfast::kube
