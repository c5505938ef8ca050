#!/bin/bash
# build.sh release|faults|test|tsan|bench|sim [TARGET...]: configures and builds one flavour in build/<flavour>, or only these targets of it.
# release: what users run. faults: the same with fault points. test: with the tests, AddressSanitizer, UBSan and fault points. bench: release
# with what only a benchmark runs. sim: release with the simulation (tests/sim). A warning is an error in what tests run; nobody's build of a release fails for what another compiler thinks.
set -euo pipefail
strict=-DCMAKE_COMPILE_WARNING_AS_ERROR=ON
root=$(cd "$(dirname "$0")/.." && pwd)
case "$1" in
  release) flags="-DCMAKE_BUILD_TYPE=Release -DHOLDFAST_TESTS=OFF" ;;
  faults) flags="$strict -DCMAKE_BUILD_TYPE=Release -DHOLDFAST_TESTS=OFF -DHOLDFAST_FAULT_POINTS=ON" ;;
  test) flags="$strict -DCMAKE_BUILD_TYPE=Release -DHOLDFAST_SANITIZE=address -DHOLDFAST_FAULT_POINTS=ON" ;;
  tsan) flags="$strict -DCMAKE_BUILD_TYPE=Release -DHOLDFAST_SANITIZE=thread -DHOLDFAST_FAULT_POINTS=ON" ;;
  sim) flags="$strict -DCMAKE_BUILD_TYPE=Release -DHOLDFAST_TESTS=OFF -DHOLDFAST_SIM=ON" ;;
  bench) flags="-DCMAKE_BUILD_TYPE=Release -DHOLDFAST_TESTS=OFF -DHOLDFAST_BENCH=ON" ;;
  *) echo "usage: $0 release|faults|test|tsan|bench|sim [TARGET...]" >&2; exit 2 ;;
esac
log=$root/build/$1.log
mkdir -p "$root/build"
# shellcheck disable=SC2086
cmake -S "$root" -B "$root/build/$1" -G Ninja $flags > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
NINJA_STATUS="[%f/%t %es] " ninja -C "$root/build/$1" "${@:2}" >> "$log" 2>&1 &
ninja=$!
while kill -0 $ninja 2>/dev/null; do
  for _ in $(seq 100); do if kill -0 $ninja 2>/dev/null; then sleep 0.2; else break; fi; done
  kill -0 $ninja 2>/dev/null && echo "  building $1: $(tail -c 300 "$log" | tr '\r' '\n' | grep -o '^\[[0-9]*/[0-9]* [^]]*\]' | tail -1)" >&2
done
wait $ninja || { grep -E -A12 'error|FAILED' "$log" | head -60 >&2; echo "build failed; the whole log: $log" >&2; exit 1; }
