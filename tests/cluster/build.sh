#!/bin/bash
# build.sh: everything the local cluster runs, from packages, into $HF_STATE. Needs root and Go >= 1.26 (scripts/install-deps.sh).
# Each step is done again only when what it is made from has changed, so an interrupted build goes on where it stopped.
# Cold on 2 cores: 8 to 10 minutes, most of it Kubernetes. Warm: under a second.
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
export GOGC=400 # of the compiler itself: a fifth less of its time, for 50 MB more of each

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
  mirror=$(debian_mirror) || fail "no Debian mirror (a URI that ends in /debian) in /etc/apt/sources.list or sources.list.d"
  [ -e /usr/share/debootstrap/scripts/forky ] || ln -s sid /usr/share/debootstrap/scripts/forky   # bookworm's debootstrap is older than forky
  rm -rf "$HF_STATE/noderoot"
  debootstrap --variant=minbase --include="$node_packages" forky "$HF_STATE/noderoot" "$mirror"
}
# The nodes' root: Debian forky, whose CRIU 4.2.1 works on new kernels (bookworm's 3.17 does not). It keeps its CRIU as the source of
# Holdfast's bundle; the nodes see none (node-init.sh).
node_packages=criu,runc,containerd,containernetworking-plugins,iproute2,iptables,nftables,ca-certificates,busybox-static,procps,util-linux,conntrack,socat,kmod,python3
# The source of that CRIU, for its plugin for GPUs, which Debian does not build.
criu_source() {
  local mirror apt
  mirror=$(debian_mirror) || fail "no Debian mirror"
  apt=$(mktemp -d)
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$HF_STATE/noderoot/usr/src"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror forky main" > "$apt/sources.list"
  local options=(-q -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$HF_STATE/noderoot/usr/src" && apt-get "${options[@]}" source --download-only --tar-only criu && ln -sf criu_*.orig.tar.xz criu.source)
  rm -r "$apt"
}
criu_bundle() { "$root/scripts/make-criu-bundle.sh" "$HF_STATE/noderoot" "$HF_STATE/criu"; }
nodes() {
  made noderoot "$HF_STATE/noderoot/usr/sbin/criu" "forky $node_packages" || build noderoot node_root
  made criu-source "$HF_STATE/noderoot/usr/src/criu.source" "$HF_STATE/stamps/noderoot" || build criu-source criu_source
  made criu "$HF_STATE/criu/criu" "$HF_STATE/stamps/noderoot" "$HF_STATE/stamps/criu-source" "$root/scripts/make-criu-bundle.sh" "$root"/runtime/install/* || build criu criu_bundle
}
nodes &  # mostly downloads and unpacks, beside what mostly computes
nodes=$!

# One module for all: Kubernetes' libraries, which Helm, CoreDNS, etcd and containerd use as well, are compiled once.
in_components() { cd "$here/components" && "$@"; }
compile() { in_components go "$1" -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w ${ldflags:-}" "${@:2}"; }
go_step() { # NAME RESULT COMMAND...
  made "$1" "$2" "$here"/components/{go.mod,go.sum,coredns/main.go} "$3 ${*:4}" || build "$1" "${@:3}"
}
version=k8s.io/component-base/version
kubernetes() { # LDFLAGS
  GOBIN=$HF_BIN ldflags=$1 compile install \
    k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-proxy,kube-scheduler,kubectl,kubelet}
}
containerd() { GOBIN=$HF_BIN/containerd-2.4 compile install github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}; }
go_step kubernetes "$HF_BIN/kubelet" kubernetes "-X $version.gitVersion=v1.37.1 -X $version.gitMajor=1 -X $version.gitMinor=37"
go_step etcd "$HF_BIN/etcd" compile build -o "$HF_BIN/etcd" go.etcd.io/etcd/server/v3
go_step helm "$HF_BIN/helm" compile build -o "$HF_BIN/helm" helm.sh/helm/v4/cmd/helm
go_step coredns "$HF_BIN/coredns" compile build -o "$HF_BIN/coredns" ./coredns
go_step containerd "$HF_BIN/containerd-2.4/containerd" containerd
wait "$nodes" || fail "the nodes' root could not be made (above)"

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
