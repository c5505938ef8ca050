#!/bin/bash
# node.sh N [CONTAINERD_DIR]: node N with its own kubelet, kube-proxy and containerd, in network, mount, pid, IPC and UTS namespaces of
# its own: a hostPID pod sees this node's processes only and its process 1, like on a real node. up.sh calls it.
# CONTAINERD_DIR: another containerd than the node root's own (Debian's 2.1.9), laid over it in /usr/bin.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
n=$1
containerd_dir=${2:-}
name=node$n
ns=$HF_BRIDGE-$name
dir=$HF_RUN/$name

# Network: a leg on the bridge, and the way to every other node's pods, so that pod addresses reach each other without translation.
ip netns add "$ns"
ip link add "$HF_BRIDGE-$n" type veth peer name eth0 netns "$ns"
ip link set "$HF_BRIDGE-$n" master "$HF_BRIDGE" up
ip -n "$ns" addr add "$HF_NET.1$n/24" dev eth0
ip -n "$ns" link set eth0 up
ip -n "$ns" link set lo up
ip -n "$ns" route add default via "$HF_NET.1"
for other in $(seq "$HF_NODES"); do
  [ "$other" = "$n" ] || ip -n "$ns" route add "$HF_PODNET.$other.0/24" via "$HF_NET.1$other"
done
ip route replace "$HF_PODNET.$n.0/24" via "$HF_NET.1$n"   # the control plane's way to pods (webhooks)

# The kubelet wants its cgroup root to exist in every hierarchy; on cgroup v1 a new cpuset is empty and takes no process.
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$ns"
else
  for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy$ns"; done
  for f in cpuset.cpus cpuset.mems; do
    if [ -f /sys/fs/cgroup/cpuset/$f ]; then cat /sys/fs/cgroup/cpuset/$f >"/sys/fs/cgroup/cpuset/$ns/$f"; fi
  done
fi

mkdir -p "$dir"/{upper,work,root,containerd,kubelet,log,images}
ln -f "$HF_STATE"/images/*.tar "$dir/images/" 2>/dev/null || cp -u "$HF_STATE"/images/*.tar "$dir/images/"
if [ -s "$HF_RUN/extra-images" ]; then
  while read -r tar; do ln -f "$tar" "$dir/images/" 2>/dev/null || cp -u "$tar" "$dir/images/"; done <"$HF_RUN/extra-images"
fi
cat >"$dir/env" <<END
n=$n
name=$name
ns=$ns
net=$HF_NET
podnet=$HF_PODNET
services=$HF_SERVICES
system=$([ "$n" = "$HF_NODES" ] && [ "$n" -gt 1 ] && echo 1)
dir=$dir
lower=$HF_STATE/noderoot
bin=$HF_BIN
pki=$HF_PKI
flags=$HF_RUN/flags
containerd_dir=$containerd_dir
prlimit_shim=$HF_STATE/prlimit-shim.so
END

exec "$here/boot.sh" "$name"
