#!/bin/sh
# Builds what tests and benchmarks run that is published as Go modules, once, outside the repository:
#   go_build.sh NAME DIRECTORY PACKAGE...    of DIRECTORY's module, into the cache's NAME
# Go itself, where there is only an older one (Debian 12's is 1.19), is a published module too, and comes the same way.
set -eu
name=$1 script=$(realpath "$0")
cd "$2"
shift 2
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/$name
needed=$(sed -n 's/^go 1\.\([0-9]*\).*/\1/p' go.mod)
toolchain=1.24.13
# Two at a time, without what only debuggers need: a fifth less to do.
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-buildvcs=false -modcacherw -p=2"

say() {
  echo "$name: $*"
}

# Modules' servers may be out of order for a moment; what has been fetched and built is kept.
twice() {
  "$@" || { say "not done: trying again in a minute"; sleep 60; "$@"; }
}

minor() {
  "$1" env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p'
}

# A go that knows nothing of toolchains unpacks it as any module: its programs cannot be run, and its own go.mod has another name,
# since no module may lie inside another. A newer go does the same two things when it fetches one.
fetch_go() {
  at=golang.org/toolchain@v0.0.1-go$toolchain.linux-$("$1" env GOARCH)
  root=$("$1" env GOMODCACHE)/$at
  if [ ! -e "$root/src/go.mod" ]; then
    say "$("$1" env GOVERSION) is too old: fetching Go $toolchain's module (80 MB)"
    (cd / && twice "$1" mod download "$at")
    chmod -R u+w "$root"
    chmod +x "$root"/bin/* "$root"/pkg/tool/*/*
    cp "$root/src/_go.mod" "$root/src/go.mod.new"
    mv "$root/src/go.mod.new" "$root/src/go.mod"
  fi
  go=$root/bin/go
  unset GOROOT
}

# go build -v names each package, and each module that it fetches: a line for every hundred, and whatever else it says.
progress() {
  packages=0 modules=0
  while read -r line; do
    case $line in
      "go: downloading "*) modules=$((modules + 1)); [ $((modules % 50)) != 0 ] || say "$modules modules" ;;
      *[\ :]*) echo "$line" ;;
      *) packages=$((packages + 1)); [ $((packages % 100)) != 0 ] || say "$packages packages of about $(wc -l <"$out/packages")" ;;
    esac
  done
}

build() {
  failed=$out/failed
  rm -f "$failed"
  {
    {
      nice "$go" list -deps "$@" >"$out/packages" &&
        nice "$go" build -v -trimpath -gcflags=all=-dwarf=false -ldflags='-s -w' -o "$out/new/" "$@"
    } || : >"$failed"
  } 2>&1 | progress
  [ ! -e "$failed" ]
}

want=$({ cat go.mod go.sum "$script"; find . -name '*.go' -exec cat {} +; echo "$@"; } | sha256sum)
[ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
go=$(command -v go || :)
[ -n "$go" ] || { say "there is no go in PATH: scripts/deps.sh go installs Debian's golang-go, which will do" >&2; exit 1; }
mkdir -p "$out/new"
[ "$(minor "$go")" -ge "$needed" ] || fetch_go "$go"
say "building $* with $("$go" env GOVERSION): minutes, the first time"
began=$(date +%s)
twice build "$@"
mv "$out"/new/* "$out"
echo "$want" >"$out/built"
say "built in $(($(date +%s) - began)) s"
