// Unix sockets that CRIU cannot dump: those whose other end lies in another container or on the node, since it dumps one container at a
// time, and those with a descriptor on its way.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// kUnsupported names the process and the socket when a process of `pids` holds a connected unix socket whose peer is held by none of them.
// `netns_path`: the network namespace in which the processes live.
Status CheckUnixPeers(const std::vector<int>& pids, const std::string& netns_path, const std::string& proc = "/proc");

// kUnavailable names the process and the socket when one of `pids` holds a unix socket with a file descriptor in its queue (SCM_RIGHTS)
// that nobody has received yet: CRIU 4.2 restores that descriptor in the process that restores the socket, which need not be the sender,
// and the receiver gets another file in its place (criu/sk-unix.c, unix_note_scm_rights). The kernel counts them in fdinfo (since 5.5).
Status CheckNothingSent(const std::vector<int>& pids, const std::string& netns_path, const std::string& proc = "/proc");

}  // namespace holdfast::runtime
