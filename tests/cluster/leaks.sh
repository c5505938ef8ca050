#!/bin/bash
# leaks.sh: what a cluster that is down has left on this machine, one line each; status 1 if there is anything.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
left=$(
  ip netns list 2>/dev/null | awk '{print $1}' | grep "^$HF_BRIDGE-node" | sed 's/^/network namespace: /'
  ip -o link 2>/dev/null | awk -F': ' '{print $2}' | cut -d@ -f1 | grep -E "^$HF_BRIDGE(-[0-9]+)?$" | sed 's/^/network link: /'
  ip -o route 2>/dev/null | grep -F "$HF_PODNET." | sed 's/^/route: /'
  find /sys/fs/cgroup -maxdepth 2 -type d -name "$HF_BRIDGE-node*" 2>/dev/null | sed 's/^/cgroup: /'
  grep -F "$HF_RUN/" /proc/self/mountinfo | awk '{print "mount: " $5}'
  # Processes: those whose root, working folder or arguments lie in the cluster's folder, and those in its cgroups.
  for p in /proc/[0-9]*; do
    pid=${p#/proc/}
    [ "$pid" = $$ ] && continue
    grep -qs '^State:[[:space:]]*Z' "$p/status" && continue   # a zombie holds nothing; it waits for whoever adopted it
    if tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -qF "$HF_RUN/" || grep -qs "/$HF_BRIDGE-node" "$p/cgroup" ||
      [[ $(readlink "$p/root" 2>/dev/null) == "$HF_RUN"/* ]]; then
      echo "process: $pid $(tr '\0' ' ' 2>/dev/null <"$p/cmdline" | cut -c1-100)"
    fi
  done
  [ -e "$HF_RUN" ] && echo "folder: $HF_RUN"
)
[ -z "$left" ] && exit 0
printf 'cluster %s left:\n%s\n' "$HF_CLUSTER" "$left"
exit 1
