# shellcheck shell=bash
# Helpers of the cluster's scripts: bounded waits and progress lines.

say() { printf '%s\n' "$*"; }
fail() { printf '%s: error: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# wait_for WHAT SECONDS LOG COMMAND...: runs COMMAND until it succeeds. Too late, or as soon as the process $watch_pid (if set) has ended:
# says so, with the end of LOG, and fails.
wait_for() {
  local what=$1 seconds=$2 log=$3 end why; shift 3
  end=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    why=
    [ "$SECONDS" -lt "$end" ] || why="not there after $seconds s"
    [ -z "${watch_pid:-}" ] || grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$watch_pid/status" || why="its process has ended"
    if [ -n "$why" ]; then
      printf '%s: error: %s: %s. The end of %s:\n' "${0##*/}" "$what" "$why" "$log" >&2
      tail -n 25 "$log" 2>/dev/null | cut -c1-400 >&2
      return 1
    fi
    sleep 0.1
  done
}

# step WHAT LOG COMMAND...: runs COMMAND with its output in LOG, tells when it began, each 20 s, and how long it took. On failure
# shows the end of LOG and returns COMMAND's status.
step() {
  local what=$1 log=$2 begin=$SECONDS pid status=0 told=0; shift 2
  mkdir -p "$(dirname "$log")"
  say "$what ..."
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if [ $((SECONDS - begin - told)) -ge 20 ]; then told=$((SECONDS - begin)); say "  $what: ${told} s (log: $log)"; fi
  done
  wait "$pid" || status=$?
  if [ "$status" -ne 0 ]; then
    printf '%s: error: %s failed (status %s) after %s s. The end of %s:\n' "${0##*/}" "$what" "$status" $((SECONDS - begin)) "$log" >&2
    tail -n 25 "$log" >&2
    return "$status"
  fi
  say "  $what: done in $((SECONDS - begin)) s"
}

# node_pid NODE: pid of the node's first process as this machine sees it; empty when the node does not run.
node_pid() {
  local pid
  pid=$(cat "$HF_RUN/$1.pid" 2>/dev/null) || return 1
  # A reused pid is not the node: the first process of a node is in a pid namespace of its own.
  [ -n "$pid" ] && [ -e "/proc/$pid/ns/pid" ] && [ "$(readlink "/proc/$pid/ns/pid")" != "$(readlink /proc/self/ns/pid)" ] && echo "$pid"
}

# debian_mirror: the mirror that this machine's apt uses; status 1 when there is none.
debian_mirror() {
  local mirror
  # Either kind of list may be missing, and grep may close the pipe early: only the answer counts.
  mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null |
    sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\(\S*\) .*/\2/p' | grep -m1 '/debian/\?$') || true
  [ -n "$mirror" ] && echo "$mirror"
}
