#!/bin/sh
# Runs entries of the tests' queue again and again: N times alone, and N times beside a load of four busy processes for each processor.
# Prints which failed and how often, and keeps what those wrote. Fails if one did.
#   again.sh N DIRECTORY PATTERN...   a PATTERN of the shell, of entries as make test-entries prints them, which come on standard input
set -eu
cd "$(dirname "$0")/../.."
times=$1 kept=$2
shift 2
chosen=''
while read -r entry; do
  for pattern in "$@"; do
    # shellcheck disable=SC2254
    case $entry in $pattern) chosen="$chosen $entry" && break ;; esac
  done
done
[ -n "$chosen" ] || { echo "again.sh: no entry of make test-entries is like $*" >&2; exit 2; }
rm -rf "$kept" && mkdir -p "$kept"
busy=''
trap 'kill $busy 2>/dev/null || :' EXIT

# What failed of the chosen entries, in so many runs: "COUNT ENTRY".
failed=0
round() {
  for run in $(seq "$times"); do
    results=$kept/$1-$run
    mkdir "$results"
    for entry in $chosen; do
      RESULTS=$results tests/lib/job.sh "$entry" >/dev/null 2>&1 && rm -f "$results/$(echo "$entry" | tr / +)".*
    done
    rmdir "$results" 2>/dev/null || :
  done
  for entry in $chosen; do
    found=$(find "$kept" -path "$kept/$1-*/$(echo "$entry" | tr / +).end" | wc -l)
    [ "$found" = 0 ] && continue
    failed=1
    echo "$entry failed $found times of $times, $1: $kept/$1-*"
  done
}

round alone
for _ in $(seq $((4 * $(nproc)))); do
  (while :; do :; done) &
  busy="$busy $!"
done
round beside-a-load
[ "$failed" = 1 ] || echo "none of $(echo "$chosen" | wc -w) entries failed, $times times alone and $times beside a load"
exit "$failed"
