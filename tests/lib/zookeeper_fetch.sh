#!/bin/sh
# Fetches a ZooKeeper server that Debian 12 does not have, once, outside the repository:
#   zookeeper_fetch.sh VERSION    its archives and what they need, into the cache's zookeeper-VERSION
# Maven compares each with the checksum that is published for it, and fails where they differ.
set -eu
version=$1
pom=$(dirname "$(realpath "$0")")/../cluster/zookeeper/pom.xml
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/zookeeper-$version

want=$({ echo "$version"; cat "$pom" "$(realpath "$0")"; } | sha256sum)
[ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
echo "zookeeper: fetching ZooKeeper $version (12 MB): a minute, the first time"
rm -rf "$out"
mkdir -p "$out"
mvn --quiet --batch-mode --strict-checksums -f "$pom" -Dzookeeper="$version" dependency:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$out"
[ -e "$out/zookeeper-$version.jar" ] || { echo "zookeeper: there is no ZooKeeper $version" >&2; exit 1; }
echo "$want" >"$out/built"
