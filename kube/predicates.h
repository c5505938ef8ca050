// Which changes of an object are worth a reconcile. A predicate sees the object before (null: it is new) and after (null: it is gone).
#pragma once

#include <functional>
#include <utility>

namespace holdfast::kube {

template <class T>
using Predicate = std::function<bool(const T* old, const T* now)>;

// An update counts when `differs(before, after)`; coming and going always count.
template <class T, class Differs>
Predicate<T> OnUpdate(Differs differs) {
  return [differs](const T* old, const T* now) { return old == nullptr || now == nullptr || differs(*old, *now); };
}

// The spec changed, or a deletion began: not for what a controller writes to the status itself.
template <class T>
Predicate<T> GenerationChanged() {
  return OnUpdate<T>([](const T& a, const T& b) {
    return a.meta.generation != b.meta.generation || a.meta.uid != b.meta.uid || a.meta.terminating() != b.meta.terminating();
  });
}

template <class T>
Predicate<T> AllOf(Predicate<T> a, Predicate<T> b) {
  return [a = std::move(a), b = std::move(b)](const T* old, const T* now) { return a(old, now) && b(old, now); };
}

template <class T>
Predicate<T> AnyOf(Predicate<T> a, Predicate<T> b) {
  return [a = std::move(a), b = std::move(b)](const T* old, const T* now) { return a(old, now) || b(old, now); };
}

}  // namespace holdfast::kube
