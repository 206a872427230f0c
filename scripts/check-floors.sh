#!/bin/sh
# A file of runtime/ includes headers of its own floor or lower ones (scripts/floors.txt); some headers have one home.
set -eu
cd "$(dirname "$0")/.." || exit 1
bad=$(awk '
  FILENAME == "scripts/floors.txt" { if ($1 != "#" && NF == 2) floor[$1] = $2; next }
  FNR == 1 {
    name = FILENAME; sub(/.*\//, "", name); sub(/\.[ch]$/, "", name)
    if (!(name in floor)) { print FILENAME ": on no floor: add it to scripts/floors.txt"; nextfile }
    if (FILENAME ~ /\.h$/ && $0 !~ /^\/\*/) print FILENAME ":1: a header begins with a comment: what it is, what it is not, who uses it"
  }
  /^#include "/ {
    other = $2; gsub(/"/, "", other); sub(/\.h$/, "", other)
    if (!(other in floor)) print FILENAME ":" FNR ": " other ".h is on no floor"
    else if (floor[other] > floor[name]) print FILENAME ":" FNR ": floor " floor[name] " includes " other ".h of floor " floor[other]
    else if (floor[name] == 6 && (floor[other] == 3 || floor[other] == 4)) print FILENAME ":" FNR ": floor 6 must not see " other ".h"
  }
  /^#include <ev.h>/ && floor[name] < 2 { print FILENAME ":" FNR ": no loop below floor 2" }
  /^#include <(lua|lauxlib|lualib).h>/ && floor[name] != 6 { print FILENAME ":" FNR ": Lua lives on floor 6 alone" }
  /^#include <curl/ && FILENAME != "runtime/http_inside.h" { print FILENAME ":" FNR ": only http_inside.h knows libcurl" }
' scripts/floors.txt runtime/*.c runtime/*.h)
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
