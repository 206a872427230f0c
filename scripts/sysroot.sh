#!/bin/sh
# Unpacks, without installing anything, Debian's libraries for another machine, and what they need, to build with (make CROSS=...). What they
# are is in its var/lib/dpkg, as dpkg-query(1) reads it:
#   sysroot.sh TRIPLET DIRECTORY [SUITE [PACKAGE...]]
# TRIPLET is a compiler's (aarch64-linux-gnu); SUITE is this machine's Debian, if it is not given; PACKAGEs are instead of the libraries.
# Needs a mirror, not root. Done once for each list of packages.
set -eu
cd "$(dirname "$0")/.."
triplet=${1:?for which machine: CROSS=aarch64-linux-gnu} out=$2 
arch=$(dpkg-architecture -f -t "$triplet" -q DEB_HOST_ARCH 2>/dev/null)
# shellcheck source=/dev/null
suite=${3:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
shift "$(($# < 3 ? $# : 3))"
if [ $# = 0 ]; then
  set -- libc6-dev liblua5.4-dev libev-dev libjansson-dev lua-cjson tzdata ca-certificates # the last two for the image
  while IFS='|' read -r module _ _ _ build _; do
    # shellcheck disable=SC2086,SC2046 # words; what is no library runs here
    case $module in '#'*) ;; *) set -- "$@" $(printf '%s\n' $build | grep '^lib') ;; esac
  done <runtime/modules.txt
fi
want=$({ echo "$suite $arch $*"; cat scripts/sysroot.sh; } | sha256sum)
[ "$(cat "$out/made-of" 2>/dev/null)" != "$want" ] || exit 0
echo "sysroot: Debian $suite for $arch, in $out"
rm -rf "$out"
mkdir -p "$out/apt/lists/partial" "$out/apt/archives/partial"
out=$(realpath "$out")
site=$(scripts/mirror.sh)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite main" >"$out/apt/sources.list"
: >"$out/apt/status"
apt() {
  apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::Etc::sourcelist="$out/apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$out/apt/lists" -o Dir::State::status="$out/apt/status" -o Dir::Cache="$out/apt" "$@"
}
fetch() {
  { apt update && apt install --yes --no-install-recommends --download-only "$@"; } >"$out/log" 2>&1
}
fetch "$@" || { echo "sysroot: not fetched, trying again in a minute"; sleep 60; fetch "$@"; } || {
  tail -n 20 "$out/log" >&2
  exit 1
}
# The oldest form of dpkg's database, in which no name of a file has an architecture.
db=$out/var/lib/dpkg
mkdir -p "$db/info" "$db/updates"
{ dpkg --print-architecture && echo "$arch"; } | sort -u >"$db/arch"
for deb in "$out"/apt/archives/*.deb; do
  dpkg-deb -x "$deb" "$out"
  package=$(dpkg-deb -f "$deb" Package)
  { dpkg-deb -f "$deb" && printf 'Status: install ok installed\n\n'; } >>"$db/status"
  dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's|^\.||; s|\(.\)/$|\1|; s|^/$|/.|' >"$db/info/$package.list"
  for told in symbols shlibs; do
    dpkg-deb --ctrl-tarfile "$deb" | tar -xO "./$told" >"$db/info/$package.$told" 2>/dev/null || rm "$db/info/$package.$told"
  done
done
# Links that name a file from the root on would name this machine's. The directory may be moved.
find "$out" -lname '/*' | while read -r link; do ln -sfnr "$out$(readlink "$link")" "$link"; done
rm -rf "$out/apt"
echo "$want" >"$out/made-of"
