#!/bin/sh
# Runs the given entries of the tests' queue (job.sh) under prove, JOBS at a time, in the order that queue.txt asks for: what takes
# longest begins first, so that nothing long is left at the end; what needs the machine for itself comes last, one at a time.
# TAP=1 prints every sentence, else there is prove's summary.
set -eu
say=--failures
[ -z "${TAP:-}" ] || say=--verbose
cd "$(dirname "$0")/../.."
given=$(mktemp)
trap 'rm -f "$given"' EXIT
printf '%s\n' "$@" >"$given"

named() {
  sed -n "s/^$1  *\([^ ]*\).*/\1/p" tests/lib/queue.txt
}

those() {
  grep -xFf "$given" || :
}

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

alone=$(named alone | those)
first=$(named first | those)
rest=$(printf '%s\n' "$first" "$alone" | grep -vxFf - "$given" || :)
now='' later='' status=0
for entry in $first $rest; do
  if waits "$entry"; then later="$later $entry"; else now="$now $entry"; fi
done
# shellcheck disable=SC2086
{
  run "${JOBS:-4}" $now $later || status=1
  run 1 $alone || status=1
}
exit "$status"
