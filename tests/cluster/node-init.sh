#!/bin/bash
# shellcheck disable=SC1090,SC2154  # ENV, written by node.sh, has every variable that is not set here
# node-init.sh ENV: process 1 of a node (node.sh starts it in the node's namespaces). Builds the node's root file system, then keeps
# containerd, kube-proxy and kubelet running: whichever exits is back within a second, as with systemd's Restart=always.
set -euo pipefail
. "$1"
. "$(dirname "$0")/node-files.sh"

# Root: the shared Debian tree below, this node's changes above.
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
cd "$dir/root"
mkdir -p oldroot var/lib/containerd var/lib/kubelet opt/bin opt/images etc/kubernetes etc/cni/net.d etc/containerd var/log/node run tmp
mount -t proc proc proc
for m in sys dev; do mount --rbind "/$m" "$m"; done
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/node run/flags
# containerd's overlay snapshots cannot lie on an overlay: these two are plain folders.
mount --bind "$dir/containerd" var/lib/containerd
mount --bind "$dir/kubelet" var/lib/kubelet
mount --bind "$dir/log" var/log/node
mount --bind "$dir/images" opt/images
mount --bind "$bin" opt/bin
mount --bind "$pki" etc/kubernetes
mount --bind "$flags" run/flags
if [ -n "$containerd_dir" ]; then
  for f in containerd containerd-shim-runc-v2 ctr; do mount --bind "$containerd_dir/$f" "usr/bin/$f"; done
fi
# Nodes have no CRIU, nor the libraries that nothing but CRIU uses: Holdfast brings its own.
rm -f usr/sbin/criu usr/lib/x86_64-linux-gnu/lib{net,protobuf-c}.so.*
# Without CAP_SYS_RESOURCE (bit 24) a CRIU of root's cannot read other users' limits: see prlimit-shim.c.
if [ $((0x$(sed -n 's/^CapEff:\s*//p' /proc/self/status) >> 24 & 1)) = 0 ] && [ -f "$prlimit_shim" ]; then
  cp "$prlimit_shim" usr/lib/prlimit-shim.so
  echo /usr/lib/prlimit-shim.so >etc/ld.so.preload
fi
pivot_root . oldroot
cd /
umount -l /oldroot
rmdir /oldroot
mount --make-rshared /           # so that pods can ask for HostToContainer and Bidirectional propagation
hostname "$name"
nft flush ruleset || true        # of the boot before: the network namespace outlives it
echo 1 >/proc/sys/net/ipv4/ip_forward
[ -e /etc/kubelet.yaml ] || node_files   # once: a boot finds its disk as it was

supervise() { # name command...
  local name=$1 pid; shift
  while :; do
    "$@" >>"/var/log/node/$name.log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"/run/node/$name.pid"
    wait "$pid" || true
    echo "=== $name (pid $pid) ended at $(date -u +%T); starting it again ===" >>"/var/log/node/$name.log"
    sleep 0.3
  done
}

supervise containerd containerd &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
for tar in /opt/images/*.tar; do
  if [ -e "$tar" ]; then ctr -n k8s.io images import "$tar"; fi
done
touch /run/node/images-imported
until [ -e /run/flags/apiserver-ready ]; do sleep 0.05; done
supervise kubelet /opt/bin/kubelet --config=/etc/kubelet.yaml --kubeconfig="/etc/kubernetes/$name.kubeconfig" --hostname-override="$name" \
  --node-ip="$net.1$n" --node-labels="${system:+holdfast.dev/system=true}" --v=2 &
supervise kube-proxy /opt/bin/kube-proxy --config=/etc/kube-proxy.yaml &
# bash waits for any child, so orphans that come to process 1 are reaped too.
while :; do wait || true; sleep 1; done
