// A folder of its own for a test, gone with the object.
#pragma once

#include <stdlib.h>

#include <string>

#include "base/file.h"

namespace holdfast::runtime {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/holdfast-test.XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() {
    Status removed = RemoveAll(path_);
    (void)removed;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace holdfast::runtime
