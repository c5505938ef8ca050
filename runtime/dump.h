// The one dump routine. Freezes every container of the request, dumps each, copies what CRIU's images lack (while all others of the pod
// stand still), thaws unless final, and writes result.json last, by rename. On failure everything runs again and the partial dump is gone
// but for logs and result.json.
//
// Files are not synced: the landing area must outlive a crash of any process, not of the machine. After a power cut the agent's journal
// discards what is there, and the pod is gone with its node anyway.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/node.h"
#include "runtime/protocol.h"

namespace holdfast::runtime {

class Dumper {
 public:
  Dumper(const Node& node, std::string runc) : node_(node), runc_(std::move(runc)) {}
  // Carries out landing/request.json. Idempotent: with a result.json there, that is the answer. An error only when the request cannot
  // be read or result.json not be written; every other failure is in the result.
  Result<DumpResult> Run(const std::string& landing) const;

 private:
  const Node& node_;
  const std::string runc_;
};

inline constexpr int64_t kDefaultDeadlineMs = 100000;  // from the start, when the request names none

Result<DumpRequest> ReadDumpRequest(const std::string& landing);
Result<DumpResult> ReadDumpResult(const std::string& landing);  // kNotFound while the dump is not complete

// Out of the caller's cgroups and session, so that the end of the agent's container does not leave a pod half dumped. Best effort.
void LeaveCaller();

}  // namespace holdfast::runtime
