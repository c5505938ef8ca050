# A shell script as people write them: variables, arrays, a job in the background, a coprocess, a here document that is not read yet, traps.
nonce=$RANDOM$RANDOM$RANDOM
declare -A map=([one]=1 [two]=2)
list=()
trap 'trapped="$nonce by a trap"' USR1
(n=0; while :; do n=$((n + 1)); echo "$n" >/srv/background.new; mv /srv/background.new /srv/background; sleep 0.05; done) &
job=$!
coproc UPPER { while read -r line; do echo "${line^^}"; done; }
exec 7<<<"a here document"
n=0 errors=
complain() { errors="\"$1\""; }
while :; do
  n=$((n + 1))
  list+=("$n")
  [ ${#list[@]} -lt 200 ] || list=("${list[@]:100}")
  [ "${list[-1]}" = "$n" ] || complain "the array ends in ${list[-1]}, not $n"
  echo "hello $n" >&"${UPPER[1]}"
  read -r answer <&"${UPPER[0]}"
  [ "$answer" = "HELLO $n" ] || complain "the coprocess said $answer after $n"
  jobs -r | grep -q 'n=0' || complain "the job is not the shell's any more"
  kill -0 "$job" || complain "the job has ended"
  received=
  if [ -e /run/finish ]; then
    if [ -z "$trapped" ]; then
      kill -USR1 $$
      read -r document <&7
      [ "$document" = "a here document" ] || complain "the here document is $document"
    fi
    [ "$trapped" = "$nonce by a trap" ] && received=', "received": true'
  fi
  echo "{\"same\": {\"nonce\": \"$nonce\", \"job\": $job, \"map\": \"${map[one]} ${map[two]}\"$received}, \"grows\": {\"loop\": $n, \"job\": $(</srv/background)}, \"errors\": [$errors]}" >/run/.now
  mv /run/.now /run/now
  sleep 0.05
done
