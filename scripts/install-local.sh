#!/bin/bash
# install-local.sh : the local cluster up, the current build loaded into it as an image, Holdfast installed by its chart, both workers ready.
# Does only what is missing. HF_FAULT_POINTS=1: the build with fault points, for tests. HF_IMAGE: an archive of make-image.sh of that build;
# nothing is built then.
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

say "starting the local cluster, where it is not up"
"$root/tests/cluster/up.sh"
image=${HF_IMAGE:-}
if [ -z "$image" ]; then
  say "building Holdfast ($flavour)"
  mkdir -p "$root/build"
  exec 8>"$root/build/$flavour.lock"   # clusters side by side have one build folder
  flock 8
  "$root/scripts/build.sh" "$flavour"
  image=$("$root/scripts/make-image.sh" "$root/build/$flavour")   # prints the archive's path; its name ends in the content's hash
  exec 8>&-
fi
tag=$(basename "$image" .tar); tag=${tag##*-}
if ! grep -qxs "$tag" "$HF_RUN/image"; then
  say "loading the image into the nodes"
  "$root/tests/cluster/load-image.sh" "$image"
  echo "$tag" > "$HF_RUN/image"
fi
installed="$tag $flavour $(cat "$root"/charts/holdfast/*.yaml "$root"/charts/holdfast/templates/* "$root"/crds/*.yaml "$root"/tests/cluster/values*.yaml | sha256sum)"
helm() { KUBECONFIG=$HF_PKI/admin.kubeconfig "$HF_BIN/helm" "$@"; }
if ! grep -qxFs "$installed" "$HF_RUN/installed" || ! helm status holdfast --namespace holdfast-system >/dev/null 2>&1; then
  say "installing the chart"
  "$root/tests/cluster/kubectl" apply --server-side --force-conflicts -f "$root/crds" >/dev/null
  helm upgrade --install holdfast "$root/charts/holdfast" --namespace holdfast-system --create-namespace \
    "${values[@]}" --set image.tag="$tag" >/dev/null
  say "waiting for controller, store and agents"
  for what in deployment/holdfast-controller deployment/holdfast-activator statefulset/holdfast-store daemonset/holdfast-agent; do
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
