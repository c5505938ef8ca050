// An archive from outside: whatever it is, an import ends, and leaves a checkpoint only when it says so.
#include "base/log.h"
#include "storage/archive.h"
#include "storage/bytes.h"
#include "storage/hash.h"
#include "tests/unit/storage/sim_fs.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::storage;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A new one now and then: each import that was refused leaves a tombstone.
  static std::unique_ptr<SimFs> fs;
  static Result<std::unique_ptr<LocalStore>> store = Status(Code::kUnavailable, "not opened");
  static int runs = 0;
  if (runs++ % 10'000 == 0) {
    SetLogLevel(LogLevel::kError);
    store = Status(Code::kUnavailable, "closed");
    fs = std::make_unique<SimFs>();
    store = LocalStore::Open({.dir = "/store", .reserve_bytes = 0, .keks = {MakeKek(Secret{1})}, .fs = fs.get()});
  }
  if (!store.ok()) __builtin_trap();
  // With the hash that belongs to it, or nothing would come past it.
  std::string archive(reinterpret_cast<const char*>(data), size);
  StreamHash hash;
  hash.Add(AsBytes(archive));
  const std::array<uint8_t, 32> sum = hash.Sum();
  archive += AsText(sum);
  std::string_view rest = archive;
  auto imported = Import(**store, "default", [&](std::span<std::byte> bytes) -> Status {
    if (bytes.size() > rest.size()) return {Code::kDataLoss, "it was cut off"};
    memcpy(bytes.data(), rest.data(), bytes.size());
    rest.remove_prefix(bytes.size());
    return Status::Ok();
  });
  if (imported.ok() != ((*store)->Usage()->manifests == 1) || (*store)->Usage()->open_sessions != 0) __builtin_trap();
  if (imported.ok() && (!(*store)->GetManifest(imported->id).ok() || !(*store)->Delete(imported->id).ok())) __builtin_trap();
  return 0;
}
