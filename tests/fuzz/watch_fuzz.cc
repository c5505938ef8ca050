// A watch's byte stream, in pieces of the size that the first byte says: lines, events, and every kind that is read from them.
#include "api/checkpoint.h"
#include "api/restore_policy.h"
#include "kube/api_error.h"
#include "kube/objects.h"
#include "kube/watch_lines.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 64;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  kube::WatchLines lines(4096);
  size_t fed = 0, seen = 0;
  auto on_line = [&](std::string_view line) {
    seen += line.size() + 1;
    auto event = ParseJson(line);
    if (!event.ok()) return true;
    const Json& object = GetObject(*event, {"object"});
    (void)kube::StatusFromApi(object, 0, "watch").ToString();
    const auto pod = kube::Pod::FromJson(object);
    (void)pod.meta.Key();
    (void)kube::Node::FromJson(object);
    (void)kube::StatefulSet::FromJson(object);
    (void)kube::Job::FromJson(object);
    (void)kube::Secret::FromJson(object);
    (void)api::RestorePolicy::FromJson(object);
    const auto checkpoint = api::Checkpoint::FromJson(object);
    (void)DumpJson(api::PhasePatch(checkpoint, api::Phase::kFailed, "Deadline", "late", WallTime()));
    return true;
  };
  while (!rest.empty()) {
    const std::string_view chunk = rest.substr(0, piece);
    fed += chunk.size();
    if (!lines.Feed(chunk, on_line)) break;
    rest.remove_prefix(chunk.size());
  }
  if (seen > fed) __builtin_trap();  // a byte was seen twice
  return 0;
}
