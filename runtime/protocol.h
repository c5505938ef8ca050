// What holdfast-agent and holdfast-runc say to each other, and where it lies on the node. holdfast-runc never depends on the agent being
// alive: what it must know for pause, resume, kill, exec and checkpoint stands in files under kRunDir and kStateDir; only `create`, and
// `kill` of a container about which no file says anything, ask over the socket.
//
// Folders (all 0700 root, but kWaitDir, which pods see):
//   /opt/holdfast/bin/holdfast-runc, holdfast-wait      /opt/holdfast/criu/criu, runc.conf, lib/, plugins/
//   /run/holdfast/agent.sock                            one JSON line in, one JSON line out, then closed
//   /run/holdfast/containers/<container id>.json        Intent: this container belongs to a checkpoint being made, or kept frozen
//   /run/holdfast/restored/<container id>               empty: restored, so `start` has nothing to do
//   /run/holdfast/signalled/<container id>              empty: told to quit, so no dump in place of its signal begins any more. Written
//                                                       before the Intent is looked for once more; the agent looks for it after its Intents
//   /run/holdfast/beside/<container id>                 frozen while files of its pod are read or filled, by holdfast-runc alone (beside.h)
//   /run/holdfast/wait/<pod uid>/state                  WaitState, 0644, bind-mounted read-only at /.holdfast into holdfast-wait
//   /var/lib/holdfast/pods/<pod uid>.json               {"checkpoint_uid"}: final; `create` in this pod is refused while it exists, also
//                                                       after the node was started anew
//   /var/lib/holdfast/landing/<checkpoint uid>/         a checkpoint as it was dumped (below)
//   /run/holdfast/memory/landing/<checkpoint uid>/      the same, in a tmpfs of the agent's (agent/landing_memory.h)
//   /var/lib/holdfast/restore/<pod uid>/                the same layout, fetched for that pod; a link into
//                                                       /run/holdfast/memory/restore/ when it was dumped into memory on this node
//   /var/lib/holdfast/journal/<checkpoint uid>.json     the agent's own
//
// Layout of a dumped checkpoint:
//   request.json                     DumpRequest, written by the agent
//   <container>/images/              CRIU's images; inventory.img and the rest as CRIU writes them
//   <container>/dump.log  upper.tar  CRIU's log; the overlay's upper directory (pax; xattrs, whiteouts as 0/0 devices, sparse)
//   <container>/config.json          the OCI spec it ran with; gpu.json: the GPUs that it held, if any (gpu.h)
//   <container>/projected/           open files of configMap, secret and token volumes; only when there are any
//   <container>/restore/             made by a restore: CRIU's view of the images, restore.log
//   <container>/trying               the id of the container that the current try makes
//   <container>/restored             made by a restore that succeeded: the id of the container that runs from it
//   volumes/<volume>.tar  shm.tar    emptyDirs; the sandbox's /dev/shm
//   volumes-in-use                   a container was let start beside those that are restored: volumes and /dev/shm stay as they are
//   frozen.json  go.json             while the pod stands at the barrier of its group: by holdfast-runc, and the agent's answer. Both empty
//   dumped.json  thaw.json           the same once it is dumped, and waits for the others to be
//                                    objects, gone when it goes on
//   result.json                      DumpResult, by rename, last: with it the dump is complete, without it there is none
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace holdfast::runtime {

inline constexpr char kRunDir[] = "/run/holdfast";
inline constexpr char kStateDir[] = "/var/lib/holdfast";
inline constexpr char kInstallDir[] = "/opt/holdfast";
inline constexpr char kSocket[] = "/run/holdfast/agent.sock";
inline constexpr char kRestoredFile[] = "restored";
inline constexpr char kTryingFile[] = "trying";  // <container>/trying: durable before any process may run
inline constexpr char kFrozenFile[] = "frozen.json", kGoFile[] = "go.json", kDumpedFile[] = "dumped.json", kThawFile[] = "thaw.json";
inline constexpr char kWaitContainer[] = "holdfast-wait";             // the init container that the pod webhook adds (api::kWaitContainer)
inline constexpr char kRestoreAnnotation[] = "holdfast.dev/restore";  // name of the claimed Checkpoint; a hint, never an authority

// containers/<id>.json
struct Intent {
  std::string checkpoint_uid, pod_uid, container;
  std::string landing;   // the checkpoint's folder
  bool final = false;    // kept frozen after the dump
  bool kubelet = false;  // the dump starts when containerd asks for it, else by `holdfast-runc dump`
  Json ToJson() const;
  static Result<Intent> FromJson(const Json& json);
};

struct DumpContainer {
  std::string name, id;
};
struct DumpVolume {
  std::string name, path;  // path on the node: /var/lib/kubelet/pods/<uid>/volumes/kubernetes.io~empty-dir/<name>
};
// request.json. `holdfast-runc dump <landing>` (or the first `checkpoint` of an Intent with kubelet = true) carries it out:
// freeze all, dump each, copy upper directories, volumes and /dev/shm, thaw unless final. On any failure everything is thawed.
struct DumpRequest {
  std::string checkpoint_uid, pod_uid, ns, pod;
  std::string runc_root = "/run/containerd/runc/k8s.io";
  std::string task_dir = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";  // <task_dir>/<container id>/ is the bundle
  bool final = false;
  int64_t barrier_ms = 0;  // above 0: once frozen it says so (frozen.json) and waits for go.json; without it, it is thawed after so long
  int64_t hold_ms = 0;  // above 0: once dumped it says so (dumped.json) and stands still until thaw.json; without it, the dump has failed
  int64_t deadline_unix_ms = 0;  // CRIU is killed and all is thawed when the dump is not complete by then
  std::vector<DumpContainer> containers;
  std::vector<DumpVolume> volumes;
  Json ToJson() const;
  static Result<DumpRequest> FromJson(const Json& json);
};

// result.json
struct DumpResult {
  bool ok = false;
  std::string reason;      // Completed | DumpFailed | Unsupported (found before the freeze) | Deadline | PodGone
  std::string message;     // for people: CRIU's telling lines when it failed; else which containers ran on while files were read, and why
  bool no_space = false;   // not ok, and the landing folder's file system was full
  int64_t frozen_ms = 0;   // pause to thaw; final: pause to dumped
  int64_t dump_ms = 0;     // CRIU alone
  int64_t barrier_ms = 0;  // of frozen_ms: what it waited for the rest of its group
  int64_t frozen_at_unix_ms = 0;
  int64_t memory_bytes = 0, files_bytes = 0;  // pages-*.img; the rest
  std::vector<std::string> pod_ips;           // the sandbox's addresses at the dump
  std::string hostname;
  Json ToJson() const;
  static Result<DumpResult> FromJson(const Json& json);
};

// The socket. create: {"op":"create", CreateQuestion} → CreateAnswer. After a restore, or its failure: {"op":"restored", RestoreOutcome}
// → CreateAnswer, whose action says how a failed one goes on (cold or refuse). No agent: pods with kRestoreAnnotation are refused, others
// start cold.
struct CreateQuestion {
  std::string pod_uid, ns, pod, container, container_id, sandbox_id;
  bool init = false;  // unknown to the runtime: filled by the agent from the pod
  Json ToJson() const;
  static Result<CreateQuestion> FromJson(const Json& json);
};
struct CreateAnswer {
  std::string action;     // restore | cold | refuse | skip (an init container of a restored pod: ends at once with success)
  std::string reason;     // for cold and refuse
  std::string dir;        // restore: a checkpoint's folder; cold: the same, when others of the pod are still to be restored from it
  std::string container;  // restore: folder in it
  std::string established = "KeepLoopback";  // KeepLoopback | CloseAll
  bool first = false;                        // nothing of the pod was restored yet: volumes and /dev/shm are put back (volumes.h)
  bool more = false;                         // others of the pod are still to be restored after it
  std::vector<DumpVolume> volumes;           // where each volume of the checkpoint lies now
  Json ToJson() const;
  static Result<CreateAnswer> FromJson(const Json& json);
};
// {"op":"stop", StopQuestion} → StopAnswer: holdfast-runc was told to signal a container that no final Intent is about. No agent, or no
// answer in time: the signal is passed on.
struct StopQuestion {
  std::string pod_uid, ns, pod, container, container_id;
  Json ToJson() const;
  static Result<StopQuestion> FromJson(const Json& json);
};
struct StopAnswer {
  std::string action;  // signal | dump: in its place. For logs: holdfast-runc goes by the final Intent
  std::string reason;
  Json ToJson() const;
};
struct RestoreOutcome {
  std::string pod_uid, container, container_id;
  bool ok = false;
  bool ran = false;  // not ok, but its process may have run: it must not be restored once more
  double seconds = 0;
  std::string message;
  Json ToJson() const;
  static Result<RestoreOutcome> FromJson(const Json& json);
};

// One thing that this node must have, or had better have, and what was found. `holdfast-runc check` prints an array of them.
struct NodeCheck {
  enum class Verdict { kOk, kWarn, kFail };  // warn: the node is used, and something is weaker
  std::string name;                          // kernel-sockets, space, …
  Verdict verdict = Verdict::kOk;
  std::string seen;
  std::string fix;         // one line; empty when ok
  std::string value{};     // for the node's labels and annotations
  bool passes = false;     // of a fail: it may end by itself, so the node is not given up for it
  std::string features{};  // of the processor, as api/platform.h has them
  Json ToJson() const;
  static Result<NodeCheck> FromJson(const Json& json);
};

// wait/<pod uid>/state
struct WaitState {
  std::string state;  // waiting | fetching | ready | cold | failed
  std::string message;
  int64_t bytes = 0, total = 0;
  Json ToJson() const;
  static Result<WaitState> FromJson(const Json& json);
};

}  // namespace holdfast::runtime
