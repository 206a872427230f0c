#!/bin/sh
# Makes all files of a release of the commit that is checked out:
#   packaging/release.sh BUILD VERSION [DIRECTORY-OF-PACKAGES...]    in BUILD/release
# The source archive, this Debian's packages, the archive and the image of this architecture with their bills of materials, notes, and
# checksums. What was built elsewhere (on another Debian, for another architecture) is taken from further directories, below their names.
# The same commit on the same Debian makes the same bytes, in whichever directory: tests/cluster/debian/release.py.
set -eu
cd "$(dirname "$0")/.."
build=$1 out=$1/release version=$2
shift 2
changed=$(scripts/git.sh status --porcelain)
[ -z "$changed" ] || {
  printf '%s\n%s\n' "make release takes what is committed. These files are not as they were committed:" "$changed" >&2
  exit 1
}
SOURCE_DATE_EPOCH=$(scripts/git.sh log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8
umask 022
MAKEFLAGS='' make -j "$(nproc)" BUILD="$build" deb tarball image
rm -rf "$out"
# shellcheck source=/dev/null
. /etc/os-release
mkdir -p "$out/$ID-$VERSION_ID"
cp "$build"/deb/*.deb "$out/$ID-$VERSION_ID/"
rm -f "$out"/*/*-dbgsym_*
cp "$build"/tarball/lunarch-*.tar.gz "$build"/tarball/lunarch-*.cdx.json "$out/"
name=$(basename "$build"/tarball/lunarch-*.tar.gz .tar.gz)
tar -C "$build/image/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX --format=gnu \
  -cf "$out/$name-image.tar" blobs index.json oci-layout
cp "$build/image/sbom.cdx.json" "$out/$name-image.cdx.json"
scripts/git.sh archive --prefix="lunarch-$version/" HEAD | gzip -9n >"$out/lunarch-$version.tar.gz"
for more in "$@"; do
  mkdir -p "$out/${more##*/}"
  find "$more" -maxdepth 1 -type f ! -name '*-dbgsym_*' -exec cp {} "$out/${more##*/}/" \;
done
{
  echo "# Lunarch $version"
  echo
  awk '/^## / { n++; next } n == 1' CHANGELOG.md
} >"$out/NOTES.md"
(cd "$out" && find . -type f ! -name SHA256SUMS | sed 's|^\./||' | sort | xargs -d '\n' sha256sum) >"$out/SHA256SUMS"
(cd "$out" && find . -type f | sort | xargs -d '\n' ls -l | awk '{ printf "%9d %s\n", $5, $NF }')
if [ -n "$(scripts/git.sh tag --points-at HEAD "v$version")" ]; then
  echo "To publish it: gpg --detach-sign --armor $out/SHA256SUMS; git push origin v$version"
else
  release=$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
  echo "This is no release yet. To make it one: a date in the first heading of CHANGELOG.md, git commit, git tag -s v$release, make release"
fi
