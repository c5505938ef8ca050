// Requests to the store as bytes: the whole request, or a body for one of the routes. Whatever comes, it is answered, and what the store
// then has is whole.
#include "base/log.h"
#include "storage/fsck.h"
#include "tests/unit/storage/memory_http.h"
#include "tests/unit/storage/sim_fs.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

namespace {

constexpr const char* kRoutes[] = {"POST /v1/sessions/u?ns=d",           "POST /v1/sessions/u/missing", "POST /v1/sessions/u/segments",
                                   "POST /v1/sessions/u/commit",         "POST /v1/sessions/u/abort",   "POST /v1/manifests/k/segments",
                                   "POST /v1/sessions/u/hold?manifest=k"};

struct World {
  World() {
    SetLogLevel(LogLevel::kError);
    Manifest kept;
    kept.ns = "d";
    kept.checkpoint = "kept";
    kept.checkpoint_uid = "k";
    if (!(*store->OpenSession("k", "d"))->Commit(kept).ok() || !store->OpenSession("u", "d").ok()) __builtin_trap();
  }
  SimFs fs;
  std::unique_ptr<LocalStore> store =
      std::move(*LocalStore::Open({.dir = "/store", .reserve_bytes = 0, .keks = {MakeKek(Secret{1})}, .fs = &fs}));
  std::unique_ptr<Fence> fence = std::move(*Fence::Open("/nonexistent/TERM"));
  AllowList allowed;
  Routes routes{*store, *fence, nullptr, nullptr, allowed, Clock::Real()};
  MemoryServer http{routes};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::unique_ptr<World> world;
  static int runs = 0;
  if (runs++ % 2000 == 0) world = std::make_unique<World>();
  if (size == 0) return 0;
  std::string request(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] < std::size(kRoutes)) {
    request =
        std::string(kRoutes[data[0]]) + " HTTP/1.1\r\nHost: s\r\nContent-Length: " + std::to_string(request.size()) + "\r\n\r\n" + request;
  }
  const std::string answer = world->http.Ask(request);
  if (StatusOf(answer) >= 500 && StatusOf(answer) != 501 && StatusOf(answer) != 507 && StatusOf(answer) != 503) __builtin_trap();
  return 0;
}
