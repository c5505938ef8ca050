// {"object": an object, "key": a key of any bytes, "value": anything}: a patch that JsonPatch builds does to that key what it says, and to
// nothing else, and does nothing at all when its Test does not hold.
#include "kube/json_patch.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

namespace {

// Nothing when the patch does not apply.
std::optional<Json> Apply(const kube::JsonPatch& patch, const Json& to) {
  try {
    return to.patch(patch.json());
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void Expect(bool holds, const char* what, const kube::JsonPatch& patch) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, DumpJson(patch.json()).c_str());
  __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = ParseJson({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const Json object = {{"metadata", GetObject(*json, {"object"})}};
  const std::string key = GetString(*json, {"key"}), path = "/metadata/" + kube::EscapePointer(key);
  const Json* given = Find(*json, {"value"});
  const Json value = given == nullptr ? Json() : *given;
  const Json& inside = object["metadata"];
  const bool there = inside.contains(key);
  const Json before = there ? inside[key] : Json();

  Json added = object;
  added["metadata"][key] = value;
  const kube::JsonPatch add = kube::JsonPatch().Add(path, value);
  Expect(Apply(add, object) == added, "Add", add);
  Expect(!add.empty() && Json::parse(DumpJson(add.json())).size() == 1, "what is sent", add);

  const kube::JsonPatch replace = kube::JsonPatch().Test(path, before).Replace(path, value);
  Expect(Apply(replace, object) == (there ? std::optional(added) : std::nullopt), "Replace", replace);

  Json removed = object;
  removed["metadata"].erase(key);
  const kube::JsonPatch remove = kube::JsonPatch().Test("/metadata", inside).Remove(path);
  Expect(Apply(remove, object) == (there ? std::optional(removed) : std::nullopt), "Remove", remove);

  if (there && value != before) {
    const kube::JsonPatch stale = kube::JsonPatch().Test(path, value).Remove(path);
    Expect(Apply(stale, object) == std::nullopt, "a Test that does not hold", stale);
  }
  return 0;
}
