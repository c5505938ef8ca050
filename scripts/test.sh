#!/bin/bash
# test.sh [unit|integration|e2e|fuzz…] : set-up, then every test (or the labels given), closed by ctest's summary. End-to-end tests run on
# HF_TEST_CLUSTERS local clusters side by side (default 3: slots 0 to 2).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
labels=$(IFS='|'; echo "$*")
"$root/scripts/build.sh" test
case "${labels:-all}" in
  all|*e2e*)
    slots=$(seq 0 $((${HF_TEST_CLUSTERS:-3} - 1)))
    HF_SLOT=0 HF_FAULT_POINTS=1 "$root/scripts/install-local.sh"  # builds what the others install
    starting=()
    for slot in ${slots#0}; do
      HF_SLOT=$slot HF_FAULT_POINTS=1 "$root/scripts/install-local.sh" | sed "s/^/cluster $slot: /" &
      starting+=($!)
    done
    for pid in ${starting[@]+"${starting[@]}"}; do wait "$pid"; done ;;
esac
cd "$root/build/test"
clusters=$(for slot in ${slots:-0}; do printf ', {"id": "%s", "slots": 1}' "$slot"; done)
echo '{"version": {"major": 1, "minor": 0}, "local": [{"clusters": ['"${clusters#, }"']}]}' > clusters.json
HF_INSTALLED=1 ctest -j$(($(nproc) + 2)) --resource-spec-file clusters.json --output-on-failure ${labels:+-L "^($labels)\$"}
