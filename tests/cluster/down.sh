#!/bin/bash
# down.sh: stops what up.sh started and nothing else, and removes the cluster's state, not its binaries. leaks.sh tells what is left.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"

cgroups() { find /sys/fs/cgroup -depth -type d -path "*/$HF_BRIDGE-node*" 2>/dev/null; }
# gone PID SECONDS: a zombie is gone: it waits for whoever adopted it, and holds nothing.
gone() {
  local end=$((SECONDS + $2))
  while grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.02
  done
}

control=()
for component in coredns scheduler controller-manager apiserver etcd; do
  pid=$(cat "$HF_RUN/$component.pid" 2>/dev/null) || continue
  # The pid may be someone else's by now: only a process with our command line is ours.
  if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "^$HF_BIN/"; then kill -9 "$pid" && control+=("$pid"); fi
done
# All of a node's own processes stand in its network namespace; its first process takes the pods' with it (they share its pid
# namespace). Frozen containers die only when thawed.
for n in $(seq "$HF_NODES"); do
  ip netns pids "$HF_BRIDGE-node$n" 2>/dev/null | xargs -r kill -9 2>/dev/null
done
find /sys/fs/cgroup -path "*/$HF_BRIDGE-node*/freezer.state" 2>/dev/null | while read -r f; do echo THAWED >"$f"; done 2>/dev/null
find /sys/fs/cgroup -path "*/$HF_BRIDGE-node*/cgroup.freeze" 2>/dev/null | while read -r f; do echo 0 >"$f"; done 2>/dev/null
for n in $(seq "$HF_NODES"); do
  for pid in $(ip netns pids "$HF_BRIDGE-node$n" 2>/dev/null); do gone "$pid" 15 || say "down.sh: node$n: process $pid does not end" >&2; done
  ip netns del "$HF_BRIDGE-node$n" 2>/dev/null
  ip link del "$HF_BRIDGE-$n" 2>/dev/null
done
for pid in "${control[@]}"; do gone "$pid" 10 || say "down.sh: process $pid does not end" >&2; done
ip link del "$HF_BRIDGE" 2>/dev/null   # its routes go with it
for _ in $(seq 50); do
  cgroups | xargs -r rmdir 2>/dev/null
  [ -z "$(cgroups)" ] && break
  sleep 0.1
done
case $HF_RUN in "$HF_STATE"/run/?*) rm -rf --one-file-system "$HF_RUN" ;; esac
exec "$here/leaks.sh"
