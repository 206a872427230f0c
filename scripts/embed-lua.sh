#!/bin/sh
# Writes the given Lua files (and what else the program carries) as a C source on stdout: the table that runtime/script/prelude.h declares.
set -eu

name_of() {
	base=${1##*/}
	base=${base#.}
	base=${base%.*}
	case $1 in lua/lunarch/*) base=lunarch.$base ;; esac
	echo "$base"
}

array_of() {
	echo "$(name_of "$1")_lua" | tr . _
}

echo '#include "script/prelude.h"'
for file in "$@"; do
	echo
	echo "static const char $(array_of "$file")[] = {"
	od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
	echo '0 };'
done
echo
echo 'const struct prelude_file prelude_files[] = {'
for file in "$@"; do
	array=$(array_of "$file")
	printf '\t{ "%s", %s, sizeof %s - 1 },\n' "$(name_of "$file")" "$array" "$array"
done
printf '\t{ NULL, NULL, 0 },\n};\n'
