// The few lines of a CRIU log that tell why it failed.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::runtime {

// The last errors of the log at `path`, without time stamps, joined by "; "; at most 1 KiB. Empty when there is none.
std::string TellingLines(const std::string& path);
std::string TellingLinesOf(std::string_view log);

// True while CRIU makes a process run CRIU's own code outside its parasite's loop: killed there, CRIU would leave the process in the middle
// of that code. In the loop, a dead CRIU is noticed and the process goes on where it was. `log` is dump.log at level 4, as runc asks for
// it.
bool InsideAProcess(std::string_view log);

// True when a restore came so far that its processes may have run. `path` is a restore.log at level 4; false when there is none.
bool MayHaveRun(const std::string& path);

}  // namespace holdfast::runtime
