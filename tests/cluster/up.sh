#!/bin/bash
# up.sh [IMAGE.tar...]: starts the local cluster (build.sh must have run): a control plane and three nodes: node1 with Debian's
# containerd 2.1.9, node2 with containerd 2.4.2, node3 for Holdfast's own pods. The images are imported into every node, beside those in
# $HF_STATE/images. Does nothing when the cluster is up. About 10 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
begin=$SECONDS

if [ -e "$HF_RUN/up" ] && kubectl get --raw /readyz >/dev/null 2>&1; then
  say "cluster $HF_CLUSTER is up already (tests/cluster/down.sh stops it)"
  exit 0
fi
for f in etcd kube-apiserver kubelet kubectl coredns containerd-2.4/containerd; do
  [ -x "$HF_BIN/$f" ] || fail "$HF_BIN/$f is missing: run tests/cluster/build.sh (or: make cluster)"
done
if [ -e "$HF_RUN" ]; then
  "$here/down.sh" || say "going on beside that"   # what a failed start left
elif ip link show "$HF_BRIDGE" >/dev/null 2>&1; then
  # A cluster whose state lies elsewhere (another user's cache) has these addresses: if it is dead, they are taken back.
  for n in $(seq "$HF_NODES"); do
    [ -z "$(ip netns pids "$HF_BRIDGE-node$n" 2>/dev/null)" ] ||
      fail "another cluster runs on $HF_NET.0/24 (bridge $HF_BRIDGE): take it down, or set HF_SLOT to another number than ${HF_SLOT:-0}"
  done
  "$here/down.sh" || say "going on beside that"
fi
# A cluster takes 35 inotify instances (kubelets 6 each, containerd, controller manager…), tests beside it some more; without, kubelets
# die in a loop. The limit is raised, as for every tool that runs several nodes on one machine, until the next boot.
mkdir -p "$HF_LOG" "$HF_RUN/flags"
clusters=$(find "$HF_STATE/run" -mindepth 1 -maxdepth 1 -type d | wc -l) limit=/proc/sys/fs/inotify/max_user_instances
needed=$(((clusters + 1) * 45))
if [ "$(cat "$limit")" -lt "$needed" ]; then
  say "fs.inotify.max_user_instances: $(cat "$limit") -> $needed"
  echo "$needed" >"$limit" || fail "$clusters clusters need it: sysctl fs.inotify.max_user_instances=$needed"
fi
: >"$HF_RUN/extra-images"
for tar in "$@"; do readlink -e "$tar" >>"$HF_RUN/extra-images" || fail "no such image: $tar"; done

say "cluster $HF_CLUSTER: control plane $HF_NET.1, nodes $HF_NET.11 to .1$HF_NODES (logs: $HF_RUN)"
ip link add "$HF_BRIDGE" type bridge
ip addr add "$HF_NET.1/24" dev "$HF_BRIDGE"
ip link set "$HF_BRIDGE" up
echo 1 >"/proc/sys/net/ipv4/conf/$HF_BRIDGE/forwarding"   # from this bridge only: the machine's own setting stays as it is
"$here/pki.sh"
# Control plane and nodes start together: containerd imports its images while the API server comes up.
"$here/control.sh" &
control=$!
trap 'kill "$control" 2>/dev/null' ERR
for n in $(seq "$HF_NODES"); do
  if [ "$n" = 2 ]; then "$here/node.sh" "$n" "$HF_BIN/containerd-2.4"; else "$here/node.sh" "$n"; fi
done
wait "$control" || fail "the control plane did not start (logs: $HF_LOG)"

ready() { [ "$(kubectl get node "$1" --no-headers | awk '{print $2}')" = Ready ]; }
for n in $(seq "$HF_NODES"); do
  imported() { [ -e "/proc/$(node_pid "node$n")/root/run/node/images-imported" ]; }
  wait_for "node$n's images" 120 "$HF_RUN/node$n/log/node.log" imported
  wait_for "node$n" 60 "$HF_RUN/node$n/log/kubelet.log" ready "node$n"
done
touch "$HF_RUN/up"
kubectl get nodes -o custom-columns='NODE:.metadata.name,RUNTIME:.status.nodeInfo.containerRuntimeVersion,ADDRESS:.status.addresses[0].address,TAINTS:.spec.taints[*].key'
say "cluster $HF_CLUSTER is up after $((SECONDS - begin)) s; kubectl: tests/cluster/kubectl"
