#!/bin/sh
# Installs what is in this directory, or removes it:  ./install.sh [--remove] [--prefix DIRECTORY]
# /usr/local is the preset. Each file is replaced at once, so electors that run keep what they have open.
set -eu
from=$PWD
cd "$(dirname "$0")"
prefix=/usr/local remove=''
usage() {
  echo 'usage: ./install.sh [--remove] [--prefix DIRECTORY]' >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || usage; prefix=$2; shift ;;
    --prefix=*) prefix=${1#*=} ;;
    --remove) remove=yes ;;
    *) usage ;;
  esac
  shift
done
case $prefix in /*) ;; *) prefix=$from/$prefix ;; esac
case $prefix/ in "$PWD"/*) echo "install.sh: $prefix is in the directory that is to be installed" >&2; exit 2 ;; esac

# Those of a version before this one are no longer needed.
find "$prefix/lib/lunarch/deps" -type f 2>/dev/null | while read -r file; do
  [ -e "${file#"$prefix"/}" ] || rm -f "$file"
done
find bin lib share -type f | sort | while read -r file; do
  to=$prefix/$file
  if [ -n "$remove" ]; then
    rm -f "$to"
    continue
  fi
  mkdir -p "${to%/*}"
  case $file in
    *.service) sed "s|@BIN@|$prefix/bin|" "$file" >"$to.new" ;;
    *) cp "$file" "$to.new" ;;
  esac
  case $file in bin/*|*.so|*.so.*) chmod 755 "$to.new" ;; *) chmod 644 "$to.new" ;; esac
  mv -f "$to.new" "$to"
done
if [ -n "$remove" ]; then
  find lib/lunarch share/lunarch share/doc/lunarch -type d | sort -r | while read -r d; do rmdir "$prefix/$d" 2>/dev/null || true; done
  exit
fi
"$prefix/bin/lunarch" --version | head -n 1
case $prefix in
  /usr | /usr/local) ;;
  *) echo "Units for systemd are in $prefix/lib/systemd/system: systemctl link FILE, and systemd-sysusers $prefix/lib/sysusers.d/lunarch.conf" ;;
esac
