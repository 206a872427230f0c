#!/bin/sh
# Builds the real kube-apiserver and the client-go contender from Kubernetes' published Go modules, once, outside the repository.
set -eu
cd "$(dirname "$0")"
out=${XDG_CACHE_HOME:-$HOME/.cache}/lunarch-tests/kube
if ! command -v go >/dev/null; then
  echo "make test-kube needs Go 1.24 or later, and found none in PATH (Debian 12 has 1.19: too old for today's Kubernetes)" >&2
  exit 1
fi
want=$(cat go.mod go.sum ./*.go build.sh | sha256sum; go version)
[ -x "$out/kube-apiserver" ] && [ -x "$out/contender" ] && [ "$want" = "$(cat "$out/built" 2>/dev/null)" ] && exit 0
echo "Building kube-apiserver and client-go's contender from their modules: several minutes the first time"
mkdir -p "$out"
export CGO_ENABLED=0
nice go build -trimpath -ldflags='-s -w' -o "$out/" k8s.io/kubernetes/cmd/kube-apiserver
nice go build -trimpath -ldflags='-s -w' -o "$out/contender" .
echo "$want" > "$out/built"
