#!/bin/sh
# Runs the given entries of the tests' queue (job.sh) under prove, JOBS at a time: what took longest last time (durations.txt) begins
# first, so that nothing long is left at the end. Ends with the ten slowest. TAP=1 prints every sentence, else there is prove's summary.
set -eu
say=--failures
[ -z "${TAP:-}" ] || say=--verbose
cd "$(dirname "$0")/../.."
if [ -z "${RESULTS:-}" ]; then
  RESULTS=$(mktemp -d)
  export RESULTS
  trap 'rm -rf "$RESULTS"' EXIT
fi

building=''
flock --shared --nonblock "${BUILD:-build}/built-rest.lock" true 2>/dev/null || building=1

# What waits for a program or a server that is still to be built would only take places.
waits() {
  case $1 in
    asan:* | tsan:* | fuzz:* | arm64:* | previous:*) [ "$building" ] ;;
    kube:* | etcd-*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/${1%%:*}/built" ] ;;
    store:*s3*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/s3/built" ] ;;
    store:*gs*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/gcs/built" ] ;;
    store:*azblob*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/azurite/built" ] ;;
    store:*dynamodb*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/dynamodb/built" ] ;;
    store:*consul*) [ ! -e "${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/consul/built" ] ;;
    *) false ;;
  esac
}

now='' later='' status=0
for entry in $(printf '%s\n' "$@" | tests/lib/durations.py order); do
  if waits "$entry"; then later="$later $entry"; else now="$now $entry"; fi
done
# shellcheck disable=SC2086
prove "$say" --exec tests/lib/job.sh --jobs "${JOBS:-8}" $now $later || status=1
tests/lib/durations.py tell "$RESULTS"
exit "$status"
