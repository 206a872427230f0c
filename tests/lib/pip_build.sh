#!/bin/sh
# Installs what tests run that is published as Python packages, once, outside the repository:
#   pip_build.sh NAME REQUIREMENTS    a virtual environment with REQUIREMENTS' packages, in the cache's NAME
# Nothing is built from sources, which might need compilers of other languages.
set -eu
name=$1 requirements=$2
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/$name

say() {
  echo "$name: $*"
}

install() {
  "$out/env/bin/pip" install --quiet --disable-pip-version-check --no-compile --only-binary :all: -r "$requirements"
}

want=$({ cat "$requirements" "$(realpath "$0")"; python3 --version; } | sha256sum)
[ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
say "fetching Python packages: a minute, the first time"
rm -rf "$out"
mkdir -p "$out"
python3 -m venv "$out/env" || { say "python3 makes no virtual environment: scripts/deps.sh test installs Debian's python3-venv" >&2; exit 1; }
install || { say "not done: trying again in a minute"; sleep 60; install; }
echo "$want" >"$out/built"
