#!/bin/sh
# Runs the given entries of the tests' queue (job.sh) under prove, JOBS at a time: what took longest last time (durations.txt) begins
# first, so that nothing long is left at the end; what needs the machine for itself (alone.txt) comes last, one at a time. Ends with the
# ten slowest. TAP=1 prints every sentence, else there is prove's summary.
set -eu
say=--failures
[ -z "${TAP:-}" ] || say=--verbose
cd "$(dirname "$0")/../.."
if [ -z "${RESULTS:-}" ]; then
  RESULTS=$(mktemp -d)
  export RESULTS
  trap 'rm -rf "$RESULTS"' EXIT
fi

# What waits for a server that is still to be built of Go modules would only take places.
waits() {
  case $1 in
    kube:* | etcd-*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/${1%%:*}/built" ] ;;
    store:*s3*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/s3/built" ] ;;
    store:*consul*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/consul/built" ] ;;
    *) false ;;
  esac
}

run() {
  jobs=$1
  shift
  [ $# = 0 ] || prove "$say" --exec tests/lib/job.sh --jobs "$jobs" "$@"
}

alone=' ' now='' later='' status=0
while read -r entry _; do
  case " $* " in *" $entry "*) alone="$alone$entry " ;; esac
done <tests/lib/alone.txt
for entry in $(printf '%s\n' "$@" | tests/lib/durations.py order); do
  case $alone in
    *" $entry "*) ;;
    *) if waits "$entry"; then later="$later $entry"; else now="$now $entry"; fi ;;
  esac
done
# shellcheck disable=SC2086
{
  run "${JOBS:-6}" $now $later || status=1
  run 1 $alone || status=1
}
tests/lib/durations.py tell "$RESULTS"
exit "$status"
