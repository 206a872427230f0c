#!/bin/sh
# Installs what is missing of Debian's packages to build, and more with a word:
#   test   the servers too that the tests start for themselves
#   bench  what the figures are compared with
#   image  what makes an OCI image
#   compose  what runs containers by a compose file
#   deb    what makes packages, and tries them
#   trixie what makes a Debian of another release
#   fuzz   what builds the fuzzers
#   go     what builds what is published as Go modules
#   cross TRIPLET  what builds for another machine (its libraries: scripts/sysroot.sh)
#   arm64  what runs a machine of arm64, and unpacks an image
#   nfs    what runs a virtual machine (what is in it: tests/cluster/nfs/fetch.sh)
#   mysql  what fetches and runs MySQL
#   zookeeper  what fetches another ZooKeeper
#   lint   all that the whole check needs
# Silent and fast when nothing is missing.
set -eu
need="gcc libc6-dev make pkg-config git liblua5.4-dev lua5.4 lua-cjson libev-dev libjansson-dev"
need="$need util-linux python3 tzdata"
while IFS='|' read -r name _ _ _ build _; do
  case $name in '#'*) ;; *) need="$need $build" ;; esac
done <"${0%/*}/../runtime/modules.txt"
case "${1:-}" in
  test | lint | bench | go)
    need="$need perl python3-prometheus-client python3-yaml python3-venv redis-server etcd-server etcd-client openssl postgresql pgbouncer zookeeper msmtp mariadb-server galera-4 galera-arbitrator-4 rsync"
    need="$need python3-h2 strace iproute2 iputils-arping iputils-ping spin tcc nginx haproxy socat systemd bindfs zsh fish mandoc curl chromium nodejs crun umoci cron prometheus" ;;
esac
[ "${1:-}" = deb ] && need="$need build-essential debhelper fakeroot lintian debootstrap systemd-container etcd-server iproute2"
case "${1:-}" in trixie | lint) need="$need debootstrap" ;; esac
case "${1:-}" in test | lint | image) need="$need buildah ca-certificates" ;; esac
[ "${1:-}" = compose ] && need="$need buildah crun podman netavark aardvark-dns docker-compose"
[ "${1:-}" = bench ] && need="$need curl python3-kazoo"
[ "${1:-}" = mysql ] && need="$need python3 maven libaio-dev libnuma1 libmariadb3"
[ "${1:-}" = zookeeper ] && need="$need maven"
[ "${1:-}" = lint ] && set -- lint aarch64-linux-gnu
case "${1:-}" in lint | cross) need="$need gcc-${2:?CROSS=aarch64-linux-gnu} dpkg-dev" ;; esac
[ "${1:-}" = arm64 ] && need="$need qemu-system-arm umoci"
[ "${1:-}" = nfs ] && need="$need perl qemu-system-x86 iproute2"
case "${1:-}" in lint | fuzz) need="$need clang libclang-rt-dev" ;; esac
[ "${1:-}" = lint ] && need="$need cppcheck lua-check shellcheck clang-format clang-tidy black flake8 mypy"
# Nodesource's nodejs has it.
case "${1:-}" in test | lint | bench) command -v npm >/dev/null || need="$need npm" ;; esac
# Any go will do: tests/lib/go_build.sh fetches the one it needs.
case "${1:-}" in go | test | lint | bench) command -v go >/dev/null || need="$need golang-go ca-certificates" ;; esac
missing=""
for p in $need; do
  case " $missing " in *" $p "*) continue ;; esac
  case "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true)" in
    *" installed") ;;
    *) missing="$missing $p" ;;
  esac
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ]; then
  sudo=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  sudo="sudo -n"
else
  echo "These packages are missing, and neither root nor sudo is at hand. Install them, then try again:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
echo "Installing:$missing"
$sudo apt-get update -q >/dev/null
# The servers that the tests start themselves are not to be started by their installation (invoke-rc.d(8), policy-rc.d).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap '$sudo rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
  $sudo chmod 755 "$policy"
fi
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends $missing >/dev/null
