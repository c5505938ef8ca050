#include "runtime/wait.h"

#include "base/file.h"
#include "runtime/protocol.h"

namespace holdfast::runtime {
namespace {

std::string MiB(int64_t bytes) { return std::to_string((bytes + (1 << 19)) >> 20); }

std::string Describe(const WaitState& state) {
  std::string detail = state.message.empty() ? "" : ": " + state.message;
  if (state.state == "fetching") {
    return "holdfast: fetching checkpoint, " +
           (state.total > 0 ? MiB(state.bytes) + " of " + MiB(state.total) + " MiB" : MiB(state.bytes) + " MiB") + detail;
  }
  if (state.state == "ready") return "holdfast: checkpoint is here" + detail;
  if (state.state == "cold") return "holdfast: starting without a checkpoint" + detail;
  if (state.state == "failed") return "holdfast: failed" + detail;
  return "holdfast: waiting for the checkpoint" + detail;
}

}  // namespace

int WaitForState(const std::string& state_path, Clock& clock, const std::function<void(const std::string&)>& print, std::stop_token stop) {
  std::string printed;
  std::optional<MonoTime> printed_at;
  while (!stop.stop_requested()) {
    WaitState state;
    state.state = "waiting";
    Result<std::string> text = ReadFile(state_path, 65536);
    if (text.ok()) {
      Result<Json> json = ParseJson(*text);
      Result<WaitState> read = json.ok() ? WaitState::FromJson(*json) : Result<WaitState>(json.status());
      if (read.ok()) {
        state = *read;
      } else {
        state.message = read.status().message();
      }
    }
    const bool over = state.state == "ready" || state.state == "cold" || state.state == "failed";
    std::string line = Describe(state);
    if (line != printed && (over || !printed_at || clock.Mono() - *printed_at >= std::chrono::seconds(1))) {
      print(line);
      printed = std::move(line);
      printed_at = clock.Mono();
    }
    if (over) return state.state == "failed" ? 1 : 0;
    clock.Sleep(std::chrono::milliseconds(20), stop);
  }
  return 1;
}

}  // namespace holdfast::runtime
