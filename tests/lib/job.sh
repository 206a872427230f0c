#!/bin/sh
# Runs one entry of the tests' queue, SUITE:PROGRAM, as its suite wants it run, and prints its TAP when it has ended. With RESULTS (a
# directory) the TAP stays there too, and beside it what went to standard error; the exit status, the seconds, and those on a processor.
# prove calls this for each entry of queue.sh.
set -eu
cd "$(dirname "$0")/../.."
entry=$1 suite=${1%%:*} program=${1#*:} build=${BUILD:-build}

if [ -n "${RESULTS:-}" ]; then
  out=$RESULTS/$(echo "$entry" | tr / +)
else
  out=$(mktemp -u)
  trap 'rm -f "$out".*' EXIT
fi
: >"$out.err"

# A server that the Makefile builds or fetches: who comes while it is being built waits for it. What make says is kept until the end: of
# a job that has said anything prove wants a line of TAP next, and hears none of the other jobs meanwhile.
built() {
  MAKEFLAGS='' make --silent --no-print-directory "$1" >>"$out.err" 2>&1 || { cat "$out.err" >&2; exit 1; }
}

# The programs of the other suites, which make test-every builds beside its queue: who comes before they are there waits for them.
built_rest() {
  [ ! -e "$build/built-rest.lock" ] || flock --shared "$build/built-rest.lock" true
}

# The Debian of a test is one test's at a time: who waits for it does so before its seconds are counted.
workshop() {
  lock=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/debian/$1.lock
  mkdir -p "${lock%/*}"
  exec 8>>"$lock"
  flock --nonblock 8 || { echo "$lock is locked by $(cat "$lock"): waiting for it" >>"$out.err"; flock 8; }
  export WORKSHOP_LOCK=8
}

set -- "$program"
case $suite in
  asan | tsan | fuzz | arm64 | previous) built_rest ;;
esac
case $suite in
  plain) ;;
  trixie) workshop trixie ;;
  sim) set -- "$program" --seeds "${SEEDS:-20000}" ;;
  mutants) set -- nice "$program" ;;
  # The sanitizers make a race of candidates ten times as slow, so it has fewer rounds.
  asan) export RACE=100 LUNARCH="$PWD/build/asan/lunarch" ;;
  # On a disk: what is in memory is written without a thread (runtime/locks/file/lock_file.c). What a race is, any process of the test
  # may say, in a file of its own. Without random addresses, of which the kernel may use more bits than the sanitizer knows.
  tsan)
    export ON_DISK=1
    races=$(mktemp -d)
    chmod 1777 "$races" # some have another user
    export TSAN_OPTIONS="log_path=$races/race exitcode=0 die_after_fork=0 ${TSAN_OPTIONS:-}"
    if setarch -R true 2>/dev/null; then set -- setarch -R "$@"; fi ;;
  fuzz) set -- tests/fuzz/fuzz.py ci "$program" ;;
  # Debian 12's emulator refuses PR_SET_CHILD_SUBREAPER; the next one's does not. Its simulator does a tenth of the seeds.
  arm64)
    emulator=$(tests/lib/next_debian.sh qemu-user 2>>"$out.err")/usr/bin/qemu-aarch64
    case $program in */sim) set -- "$program" --seeds "$((${SEEDS:-20000} / 10))" ;; esac
    set -- "$emulator" -L build/aarch64-linux-gnu/sysroot "$@" ;;
  previous) export PREVIOUS="$PWD/$build/previous/build" ;;
  kube) built kube-server ;;
  store)
    case $program in
      *s3*) built s3-servers ;;
      *dynamodb*) built dynamodb-servers ;;
      *consul*) built consul-server ;;
      *gs*) built gcs-server ;;
      *azblob*) built azurite ;;
      *nats*) built nats-server ;;
      *) built dynamodb-servers; built consul-server; built gcs-server; built azurite; built nats-server ;;
    esac ;;
  mysql) export MYSQLD="${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/mysql/bin/mysqld" ;;
  etcd-*)
    built "$suite-server"
    export ETCD="${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/$suite/server" ;;
  zookeeper-*)
    built "$suite-server"
    export ZOOKEEPER="${suite#zookeeper-}" ;;
  *) echo "job.sh: no suite $suite" >&2; exit 2 ;;
esac

# A program that hangs is a failure with a name, not a run that never ends. Into files, not pipes: what it may leave behind holds
# nothing up.
began=$(date +%s) status=0
timeout --kill-after=10 "${LIMIT:-1200}" "$@" >"$out.tap" 2>>"$out.err" </dev/null || status=$?
if [ -n "${races:-}" ]; then
  cat "$races"/race* >>"$out.err" 2>/dev/null && status=66
  rm -rf "$races"
fi
seconds=$(($(date +%s) - began))
times >"$out.times" # POSIX: of this shell, then of its children that were waited for: "0m1.25s 0m0.50s"
cpu=$(tail -n 1 "$out.times" | tr 'ms' '  ' | awk '{ print 60 * ($1 + $3) + $2 + $4 }')
echo "$status $seconds $cpu" >"$out.end"
cat "$out.err" >&2
cat "$out.tap"
exit "$status"
