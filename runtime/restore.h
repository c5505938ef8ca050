// Brings one container back from a checkpoint, in place of `runc create`.
#pragma once

#include "base/status.h"
#include "runtime/command_line.h"
#include "runtime/node.h"
#include "runtime/protocol.h"
#include "runtime/runc.h"
#include "runtime/spec.h"

namespace holdfast::runtime {

// `line` is the create that containerd asked for; `spec` is written to its bundle as the restore needs it. On failure nothing of the
// half-restored container is left: runc does not know it, no old address stands on lo. What was written to rootfs and volumes remains
// (see UndoFiles). `ran` tells whether a process may have run, in this try or an earlier one that was killed: then there must be no other.
Status RestoreContainer(const Node& node, const Runc& runc, const CommandLine& line, const std::string& bundle, Spec& spec,
                        const CreateAnswer& answer, bool* ran);

// After a failed restore, before a cold start: the rootfs as a new container has it; volumes and /dev/shm as volumes.h says.
Status UndoFiles(const Node& node, const Runc& runc, const std::string& bundle, const Spec& spec, const CreateAnswer& answer);

// Before a container that is not restored starts beside ones that are still to be: volumes and /dev/shm are filled first, and stay as they
// are from then on.
Status FillFirst(const Node& node, const Runc& runc, const Spec& spec, const CreateAnswer& answer);

}  // namespace holdfast::runtime
