#!/bin/sh
# Makes Debian's packages of what git tracks here, as it is now, and has lintian(1) look at them:
#   packaging/deb.sh DIRECTORY [VERSION]
# The version is CHANGELOG.md's first heading. What is no release (no tag vVERSION) sorts before it, by the commit's time.
# With CROSS=aarch64-linux-gnu and SYSROOT (scripts/sysroot.sh) of that architecture: what would have to be installed to build is there.
set -eu
cd "$(dirname "$0")/.."
out=$1
release=$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
tree=$(scripts/git.sh stash create)
epoch=$(scripts/git.sh log -1 --format=%ct)
version=${2:-}
if [ -z "$version" ]; then
  version=$release
  [ -n "$(scripts/git.sh tag --points-at HEAD "v$release")" ] ||
    version=$release~git$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(scripts/git.sh rev-parse --short HEAD)
fi
rm -rf "$out/source" "$out"/lunarch* # whoever takes ./lunarch_*.deb finds one version
mkdir -p "$out/source"
scripts/git.sh archive "${tree:-HEAD}" | tar -x -C "$out/source"
cp -r packaging/debian "$out/source/debian"
# Where debhelper looks for units: since /usr is merged for good, Debian has nothing elsewhere.
if dpkg --compare-versions "$(dpkg-query -W -f '${Version}' debhelper)" ge 13.12; then
  sed -i 's|\(usr/lib/systemd/system\)/\*.service .*|\1|' "$out/source/debian/lunarch.install"
fi
# What debian/control and the .install files say of modules is in these two tables.
control=$out/source/debian/control build='' stores=''
while IFS='|' read -r module _ _ _ needs _ package; do
  case $module in '#'*) continue ;; esac
  build="$build $needs"
  echo "usr/lib/lunarch/${module% }.so" >>"$out/source/debian/${package# }.install"
done <runtime/modules.txt
while IFS='|' read -r package title text beside; do
  case $package in '#'*) continue ;; lunarch-http*) ;; *) stores="$stores $package" ;; esac
  also=${beside:+"Recommends:$beside (= \${binary:Version\})
"}
  cat <<END >>"$control"

Package: ${package% }
Architecture: any
Depends: lunarch (= \${binary:Version}), \${shlibs:Depends}, \${misc:Depends}
${also}Description: leader election for scripts and commands -${title% }
 Lunarch runs one Lua script, or one command, on many machines; exactly one of
 them works.
 .
$(echo "${text# }" | fold -s -w 78 | sed 's/^/ /; s/ *$//')
END
done <packaging/packages.txt
commas() { printf '%s\n' "$@" | sort -u | paste -s -d, | sed 's/,/, /g'; }
# shellcheck disable=SC2086
sed -i "s/@BUILD@/$(commas $build)/; s/@STORES@/$(commas $stores)/" "$control"
printf 'lunarch (%s) unstable; urgency=medium\n\n  * What is new is in CHANGELOG.md.\n\n -- %s  %s\n' "$version" \
  "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$(date -u -R -d "@$epoch")" >"$out/source/debian/changelog"
arch=$(dpkg --print-architecture)
[ -z "${CROSS:-}" ] || {
  arch=$(dpkg-architecture -f -t "$CROSS" -q DEB_HOST_ARCH 2>/dev/null)
  # A library is of the package whose list has its file, which dpkg-shlibdeps(1) finds below the sysroot.
  rm -rf "$out/dpkg" && cp -r "$SYSROOT/var/lib/dpkg" "$out/dpkg"
  sed -i "s|^|$SYSROOT|" "$out"/dpkg/info/*.list
  LIBRARIES="--admindir=$(realpath "$out/dpkg") -l$SYSROOT/lib/$CROSS -l$SYSROOT/usr/lib/$CROSS"
  export LIBRARIES
}
# shellcheck disable=SC2086
(cd "$out/source" && dpkg-buildpackage --build=binary --no-sign --host-arch "$arch" ${CROSS:+--no-check-builddeps} >../build.log 2>&1) || {
  tail -n 40 "$out/build.log"
  exit 1
}
lintian --fail-on error,warning --tag-display-limit 0 --allow-root "$out/lunarch_${version}_$arch.changes"
