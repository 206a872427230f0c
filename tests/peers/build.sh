#!/bin/sh
# Builds the Go contender from etcd's published modules, once, outside the repository. Without Go: nothing, and make bench says so.
set -eu
cd "$(dirname "$0")"
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/peers
command -v go >/dev/null || exit 0
want=$(cat go.mod go.sum ./*.go build.sh | sha256sum; go version)
[ -x "$out/election" ] && [ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
mkdir -p "$out"
CGO_ENABLED=0 nice go build -trimpath -ldflags='-s -w' -o "$out/election" .
echo "$want" > "$out/built"
