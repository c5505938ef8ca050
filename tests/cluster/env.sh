# shellcheck shell=bash disable=SC2034  # scripts that source this use the variables
# Where a local cluster keeps its files and which addresses it uses. All of it stays on this machine: a bridge, and one network
# namespace per node. Several clusters run side by side when each gets a slot of its own (0 to 9):
#   HF_SLOT=1 tests/cluster/up.sh; HF_SLOT=1 tests/cluster/kubectl get nodes; HF_SLOT=1 tests/cluster/down.sh
# or when HF_CLUSTER, HF_NET, HF_PODNET and HF_BRIDGE are set one by one. Services have the same addresses in every cluster: each
# node resolves them in its own network namespace.
: "${HF_STATE:=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-cluster}"  # binaries, node root, images: shared by all clusters
: "${HF_SLOT:=0}"
: "${HF_CLUSTER:=cluster$HF_SLOT}"        # the cluster's name: its folder under $HF_STATE/run
: "${HF_NET:=10.97.$HF_SLOT}"             # hosts: .1 control plane, .1N node N
: "${HF_PODNET:=10.$((98 + HF_SLOT))}"    # pods: $HF_PODNET.N.0/24 on node N
: "${HF_BRIDGE:=hfbr$HF_SLOT}"            # also the prefix of the nodes' namespaces and cgroups: $HF_BRIDGE-nodeN
: "${HF_NODES:=3}"                        # the last one is for Holdfast's own pods
HF_BIN=$HF_STATE/bin
HF_RUN=$HF_STATE/run/$HF_CLUSTER
HF_PKI=$HF_RUN/pki
HF_LOG=$HF_RUN/log
HF_SERVICES=10.96                         # Services: $HF_SERVICES.0.0/16, DNS at .0.10
export HF_STATE HF_SLOT HF_CLUSTER HF_NET HF_PODNET HF_BRIDGE HF_NODES

if [ ${#HF_BRIDGE} -gt 12 ]; then
  echo "env.sh: HF_BRIDGE=$HF_BRIDGE: at most 12 characters (the kernel allows 15 for $HF_BRIDGE-N)" >&2
  exit 2
fi

kubectl() { "$HF_BIN/kubectl" --kubeconfig "$HF_PKI/admin.kubeconfig" "$@"; }
