// Safe reading of JSON that others wrote. nlohmann::json throws on a wrong type; these return a default instead, so that hostile input
// never ends a process. Paths are given key by key: GetString(pod, {"metadata", "name"}).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace holdfast {

using Json = nlohmann::json;
using JsonPath = std::initializer_list<std::string_view>;

// kInvalidArgument with the position. Depth is bounded (128).
Result<Json> ParseJson(std::string_view text);
std::string DumpJson(const Json& json);  // compact; invalid UTF-8 is replaced

// The value at `path`, or nullptr when a step is missing or not an object.
const Json* Find(const Json& json, JsonPath path);
std::string GetString(const Json& json, JsonPath path, std::string_view otherwise = "");
int64_t GetInt(const Json& json, JsonPath path, int64_t otherwise = 0);
double GetDouble(const Json& json, JsonPath path, double otherwise = 0);
bool GetBool(const Json& json, JsonPath path, bool otherwise = false);
// The array or object at `path`, or an empty one: `for (const Json& c : GetArray(pod, {"spec", "containers"}))`.
const Json& GetArray(const Json& json, JsonPath path);
const Json& GetObject(const Json& json, JsonPath path);

}  // namespace holdfast
