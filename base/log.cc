#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/per_thread.h"
#include "base/time_format.h"

namespace holdfast {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};  // set once by main

const PerThread<const LogContext> t_context;

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (kNames[i] == text) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

LogContext::LogContext(std::function<void(nlohmann::json&)> add) : add_(std::move(add)), outer_(t_context.get()) { t_context.set(this); }

LogContext::~LogContext() { t_context.set(outer_); }

void Log(LogLevel level, std::string_view message, const nlohmann::json& fields) {
  if (level < g_level.load()) return;
  nlohmann::ordered_json line;
  line["ts"] = FormatMicroTime(Clock::Real().Wall());
  line["level"] = kNames[static_cast<int>(level)];
  line["msg"] = message;
  for (const auto& [key, value] : fields.items()) line[key] = value;
  nlohmann::json around = nlohmann::json::object();
  for (const LogContext* context = t_context.get(); context != nullptr; context = context->outer_) context->add_(around);
  for (const auto& [key, value] : around.items()) {
    if (!line.contains(key)) line[key] = value;
  }
  std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace holdfast
