// Named points where a test stops a process: HF_FAULT_POINT("agent.dumped"). With HOLDFAST_FAULT_POINTS compiled in, a file
// <folder>/<name> makes the point act once: the process that reaches it takes the file away first. The folder is $HOLDFAST_FAULT_DIR,
// or /run/holdfast/faults. What the file says:
//   kill          the process ends as by SIGKILL
//   wait          writes <name>.hit and waits until that file is removed, at most kFaultWait: meanwhile a test breaks something else
//   delay MILLISECONDS
// Compiled out, it costs nothing.
#pragma once

#include <chrono>

namespace holdfast {

inline constexpr std::chrono::seconds kFaultWait{180};

void ReachFaultPoint(const char* name);

}  // namespace holdfast

#ifdef HOLDFAST_FAULT_POINTS
#define HF_FAULT_POINT(name) ::holdfast::ReachFaultPoint(name)
#else
#define HF_FAULT_POINT(name) \
  do {                       \
  } while (0)
#endif
