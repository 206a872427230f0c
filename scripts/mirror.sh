#!/bin/sh
# Prints where this machine's apt has its Debian from. Used by what fetches more of Debian than is installed: sysroot.sh, and tests/lib.
set -eu
# shellcheck source=/dev/null
here=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt's own
site=$(apt-get indextargets --format '$(SITE) $(CODENAME)' "Created-By: Packages" | sed -n "s/ $here\$//p" | head -n 1)
[ -n "$site" ] || { echo "apt has no list of $here here: apt-get update" >&2; exit 1; }
echo "$site"
