#!/bin/bash
# test.sh [unit|integration|e2e|fuzz…] : set-up, then every test (or the labels given), closed by ctest's summary.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
labels=$(IFS='|'; echo "$*")
"$root/scripts/build.sh" test
case "${labels:-all}" in
  all|*e2e*) HF_FAULT_POINTS=1 "$root/scripts/install-local.sh" ;;
esac
cd "$root/build/test"
HF_INSTALLED=1 ctest -j2 --output-on-failure ${labels:+-L "^($labels)\$"}
