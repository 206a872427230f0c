#!/bin/sh
# Unpacks, without installing anything, what the machine of tests/cluster/nfs is made of: Debian's kernel and its NFS server. Into the cache's
# nfs-root, once for each set of versions.
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests
out=$cache/nfs-root
mkdir -p "$cache/nfs-lists/partial"

apt() {
  tool=$1
  shift
  # shellcheck disable=SC2086
  "$tool" $lists "$@"
}

# The kernel's package has its version in its name, which changes with each update.
packages() {
  kernel=$(apt apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')
  echo "$kernel busybox-static iptables libip4tc2 libip6tc2 libxtables12 libnetfilter-conntrack3 libnfnetlink0 libmnl0 libnftnl11" \
    "libtirpc3 libtirpc-common libevent-core-2.1-7 libsqlite3-0 libwrap0 libnsl2 libnfsidmap1 libkeyutils1 nfs-common nfs-kernel-server rpcbind"
}

# Prints what is to be fetched, or fails where the lists are missing or older than the archive.
wanted() {
  # shellcheck disable=SC2046
  apt apt-get download --print-uris $(packages) 2>/dev/null
}

fetch() {
  rm -rf "$out" "$cache/nfs-debs"
  mkdir -p "$out" "$cache/nfs-debs"
  # shellcheck disable=SC2046
  (cd "$cache/nfs-debs" && apt apt-get download -q $(packages) >/dev/null 2>&1) || return 1
  for deb in "$cache"/nfs-debs/*.deb; do
    dpkg-deb -x "$deb" "$out"
  done
  rm -rf "$cache/nfs-debs"
  "$out/bin/busybox" depmod -b "$out" "$(ls "$out/lib/modules")"
  wanted >"$out/.made-of"
}

lists=""
[ -e "$out/.made-of" ] && { ! wanted >"$cache/nfs-wanted" || cmp -s "$cache/nfs-wanted" "$out/.made-of"; } && exit 0
echo "nfs: fetching a kernel and an NFS server (30 MB)"
fetch && exit 0
# The system's own lists need root; these do not.
lists="-o Dir::State::lists=$cache/nfs-lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
apt apt-get update -q >/dev/null
fetch || { echo "nfs: Debian's packages could not be fetched: $(packages)" >&2; exit 1; }
