#!/bin/sh
# Makes an archive of the built program that runs from wherever it is unpacked, on any distribution whose C library is new enough:
#   packaging/tarball.sh BUILD DIRECTORY VERSION    DIRECTORY/lunarch-VERSION-linux-ARCHITECTURE.tar.gz, and its bill of materials
# The modules find their libraries beside them (BUILD/bundled, Makefile). The same sources on the same packages make the same bytes: its
# times are the commit's. No network, no root.
set -eu
cd "$(dirname "$0")/.."
. packaging/libraries.sh
build=$1 out=$2 version=$3
epoch=${SOURCE_DATE_EPOCH:-$(scripts/git.sh log -1 --format=%ct)}
name=lunarch-$version-linux-$architecture
root=$out/$name lib=$out/$name/lib/lunarch doc=$out/$name/share/doc/lunarch
rm -rf "$out"
mkdir -p "$lib/deps/plugin" "$lib/lua" "$root/lib/systemd/system" "$doc/licences"

# What `make install` installs, but the modules that find their libraries; and units that do not yet say where the program is.
MAKEFLAGS='' make -s -o all -o "$build/lunarch" install BUILD="$build" DESTDIR="$root" PREFIX= >/dev/null
rm -f "$lib"/*.so
cp "$build"/bundled/*.so "$lib/"
"$(tool strip)" --strip-unneeded "$root/bin/lunarch" "$lib"/*.so
cp packaging/units/*.service "$root/lib/systemd/system/"
cp packaging/tarball/install.sh "$root/"
cp CHANGELOG.md "$doc/"
cp LICENSE "$doc/licences/lunarch"

libraries "$build" "$out"
sed 's|[^ ]*$|bin/lunarch (linked in)|' "$out/linked" >"$out/inside"
echo "/usr/lib/$triplet/lua/5.4/cjson.so" | with_package >>"$out/libraries"
while read -r package file; do
  case $file in */plugin/*) place=lib/lunarch/deps/plugin/ ;; */lua/*) place=lib/lunarch/lua/ ;; *) place=lib/lunarch/deps/ ;; esac
  cp -L "$SYSROOT$file" "$root/$place"
  chmod 755 "$root/$place${file##*/}"
  echo "$package $place${file##*/}" >>"$out/inside"
done <"$out/libraries"
cut -d' ' -f1 "$out/inside" | sort -u | while read -r package; do
  cp -L "$SYSROOT/usr/share/doc/${package%:*}/copyright" "$doc/licences/${package%:*}"
done
packaging/sbom.py "$version" "$epoch" <"$out/inside" >"$doc/sbom.cdx.json"
glibc=$(glibc_needed "$root/bin/lunarch" "$lib"/*.so "$lib"/*/*.so "$lib"/*/*/*.so)
{
  sed "s/@VERSION@/$version/; s/@GLIBC@/$glibc/" packaging/tarball/README
  packaging/sbom.py --text "$version" "$epoch" <"$out/inside"
} >"$root/README"

chmod -R u=rwX,go=rX "$root" # whatever umask the checkout was made with
tar -C "$out" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
cp "$doc/sbom.cdx.json" "$out/$name.cdx.json"
echo "tarball: $out/$name.tar.gz, $(du -k "$out/$name.tar.gz" | cut -f1) KB, $(du -sk "$root" | cut -f1) KB unpacked; needs glibc $glibc"
