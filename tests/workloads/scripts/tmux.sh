# tmux with an interactive shell on a terminal of its own, and 500 lines above its screen.
export TERM=xterm HOME=/root LANG=C.UTF-8
tmux -S /srv/tmux -f /dev/null new-session -d -s work -x 100 -y 30 'exec bash --norc'
tmux -S /srv/tmux send-keys -t work 'nonce=$RANDOM$RANDOM$RANDOM; n=0; seq -f "line %g of the screen" 500; : >/srv/ready' Enter
exec sleep 1000000
