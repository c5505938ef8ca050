#include "agent/boot.h"

#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr int kStartTime = 22;  // field of /proc/PID/stat: ticks since boot (proc(5))

std::string StartOfFirstProcess(const std::string& proc) {
  const std::string stat = ReadFile(proc + "/1/stat", 4096).value_or("");
  size_t at = stat.rfind(')');  // its name may hold anything
  for (int field = 3; at != std::string::npos && field <= kStartTime; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return "";
  return stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

}  // namespace

std::string BootId(const std::string& proc) {
  std::string id = ReadFile(proc + "/sys/kernel/random/boot_id", 256).value_or("");
  id = id.substr(0, id.find('\n'));
  const std::string start = StartOfFirstProcess(proc);
  return id.empty() || start.empty() ? id : id + "/" + start;
}

bool NodeRestarted(const std::string& boot_then, const std::string& boot_now) {
  if (boot_then.empty() || boot_now.empty()) return false;
  const bool both = boot_then.find('/') != std::string::npos && boot_now.find('/') != std::string::npos;
  return both ? boot_then != boot_now : boot_then.substr(0, boot_then.find('/')) != boot_now.substr(0, boot_now.find('/'));
}

}  // namespace holdfast::agent
