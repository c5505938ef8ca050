#!/bin/bash
# install-local.sh : the local cluster up, the current build loaded into it as an image, Holdfast installed by its chart, both workers ready.
# Does only what is missing. HF_FAULT_POINTS=1: the build with fault points, for tests.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/cluster/env.sh"
start=$SECONDS
say() { printf '[%4ds] %s\n' $((SECONDS - start)) "$*"; }
flavour=release
values=(--values "$root/tests/cluster/values.yaml")
if [ -n "${HF_FAULT_POINTS:-}" ]; then
  flavour=faults
  values+=(--values "$root/tests/cluster/values-faults.yaml")
fi

"$root/tests/cluster/kubectl" get --raw /readyz >/dev/null 2>&1 || { say "starting the local cluster"; "$root/tests/cluster/up.sh"; }
say "building Holdfast ($flavour)"
"$root/scripts/build.sh" "$flavour"
image=$("$root/scripts/make-image.sh" "$root/build/$flavour")   # prints the archive's path; its name ends in the content's hash
tag=$(basename "$image" .tar); tag=${tag##*-}
if ! grep -qxs "$tag" "$HF_RUN/image"; then
  say "loading the image into the nodes"
  "$root/tests/cluster/load-image.sh" "$image"
  echo "$tag" > "$HF_RUN/image"
fi
installed="$tag $flavour $(cat "$root"/charts/holdfast/*.yaml "$root"/charts/holdfast/templates/* "$root"/crds/*.yaml "$root"/tests/cluster/values*.yaml | sha256sum)"
if ! grep -qxFs "$installed" "$HF_RUN/installed"; then
  say "installing the chart"
  "$root/tests/cluster/kubectl" apply --server-side --force-conflicts -f "$root/crds" >/dev/null
  KUBECONFIG=$HF_PKI/admin.kubeconfig "$HF_BIN/helm" upgrade --install holdfast "$root/charts/holdfast" --namespace holdfast-system --create-namespace \
    "${values[@]}" --set image.tag="$tag" >/dev/null
  say "waiting for controller, store and agents"
  for what in deployment/holdfast-controller statefulset/holdfast-store daemonset/holdfast-agent; do
    "$root/tests/cluster/kubectl" -n holdfast-system rollout status "$what" --timeout=180s >/dev/null
  done
  echo "$installed" > "$HF_RUN/installed"
fi
for _ in $(seq 240); do
  [ "$("$root/tests/cluster/kubectl" get nodes -l holdfast.dev/runtime=ready --no-headers 2>/dev/null | wc -l)" -ge 2 ] && { say "ready: both workers carry holdfast.dev/runtime=ready"; exit 0; }
  sleep 0.5
done
say "the workers did not become ready within 120 s; the agents say:" >&2
"$root/tests/cluster/kubectl" -n holdfast-system logs daemonset/holdfast-agent --tail=20 >&2 || true
exit 1
