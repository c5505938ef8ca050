// What the store tells Prometheus, in its text format.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "storage/local_store.h"

namespace holdfast::storage {

// Thread-safe.
class Metrics {
 public:
  void Request(const std::string& operation, Code code, double seconds);
  void Bytes(uint64_t received, uint64_t sent);
  std::string Render(const StoreUsage& usage) const;

 private:
  struct Operation {
    std::map<std::string, uint64_t> by_code;
    uint64_t count = 0;
    double seconds = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Operation> operations_;  // as many as there are routes
  uint64_t received_ = 0, sent_ = 0;
};

}  // namespace holdfast::storage
