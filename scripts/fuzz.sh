#!/bin/bash
# fuzz.sh [SECONDS [TARGET...]]: builds tests/fuzz with Clang and runs each target for SECONDS (60), HF_FUZZ_JOBS (2) at a time. What it finds new stays
# in the cache; a crash is named, and kept in build/fuzz/crashes. Corpus: tests/fuzz/corpus/TARGET.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd "$root/tests/fuzz" && printf '%s\n' *_fuzz.cc | sed 's/_fuzz.cc//')
build=$root/build/fuzz
found=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/fuzz
mkdir -p "$build/crashes" "$root/build"
CC=clang-14 CXX=clang++-14 cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHOLDFAST_TESTS=OFF -DHOLDFAST_FUZZ=ON >"$root/build/fuzz.log" 2>&1 ||
  { cat "$root/build/fuzz.log" >&2; exit 1; }
ninja -C "$build" "${targets[@]/#/fuzz_}" >>"$root/build/fuzz.log" 2>&1 || { grep -E -A12 'error|FAILED' "$root/build/fuzz.log" | head -60 >&2; exit 1; }
one() { # TARGET
  mkdir -p "$found/$1"
  if "$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/crashes/$1-" "$found/$1" "$root/tests/fuzz/corpus/$1" >"$build/$1.log" 2>&1; then
    echo "fuzz $1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$1.log") runs in $seconds s, nothing found"
  else
    tail -40 "$build/$1.log"
    echo "fuzz $1: FAILED (input: $build/crashes/$1-*)"
    return 1
  fi
}
export -f one
export build found root seconds
printf '%s\n' "${targets[@]}" | xargs -P"${HF_FUZZ_JOBS:-2}" -I{} bash -c 'one {}'
