#!/bin/bash
# why.sh [NAME]: a screenful about the end-to-end test that failed last (or the one whose name contains NAME): what it said, and what was on
# its cluster then. Everything that was kept lies in the folder that the first line names.
set -euo pipefail
kept=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/gate/evidence
folder=$(find "$kept" -mindepth 1 -maxdepth 1 -type d -name "*${1:-}*" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -1 | cut -d' ' -f2-)
[ -n "$folder" ] || { echo "why.sh: nothing failed in the last run${1:+ whose name contains $1} ($kept)" >&2; exit 1; }
part() { # TITLE FILE LINES
  [ -s "$folder/$2" ] || return 0
  printf '\n== %s\n' "$1"
  tail -n "$3" "$folder/$2" | cut -c1-220
}
echo "$folder"
part "what it said" failure.txt 14
part "pods" pods.txt 12
part "Checkpoints" checkpoints.txt 8
part "frozen, and other things on the nodes" nodes.txt 8
part "events" events.txt 14
printf '\n== what the logs warn of\n'
grep -hsE '"level":"(error|warning)"|^E[0-9]{4} ' "$folder"/logs/holdfast-* "$folder"/logs/node*-kubelet.log | tail -n 14 | cut -c1-220 || true
