// The store as the controller knows it: it forgets what it is told to forget, is as full as it is told to be, has some manifests, and of
// these some are damaged.
#pragma once

#include <httplib.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/json.h"

namespace holdfast::testing {

class FakeStore {
 public:
  static constexpr int64_t kBytes = 1 << 20;  // of each checkpoint; there is room for 100

  FakeStore();
  ~FakeStore();
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  bool Deleted(const std::string& id) const;
  std::set<std::string> Deleted() const;
  void Hold(int64_t checkpoints);
  void Has(const std::string& id, const std::string& ns, const std::string& name);
  void Up(bool up);  // whether it answers about manifests
  void Damaged(const std::string& id, bool damaged);

 private:
  httplib::Server server_;
  int port_ = 0;
  mutable std::mutex mutex_;
  bool up_ = true;
  int64_t live_ = 0;
  std::map<std::string, Json> manifests_;
  std::set<std::string> damaged_, deleted_;
  std::thread thread_;
};

}  // namespace holdfast::testing
