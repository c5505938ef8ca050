#include "agent/boot.h"

#include <cstdlib>

#include "base/file.h"

namespace holdfast::agent {
std::optional<long long> StartTicks(const std::string& pid, const std::string& proc) {
  constexpr int kStartTime = 22;
  const std::string stat = ReadFile(proc + "/" + pid + "/stat", 4096).value_or("");
  size_t at = stat.rfind(')');  // its name may hold anything
  for (int field = 3; at != std::string::npos && field <= kStartTime; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  return atoll(stat.c_str() + at + 1);
}

std::string BootId(const std::string& proc) {
  std::string id = ReadFile(proc + "/sys/kernel/random/boot_id", 256).value_or("");
  id = id.substr(0, id.find('\n'));
  const std::optional<long long> start = StartTicks("1", proc);
  return id.empty() || !start ? id : id + "/" + std::to_string(*start);
}

bool NodeRestarted(const std::string& boot_then, const std::string& boot_now) {
  if (boot_then.empty() || boot_now.empty()) return false;
  const bool both = boot_then.find('/') != std::string::npos && boot_now.find('/') != std::string::npos;
  return both ? boot_then != boot_now : boot_then.substr(0, boot_then.find('/')) != boot_now.substr(0, boot_now.find('/'));
}

}  // namespace holdfast::agent
