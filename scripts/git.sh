#!/bin/sh
# git(1) on this checkout, for all that make runs. The checkout may be another user's (root's build of somebody's clone): git refuses
# that by itself, and where its output is only read, what needs it would do nothing and say nothing. make runs what is in there anyway.
exec git -c safe.directory="$(cd "$(dirname "$0")/.." && pwd -P)" "$@"
