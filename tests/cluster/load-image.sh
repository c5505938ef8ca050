#!/bin/bash
# load-image.sh IMAGE.tar...: imports OCI archives into every node of the running cluster, in parallel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
for tar in "$@"; do
  [ -s "$tar" ] || fail "no such image: $tar"
  name=load-$$-$(basename "$tar")
  importing=()
  for n in $(seq "$HF_NODES"); do
    node_pid "node$n" >/dev/null || fail "node$n does not run in cluster $HF_CLUSTER: tests/cluster/up.sh starts it"
    # A node sees its images folder as /opt/images; a hard link costs nothing.
    ln -f "$tar" "$HF_RUN/node$n/images/$name" 2>/dev/null || cp "$tar" "$HF_RUN/node$n/images/$name"
    "$here/node-exec" "node$n" ctr -n k8s.io images import "/opt/images/$name" >"$HF_RUN/node$n/log/import.log" 2>&1 &
    importing+=($!)
  done
  n=0
  for pid in "${importing[@]}"; do
    n=$((n + 1))
    wait "$pid" || { tail -n 5 "$HF_RUN/node$n/log/import.log" >&2; fail "node$n did not import $tar"; }
    rm -f "$HF_RUN/node$n/images/$name"
  done
done
