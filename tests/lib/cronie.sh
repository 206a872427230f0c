#!/bin/sh
# Prints where cronie is: Debian's package of the version after this one, unpacked and not installed, with the C library
# that it needs. Fetches them once.
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests
out=$cache/cronie
mkdir -p "$cache"
exec 9>"$cache/cronie.lock"
flock 9
if [ ! -e "$out/.done" ]; then
  rm -rf "$out" && mkdir -p "$out/lists/partial" "$out/debs" "$out/root"
  # shellcheck disable=SC2016
  site=$(apt-get indextargets --format '$(SITE) $(CODENAME)' "Created-By: Packages" | sed -n 's/ bookworm$//p' | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >"$out/list"
  lists="-o Dir::Etc::sourcelist=$out/list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$out/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
  # shellcheck disable=SC2086
  (apt-get $lists update -q && cd "$out/debs" && apt-get $lists download -q cronie libc6) >&2
  for deb in "$out"/debs/*.deb; do
    dpkg-deb -x "$deb" "$out/root"
  done
  rm -rf "$out/debs" "$out/lists"
  touch "$out/.done"
fi
echo "$out/root"
