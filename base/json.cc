#include "base/json.h"

namespace holdfast {

namespace {

constexpr int kMaxDepth = 128;

// Counted beforehand: nlohmann's parser callback, which could count it on the way, makes long arrays take quadratic time.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  if (TooDeep(text)) return Status(Code::kInvalidArgument, "JSON nested deeper than 128 levels");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& e) {
    return Status(Code::kInvalidArgument, std::string("not JSON: ") + e.what());
  }
}

std::string DumpJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const Json* Find(const Json& json, JsonPath path) {
  const Json* at = &json;
  for (std::string_view key : path) {
    if (!at->is_object()) return nullptr;
    auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string GetString(const Json& json, JsonPath path, std::string_view otherwise) {
  const Json* at = Find(json, path);
  return at != nullptr && at->is_string() ? at->get<std::string>() : std::string(otherwise);
}

int64_t GetInt(const Json& json, JsonPath path, int64_t otherwise) {
  const Json* at = Find(json, path);
  return at != nullptr && at->is_number_integer() ? at->get<int64_t>() : otherwise;
}

double GetDouble(const Json& json, JsonPath path, double otherwise) {
  const Json* at = Find(json, path);
  return at != nullptr && at->is_number() ? at->get<double>() : otherwise;
}

bool GetBool(const Json& json, JsonPath path, bool otherwise) {
  const Json* at = Find(json, path);
  return at != nullptr && at->is_boolean() ? at->get<bool>() : otherwise;
}

const Json& GetArray(const Json& json, JsonPath path) {
  static const Json kEmpty = Json::array();
  const Json* at = Find(json, path);
  return at != nullptr && at->is_array() ? *at : kEmpty;
}

const Json& GetObject(const Json& json, JsonPath path) {
  static const Json kEmpty = Json::object();
  const Json* at = Find(json, path);
  return at != nullptr && at->is_object() ? *at : kEmpty;
}

}  // namespace holdfast
