#!/bin/bash
# build.sh: everything the local cluster runs, from packages, into $HF_STATE. Needs root and Go >= 1.26 (scripts/install-deps.sh).
# Each step is done again only when what it is made from has changed, so an interrupted build goes on where it stopped.
# Cold on 2 cores: node root 45 s, Kubernetes 6.5 min, CoreDNS and Helm 1-2 min each, containerd 50 s, etcd 20 s. Warm: under a second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/env.sh"
. "$here/lib.sh"
log=$HF_STATE/log
mkdir -p "$HF_BIN" "$HF_STATE/stamps" "$HF_STATE/images" "$log"
exec 9>"$HF_STATE/build.lock"
flock -n 9 || { say "another build is running; waiting for it"; flock -w 3600 9 || fail "$HF_STATE/build.lock is held for an hour"; }
[ -x "${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/go/bin/go" ] && PATH=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/go/bin:$PATH
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# made NAME RESULT INPUT...: status 0 when RESULT is there and was made from these INPUTs (files, or words).
made() {
  local name=$1 result=$2; shift 2
  stamp=$(for input in "$@"; do if [ -f "$input" ]; then cat "$input"; else echo "$input"; fi; done | sha256sum | cut -d' ' -f1)
  [ -e "$result" ] && [ "$(cat "$HF_STATE/stamps/$name" 2>/dev/null)" = "$stamp" ]
}
build() { # NAME COMMAND...: after made() said no
  local name=$1; shift
  rm -f "$HF_STATE/stamps/$name"
  step "$name" "$log/$name.log" "$@"
  echo "$stamp" >"$HF_STATE/stamps/$name"
}

node_root() {
  local mirror
  # Either kind of list may be missing, and grep may close the pipe early: only the answer counts.
  mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null |
    sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\(\S*\) .*/\2/p' | grep -m1 '/debian/\?$') || true
  [ -n "$mirror" ] || fail "no Debian mirror (a URI that ends in /debian) in /etc/apt/sources.list or sources.list.d"
  [ -e /usr/share/debootstrap/scripts/forky ] || ln -s sid /usr/share/debootstrap/scripts/forky   # bookworm's debootstrap is older than forky
  rm -rf "$HF_STATE/noderoot"
  debootstrap --variant=minbase --include="$node_packages" forky "$HF_STATE/noderoot" "$mirror"
}
# The nodes' root: Debian forky, whose CRIU 4.2.1 works on new kernels (bookworm's 3.17 does not). It keeps its CRIU as the source of
# Holdfast's bundle; the nodes see none (node-init.sh).
node_packages=criu,runc,containerd,containernetworking-plugins,iproute2,iptables,nftables,ca-certificates,busybox-static,procps,util-linux,conntrack,socat,kmod,python3
made noderoot "$HF_STATE/noderoot/usr/sbin/criu" "forky $node_packages" || build noderoot node_root

criu_bundle() { "$root/scripts/make-criu-bundle.sh" "$HF_STATE/noderoot" "$HF_STATE/criu"; }
made criu "$HF_STATE/criu/criu" "$HF_STATE/stamps/noderoot" "$root/scripts/make-criu-bundle.sh" "$root"/runtime/install/* || build criu criu_bundle

go_install() { # MODULE OUTDIR LDFLAGS
  cd "$here/modules/$1" && GOBIN=$2 go install -trimpath -ldflags "-s -w $3" tool
}
go_step() { # MODULE RESULT OUTDIR LDFLAGS
  made "$1" "$2" "$here/modules/$1/go.mod" "$here/modules/$1/go.sum" "$4" || build "$1" go_install "$1" "$3" "$4"
}
version=k8s.io/component-base/version
go_step kubernetes "$HF_BIN/kubelet" "$HF_BIN" "-X $version.gitVersion=v1.37.1 -X $version.gitMajor=1 -X $version.gitMinor=37"
etcd() { go_install etcd "$HF_STATE/etcd.new" "" && mv "$HF_STATE/etcd.new/server" "$HF_BIN/etcd" && rm -r "$HF_STATE/etcd.new"; }
made etcd "$HF_BIN/etcd" "$here/modules/etcd/go.mod" "$here/modules/etcd/go.sum" || build etcd etcd
go_step helm "$HF_BIN/helm" "$HF_BIN" ""
coredns() { cd "$here/modules/coredns" && go build -trimpath -ldflags "-s -w" -o "$HF_BIN/coredns" .; }
made coredns "$HF_BIN/coredns" "$here"/modules/coredns/{main.go,go.mod,go.sum} || build coredns coredns
go_step containerd "$HF_BIN/containerd-2.4/containerd" "$HF_BIN/containerd-2.4" ""

prlimit_shim() { gcc -O2 -Wall -Wextra -shared -fPIC -o "$HF_STATE/prlimit-shim.so" "$here/prlimit-shim.c"; }
made prlimit-shim "$HF_STATE/prlimit-shim.so" "$here/prlimit-shim.c" || build prlimit-shim prlimit_shim

# Images of one static program each. They lie in $HF_STATE/images, which every node imports when it starts.
program_image() { # NAME REFERENCE COMMAND...: COMMAND PROGRAM makes the program
  local name=$1 reference=$2 dir; shift 2
  dir=$(mktemp -d)
  "$@" "$dir/$name"
  python3 "$here/image.py" --entrypoint "/$name" "$HF_STATE/images/$name.tar" "$reference" "$dir"
  rm -r "$dir"
}
reference=registry.k8s.io/pause:3.10
made pause "$HF_STATE/images/pause.tar" "$here/image.py" "$here/pause.c" "$reference" ||
  build pause program_image pause "$reference" gcc -O2 -Wall -Wextra -static "$here/pause.c" -o
for example in counter witness; do
  reference=ghcr.io/holdfast/example-$example:0.1.0
  made "$example" "$HF_STATE/images/$example.tar" "$here/image.py" "$root/examples/build.sh" "$root"/examples/{counter,witness}/* "$reference" ||
    build "$example" program_image "$example" "$reference" "$root/examples/build.sh" "$example"
done
say "local cluster: everything is built ($HF_STATE)"
