#!/bin/sh
# Prints where the given packages of Debian 13, the one after Debian 12, are: unpacked, and not installed. Fetches them once.
#   next_debian.sh cronie libc6
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests
out=$cache/next-debian-$(echo "$@" | tr ' ' -)
mkdir -p "$cache"
exec 9>"$out.lock"
flock 9
if [ ! -e "$out/.done" ]; then
  rm -rf "$out" && mkdir -p "$out/lists/partial" "$out/debs" "$out/root"
  site=$("$(dirname "$0")/../../scripts/mirror.sh")
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >"$out/list"
  lists="-o Dir::Etc::sourcelist=$out/list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$out/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
  # shellcheck disable=SC2086
  (apt-get $lists update -q && cd "$out/debs" && apt-get $lists download -q "$@") >&2
  for deb in "$out"/debs/*.deb; do
    dpkg-deb -x "$deb" "$out/root"
  done
  rm -rf "$out/debs" "$out/lists"
  touch "$out/.done"
fi
echo "$out/root"
