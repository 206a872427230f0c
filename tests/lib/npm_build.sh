#!/bin/sh
# Installs what tests run that is published for Node.js, once, outside the repository:
#   npm_build.sh NAME PACKAGE.JSON    PACKAGE.JSON's dependencies, in the cache's NAME
# What these need in turn is taken as it was on one day, so that it is the same everywhere. No package runs a program when it is installed.
set -eu
name=$1 packages=$2 day=2026-11-25
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/$name

say() {
  echo "$name: $*"
}

install() {
  (cd "$out" && npm install --loglevel=error --before="$day" --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund --no-package-lock)
}

want=$({ cat "$packages" "$(realpath "$0")"; node --version; } | sha256sum)
[ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
command -v npm >/dev/null || { say "there is no npm in PATH: scripts/deps.sh test installs Debian's" >&2; exit 1; }
say "fetching packages for Node.js: a minute, the first time"
rm -rf "$out"
mkdir -p "$out"
cp "$packages" "$out/package.json"
install || { say "not done: trying again in a minute"; sleep 60; install; }
echo "$want" >"$out/built"
