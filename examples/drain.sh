#!/bin/sh
# Takes this machine out of service: if its candidate leads, another leads before anything is stopped.
#   drain.sh COMMAND [ARG...]      as: drain.sh systemctl stop app
# Nobody comes next (status 75 of handover), or the candidate cannot be asked: nothing is stopped, and the status says so.
# LUNARCH_CONTROL says which elector is meant where several run (lunarch ctl --list).
set -eu
lunarch ctl is-leading >/dev/null && leads=0 || leads=$?
case $leads in
  0) lunarch ctl handover --timeout "${TIMEOUT:-30s}" ;;
  1) ;; # another leads
  *) exit "$leads" ;;
esac
exec "$@"
