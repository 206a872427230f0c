#!/bin/sh
# Brings machines up to date, one after the other: first those that do not lead, at last the one that does, which hands over
# first. So there is one hand-over in all, to a machine that is up to date.
#   rolling.sh MACHINE... -- COMMAND [ARG...]      as: rolling.sh web1 web2 web3 -- systemctl restart app
# REMOTE (ssh) is how a command is run on a machine. A machine that fails ends the update.
set -eu
remote=${REMOTE:-ssh} machines='' last=''
while [ "$1" != -- ]; do
  machines="$machines $1"
  shift
done
shift

# Those that lead, or lead by now, come last.
for machine in $machines; do
  if "$remote" "$machine" lunarch ctl is-leading >/dev/null; then
    last="$last $machine"
  else
    "$remote" "$machine" drain.sh "$@"
  fi
done
for machine in $last; do
  "$remote" "$machine" drain.sh "$@"
done
