// Builds RFC 6902 patches. A patch is all or nothing: when a Test does not hold, the API server changes nothing and answers 422, which is
// Code::kInvalidArgument.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace holdfast::kube {

// One token of a JSON pointer (RFC 6901): "a/b~c" → "a~1b~0c".
std::string EscapePointer(std::string_view token);

class JsonPatch {
 public:
  JsonPatch& Test(const std::string& path, Json value) { return Push("test", path, std::move(value)); }
  JsonPatch& Add(const std::string& path, Json value) { return Push("add", path, std::move(value)); }
  JsonPatch& Replace(const std::string& path, Json value) { return Push("replace", path, std::move(value)); }
  JsonPatch& Remove(const std::string& path) {
    json_.push_back({{"op", "remove"}, {"path", path}});
    return *this;
  }
  bool empty() const { return json_.empty(); }
  const Json& json() const { return json_; }

 private:
  JsonPatch& Push(const char* op, const std::string& path, Json value) {
    json_.push_back({{"op", op}, {"path", path}, {"value", std::move(value)}});
    return *this;
  }
  Json json_ = Json::array();
};

}  // namespace holdfast::kube
