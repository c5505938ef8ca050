// Named points where a test stops a process: HF_FAULT_POINT("agent.dumped"). With HOLDFAST_FAULT_POINTS compiled in, a file
// $HOLDFAST_FAULT_DIR/<name> makes the point act and is consumed (unlinked) first: content "kill" ends the process as SIGKILL would;
// "hang" waits until the file <name>.release appears; "delay MILLISECONDS" waits. Compiled out, it costs nothing.
#pragma once

namespace holdfast {

void ReachFaultPoint(const char* name);

}  // namespace holdfast

#ifdef HOLDFAST_FAULT_POINTS
#define HF_FAULT_POINT(name) ::holdfast::ReachFaultPoint(name)
#else
#define HF_FAULT_POINT(name) \
  do {                       \
  } while (0)
#endif
