#!/bin/sh
# Which libraries of this Debian the built program and its modules load, and of which packages. Sourced by image.sh and tarball.sh at the
# checkout's root. Files are read, not run: with CROSS=aarch64-linux-gnu those of that architecture, in SYSROOT (scripts/sysroot.sh).
: "${CROSS:=}" "${SYSROOT:=}"
[ -z "$SYSROOT" ] || export DPKG_ADMINDIR="$SYSROOT/var/lib/dpkg"
tool() { echo "${CROSS:+$CROSS-}$1"; }
triplet=$($(tool gcc) -print-multiarch)
# As Go, and so the OCI, name it.
# shellcheck disable=SC2034
case $triplet in x86_64-*) architecture=amd64 ;; aarch64-*) architecture=arm64 ;; *) architecture=${triplet%%-*} ;; esac

# The version of the C library that the files need: their newest symbol's.
glibc_needed() {
  readelf -W -V "$@" 2>/dev/null | sed -n 's/.*Name: GLIBC_\([0-9][0-9.]*\) .*/\1/p; s/.*Name: GLIBC_ABI_DT_RELR .*/2.36/p' | sort -V | tail -n 1
}

# The libraries that the files need, and those that these need.
loaded() (
  seen=' ' todo=$*
  while [ -n "$todo" ]; do
    more=''
    # shellcheck disable=SC2086
    for name in $(readelf -d $todo | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | sort -u); do
      case "$name $seen" in ld-linux* | *" $name "*) continue ;; esac # the loader is in no directory of libraries
      seen="$seen$name "
      place=/lib/$triplet/$name
      [ -e "$SYSROOT$place" ] || place=/usr$place
      [ -e "$SYSROOT$place" ] || { echo "$name is not in $SYSROOT/lib/$triplet: is its package installed?" >&2 && exit 1; }
      more="$more $SYSROOT$place"
      echo "$place"
    done
    todo=$more
  done
)

# For each file its package and itself, a line each. /lib is a link, so a file may be known by either name.
with_package() {
  while read -r file; do
    { dpkg-query -S "$file" || dpkg-query -S "$(readlink -f "$SYSROOT$file" | sed "s|^$SYSROOT||")" || dpkg-query -S "/usr$file"; } 2>/dev/null |
      sed -n "1s|: .*| $file|p"
  done
}

# libraries BUILD OUT. OUT/system has those that each system has of its own: the C library's, gcc's, the loader. OUT/libraries the others,
# with MariaDB's ways to log in; OUT/linked those that the program has inside. Lines are PACKAGE:ARCHITECTURE PATH.
libraries() {
  loaded "$1/lunarch" "$1"/modules/*.so >"$2/loaded"
  {
    # Beside what the files name: what pthread_cancel(3) opens, and the loader.
    echo "/lib/$triplet/libgcc_s.so.1"
    readelf -l "$1/lunarch" | sed -n 's/.*interpreter: \(.*\)\]$/\1/p'
  } | with_package >"$2/system"
  printf '%s\n' "$SYSROOT/usr/lib/$triplet"/libmariadb3/plugin/*.so | sed "s|^$SYSROOT||" | cat "$2/loaded" - | with_package | sort >"$2/libraries"
  glibc=$(sed -n 's| .*/libc\.so\.6$||p' "$2/libraries")
  grep "^$glibc " "$2/libraries" >>"$2/system"
  sed -i "/^$glibc /d" "$2/libraries"
  : >"$2/linked"
  grep -q /liblua5.4 "$2/loaded" ||
    printf '%s\n' "/usr/lib/$triplet/liblua5.4.a" "/usr/lib/$triplet/libjansson.a" "/usr/lib/$triplet/libev.a" | with_package >"$2/linked"
}
