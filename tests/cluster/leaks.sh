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
  # Processes: those with the cluster's folder in their arguments or as their root, and those in its cgroups. Few commands look at all
  # of /proc; the folder's name comes by a pipe, so that they do not find themselves.
  {
    grep -lsaF -f <(echo "$HF_RUN/") /proc/[0-9]*/cmdline
    grep -lsF -f <(echo "/$HF_BRIDGE-node") /proc/[0-9]*/cgroup
    find /proc -maxdepth 2 -name root -lname "$HF_RUN/*" 2>/dev/null
  } | cut -d/ -f3 | sort -un | while read -r pid; do
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
    [[ $state == [ZX] || -z $state ]] || echo "process: $pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c1-100)"   # a zombie holds nothing
  done
  [ -e "$HF_RUN" ] && echo "folder: $HF_RUN"
)
[ -z "$left" ] && exit 0
printf 'cluster %s left:\n%s\n' "$HF_CLUSTER" "$left"
exit 1
