#!/bin/sh
# Writes the given Lua files (and what else the program carries) as a C source on stdout: the table that runtime/prelude.h declares.
set -eu

name_of() {
	base=${1##*/}
	base=${base#.}
	echo "${base%.*}"
}

echo '#include "prelude.h"'
for file in "$@"; do
	echo
	echo "static const char $(name_of "$file")_lua[] = {"
	od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
	echo '0 };'
done
echo
echo 'const struct prelude_file prelude_files[] = {'
for file in "$@"; do
	name=$(name_of "$file")
	printf '\t{ "%s", %s_lua, sizeof %s_lua - 1 },\n' "$name" "$name" "$name"
done
printf '\t{ NULL, NULL, 0 },\n};\n'
