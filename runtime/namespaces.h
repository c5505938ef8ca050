// Looking into, and changing, other namespaces from a single-threaded program.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// This thread stands in the namespace at `path` (/proc/PID/ns/net, /run/netns/…) until the object ends.
class InNamespace {
 public:
  // `type`: CLONE_NEWNET, CLONE_NEWUTS. kNotFound when the namespace is gone.
  static Result<InNamespace> Enter(const std::string& path, int type);
  InNamespace(InNamespace&& other) noexcept : back_(other.back_), type_(other.type_) { other.back_ = -1; }
  InNamespace& operator=(InNamespace&&) = delete;
  ~InNamespace();  // ends the process if there is no way back: going on in the wrong namespace would change the wrong machine

 private:
  InNamespace(int back, int type) : back_(back), type_(type) {}
  int back_, type_;
};

Result<std::string> HostnameIn(const std::string& uts_path);
Status SetHostnameIn(const std::string& uts_path, const std::string& hostname);
bool SameNamespace(const std::string& a, const std::string& b);

}  // namespace holdfast::runtime
