#include "agent/layout.h"

#include "base/file.h"

namespace holdfast::agent {

Status Layout::Make() const {
  for (const std::string& dir : {run, Containers(), run + "/pods", run + "/restored", run + "/dumps", state, state + "/landing",
                                 JournalFolder(), state + "/restore"}) {
    HF_RETURN_IF_ERROR(MakeDirs(dir));
  }
  return MakeDirs(run + "/wait", 0755);
}

}  // namespace holdfast::agent
