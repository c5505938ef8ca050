// JSON lines on stderr: {"ts":"…","level":"info","msg":"…", fields…}. One write(2) a line. Never log a token, a key or a Secret.
#pragma once

#include <functional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace holdfast {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void SetLogLevel(LogLevel level);
bool ParseLogLevel(std::string_view text, LogLevel* level);  // debug|info|warning|error
// `fields` is an object: Log(LogLevel::kInfo, "frozen", {{"checkpoint", name}, {"ms", 12}}).
void Log(LogLevel level, std::string_view message, const nlohmann::json& fields = nlohmann::json::object());

// While it lives, every line that this thread logs also has the fields that `add` puts in (the line's own win). `add` runs only when a line
// is written, so that a context which nobody logs in costs nothing. Contexts nest, and end in reverse order on the thread that made them.
class LogContext {
 public:
  explicit LogContext(std::function<void(nlohmann::json& fields)> add);
  ~LogContext();
  LogContext(const LogContext&) = delete;
  LogContext& operator=(const LogContext&) = delete;

 private:
  friend void Log(LogLevel level, std::string_view message, const nlohmann::json& fields);
  const std::function<void(nlohmann::json&)> add_;
  const LogContext* const outer_;
};

inline void LogInfo(std::string_view message, const nlohmann::json& fields = nlohmann::json::object()) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(std::string_view message, const nlohmann::json& fields = nlohmann::json::object()) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(std::string_view message, const nlohmann::json& fields = nlohmann::json::object()) {
  Log(LogLevel::kError, message, fields);
}

}  // namespace holdfast
