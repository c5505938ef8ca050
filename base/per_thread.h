// Thread-local pointers that whoever runs several Threads (base/thread.h) on one of the system's can take along from one to the next.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace holdfast {

inline constexpr size_t kMostPerThread = 8;
// What all PerThreads say on this thread.
inline thread_local std::array<const void*, kMostPerThread> t_per_thread{};

inline std::atomic<size_t> per_thread_slots = 0;  // taken

// A pointer that every thread has its own of, null at first; for `static` ones alone, at most kMostPerThread of them.
template <class T>
class PerThread {
 public:
  T* get() const { return const_cast<T*>(static_cast<const T*>(t_per_thread[slot_])); }
  void set(T* value) const { t_per_thread[slot_] = value; }

 private:
  const size_t slot_ = per_thread_slots++;  // each object is a slot
};

}  // namespace holdfast
