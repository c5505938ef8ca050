#!/bin/bash
# boot.sh NODE: starts a node that node.sh has laid out: its first process, in namespaces of its own, and with it containerd and kubelet. A node that
# runs loses its power first: every process ends at once, and what lay in memory (/run, /tmp) is gone; its disk stays as it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
name=$1
dir=$HF_RUN/$name
ns=$HF_BRIDGE-$name
[ -f "$dir/env" ] || fail "there is no node $name in cluster $HF_CLUSTER ($dir/env): tests/cluster/up.sh starts one"

if first=$(node_pid "$name"); then
  # With the first process of a pid namespace go all others, pods included; a frozen one only once it is thawed.
  kill -9 "$first"
  ended() {
    { find /sys/fs/cgroup -path "*/$ns/*/freezer.state" | while read -r f; do echo THAWED >"$f"; done
      find /sys/fs/cgroup -path "*/$ns/*/cgroup.freeze" | while read -r f; do echo 0 >"$f"; done; } 2>/dev/null
    ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$first/status" && [ -z "$(ip netns pids "$ns")" ]
  }
  wait_for "the end of $name" 30 "$dir/log/node.log" ended
  find /sys/fs/cgroup -depth -mindepth 2 -type d -path "*/$ns/*" -exec rmdir {} + 2>/dev/null || true
fi

# nsenter, not 'ip netns exec': the latter mounts a fresh /sys without the cgroup mounts.
setsid nsenter --net="/run/netns/$ns" unshare --mount --pid --ipc --uts --fork --propagation private \
  env -i GOGC=300 HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash "$here/node-init.sh" "$dir/env" >"$dir/log/node.log" 2>&1 </dev/null &
unshare=$!
first_child() { grep -q . "/proc/$unshare/task/$unshare/children"; }
wait_for "$name's first process" 10 "$dir/log/node.log" first_child
tr -d ' ' <"/proc/$unshare/task/$unshare/children" >"$HF_RUN/$name.pid"
