#include "runtime/criu_log.h"

#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>

namespace holdfast::runtime {
namespace {

constexpr off_t kTail = 256 << 10;
constexpr size_t kLines = 4, kLineBytes = 250;

// "(00.123456) pid: Error (criu/x.c:12): …" without what changes from run to run.
std::string_view WithoutStamp(std::string_view line) {
  size_t error = line.find("Error (");
  return error == std::string_view::npos ? line : line.substr(error);
}

std::string Tail(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  struct stat info;
  off_t from = fstat(fd, &info) == 0 && info.st_size > kTail ? info.st_size - kTail : 0;
  std::string text(static_cast<size_t>(kTail), '\0');
  ssize_t n = pread(fd, text.data(), text.size(), from);
  close(fd);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

}  // namespace

std::string TellingLinesOf(std::string_view log) {
  std::deque<std::string> lines;
  while (!log.empty()) {
    size_t end = log.find('\n');
    std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    if (line.find("Error (") == std::string_view::npos) continue;
    if (line.find("Can't setup RLIMIT_NOFILE") != std::string_view::npos) continue;  // said in every log, means nothing
    std::string text(WithoutStamp(line).substr(0, kLineBytes));
    if (!lines.empty() && lines.back() == text) continue;
    lines.push_back(std::move(text));
    if (lines.size() > kLines) lines.pop_front();
  }
  std::string joined;
  for (const std::string& line : lines) joined += (joined.empty() ? "" : "; ") + line;
  return joined;
}

std::string TellingLines(const std::string& path) { return TellingLinesOf(Tail(path)); }

// CRIU says it when all is restored and it lets go of the processes next.
bool MayHaveRun(const std::string& path) { return Tail(path).find("Running pre-resume scripts") != std::string::npos; }

bool InsideAProcess(std::string_view log) {
  auto last = [&](std::string_view first, std::string_view second) {
    // rfind's npos + 1 is 0: before any place.
    return std::max(log.rfind(first) + 1, log.rfind(second) + 1);
  };
  const size_t entered = last("Parasite syscall_ip at", " exited trapping");
  const size_t left = last(" has been switched to daemon mode", "Dumping task cwd id");
  return entered > left;
}

}  // namespace holdfast::runtime
