// Archives that a pod's files have gone through: whatever they are, nothing is written beside the folder they are taken apart into.
#include <sys/stat.h>
#include <unistd.h>

#include "agent/archive.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/tree.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  SetLogLevel(LogLevel::kError);
  static const std::string base = [] {
    std::string name = (Exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/holdfast-tar-XXXXXX");
    return std::string(mkdtemp(name.data()));
  }();
  const std::string tar = base + "/tar", dir = base + "/dir", beside = base + "/beside";
  if (!RemoveAll(dir).ok() || !MakeDirs(dir).ok() || !WriteFileAtomically(beside, "mine").ok()) __builtin_trap();
  if (!WriteFileAtomically(tar, std::string_view(reinterpret_cast<const char*>(data + 1), size - 1)).ok()) __builtin_trap();
  if (data[0] % 2 == 0) {
    auto sizes = agent::ExtractKubeletArchive(tar, dir, {.max_files = 100, .max_bytes = 1 << 20});
    if (sizes.ok() && sizes->memory_bytes + sizes->files_bytes > 1 << 20) __builtin_trap();
    for (const std::string& name : ListDir(dir).value_or({})) {
      struct stat info;
      if (lstat((dir + "/" + name).c_str(), &info) != 0 || (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))) __builtin_trap();
    }
  } else {
    [[maybe_unused]] Status extracted = runtime::ExtractTree(tar, dir);
  }
  struct stat info;
  if (ReadFile(beside).value_or("") != "mine" || lstat(beside.c_str(), &info) != 0 || (info.st_mode & 07777) != 0600) __builtin_trap();
  if (ListDir(base).value_or({}).size() != 3) __builtin_trap();
  return 0;
}
