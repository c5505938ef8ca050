#!/bin/bash
# least-priority.sh COMMAND...: runs it with what everything else leaves of the CPU. Where the kernel shares the CPU by session
# (kernel.sched_autogroup_enabled), nice counts only within one: so the command gets a session of its own, with the least priority of all.
setsid bash -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 "$@"' _ "$@" &
session=$!
trap 'kill -- -$session 2>/dev/null' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
wait $session
