# Asks the shell inside by the keys that a person would press, once it has done what it was asked first.
[ -e /srv/ready ] || { echo "the shell has not written its lines yet" >&2 && exit 1; }
export TERM=xterm
n=$(cat /srv/n 2>/dev/null || echo 0)
tmux -S /srv/tmux send-keys -t work 'clear; n=$((n + 1)); echo $nonce $$ $(stty size) >/srv/shell; echo $n >/srv/n' Enter
for _ in $(seq 100); do
  [ "$(cat /srv/n 2>/dev/null || echo 0)" -gt "$n" ] && break
  sleep 0.05
done
for _ in $(seq 100); do # what the shell has written may still be in its terminal, on the way to tmux
  history=$(tmux -S /srv/tmux capture-pane -p -t work -S -400 -E -100 | grep -c '^line [0-9]* of the screen$')
  [ "$history" -ge 200 ] && break
  sleep 0.05
done
[ "$history" -ge 200 ] || errors="\"only $history lines above the screen\""
echo "{\"same\": {\"nonce and pid\": \"$(cat /srv/shell)\"}, \"grows\": {\"answers\": $(cat /srv/n)}, \"errors\": [$errors]}"
