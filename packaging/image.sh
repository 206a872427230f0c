#!/bin/sh
# Makes an OCI image of the built program: what it needs of this Debian and no more, no shell, no user but a number.
#   packaging/image.sh BUILD DIRECTORY VERSION    an OCI layout (https://specs.opencontainers.org/image-spec/image-layout/) in DIRECTORY/oci
# and a bill of materials in DIRECTORY/sbom.cdx.json. The same sources on the same packages make the same image: its times are the
# commit's. No network, no daemon.
set -eu
cd "$(dirname "$0")/.."
. packaging/libraries.sh
build=$1 out=$2 version=$3
epoch=${SOURCE_DATE_EPOCH:-$(scripts/git.sh log -1 --format=%ct)}
root=$out/root
rm -rf "$out"
mkdir -p "$root/usr/bin" "$root/usr/lib/lunarch" "$root/usr/share" "$root/etc/ssl/certs" "$root/etc/lunarch" \
  "$root/var/lib/dpkg/status.d" "$root/tmp" "$out/home"

libraries "$build" "$out"
cut -d' ' -f2 "$out/libraries" "$out/system" >"$out/files"

# Debian's /lib is a link to /usr/lib, and the loader is named by way of it.
ln -s usr/lib "$root/lib"
! grep -q '^/lib64/' "$out/files" || { ln -s usr/lib64 "$root/lib64" && mkdir -p "$root/usr/lib64"; }

cp "$build/lunarch" "$root/usr/bin/"
cp "$build"/modules/*.so "$root/usr/lib/lunarch/"
"$(tool strip)" --strip-unneeded "$root/usr/bin/lunarch" "$root"/usr/lib/lunarch/*.so

# The libraries of the program and of its modules, under the names that they are asked for; and the loader.
while read -r library; do
  case $library in /usr/*) place=$root$library ;; *) place=$root/usr$library ;; esac
  mkdir -p "${place%/*}"
  cp -L "$SYSROOT$library" "$place"
done <"$out/files"

# In a sysroot nothing was configured, so what ca-certificates makes of its files is not there.
if [ -n "$SYSROOT" ]; then cat "$SYSROOT"/usr/share/ca-certificates/mozilla/*.crt; else cat /etc/ssl/certs/ca-certificates.crt; fi \
  >"$root/etc/ssl/certs/ca-certificates.crt"
mkdir "$root/usr/share/zoneinfo"
(cd "$SYSROOT/usr/share/zoneinfo" && tar -c --exclude=./right --exclude=./posix .) | tar -x -C "$root/usr/share/zoneinfo"
cp -L /etc/services "$root/etc/"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:/sbin/nologin\nlunarch:x:65532:65532:lunarch:/var/lib/lunarch:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nlunarch:x:65532:\n' >"$root/etc/group"

# Which packages that is all of, as scanners for known weaknesses read it, and under which licences.
{
  sed 's| /usr/| /|; s| /| usr/|' "$out/system" "$out/libraries"
  sed 's|[^ ]*$|usr/bin/lunarch (linked in)|' "$out/linked"
  printf 'ca-certificates etc/ssl/certs/ca-certificates.crt\ntzdata usr/share/zoneinfo\n'
} >"$out/inside"
packaging/sbom.py "$version" "$epoch" <"$out/inside" >"$out/sbom.cdx.json"
cut -d' ' -f1 "$out/inside" | sort -u >"$out/packages"
while read -r package; do
  dpkg-query -s "$package" | sed '/^Conffiles:/,/^[^ ]/{/^Conffiles:/d;/^ /d}' >"$root/var/lib/dpkg/status.d/${package%:*}"
  package=${package%:*}
  mkdir -p "$root/usr/share/doc/$package"
  cp -L "$SYSROOT/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
done <"$out/packages"
mkdir -p "$root/usr/share/doc/lunarch"
cp LICENSE "$root/usr/share/doc/lunarch/copyright"
chmod -R u=rwX,go=rX "$root" # whatever umask the checkout was made with
chmod 1777 "$root/tmp"
find "$root" "$out/home" -exec touch --no-dereference --date "@$epoch" {} +

# A store of its own, which nothing else on this machine sees: vfs needs no right to mount.
oci() {
  command=$1
  shift
  buildah --root "$(realpath "$out")/store" --runroot "$(realpath "$out")/run" --storage-driver vfs "$command" "$@"
}
container=$(oci from scratch)
oci add --quiet --chown 0:0 "$container" "$root" / >/dev/null
oci add --quiet --chown 65532:65532 "$container" "$out/home" /var/lib/lunarch >/dev/null
oci config --arch "$architecture" --user 65532:65532 --workingdir /var/lib/lunarch --entrypoint '["/usr/bin/lunarch"]' --cmd run --stop-signal SIGTERM \
  --env PATH=/usr/bin --env HOME=/var/lib/lunarch --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
  --label org.opencontainers.image.title=lunarch --label org.opencontainers.image.version="$version" \
  --label org.opencontainers.image.description="Run one Lua script, or one command, on many machines; exactly one of them works" \
  --label org.opencontainers.image.licenses=MIT --label org.opencontainers.image.revision="$(scripts/git.sh rev-parse HEAD)" \
  --label org.opencontainers.image.created="$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" "$container"
oci commit --quiet --disable-compression=false --timestamp "$epoch" "$container" "oci:$out/oci:latest" >/dev/null
chmod -R u+rwX "$out/store" && rm -rf "$out/store" "$out/run"
echo "image: $out/oci, $(du -sk "$out/oci" | cut -f1) KB to pull, $(du -sk "$root" | cut -f1) KB unpacked"
