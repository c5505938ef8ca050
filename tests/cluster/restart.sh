#!/bin/bash
# restart.sh NODE containerd|kubelet|kube-proxy [SIGNAL]: ends a component on a node (default: TERM) and waits until its supervisor has
# started the next one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
old=$("$here/node-exec" "$1" cat "/run/node/$2.pid")
"$here/node-exec" "$1" kill "-${3:-TERM}" "$old"
back() { [ "$("$here/node-exec" "$1" cat "/run/node/$2.pid")" != "$old" ]; }
wait_for "$2 on $1" 30 "$HF_RUN/$1/log/$2.log" back "$1" "$2"
