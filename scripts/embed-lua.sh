#!/bin/sh
# embed-lua.sh COMPILER FILE...: writes the files as a C source on stdout, the table that runtime/script/prelude.h declares.
# COMPILER is what makes bytecode of the files of lua/ (compile-lua.c), or - if they stay text.
set -eu
compiler=$1
shift
content=$(mktemp)
trap 'rm -f "$content"' EXIT

name_of() {
	base=${1##*/}
	base=${base#.}
	base=${base%.*}
	case $1 in
	lua/lunarch/*) base=lunarch.$base ;;
	lua/locks/*) base=locks/$base ;;
	lua/commands/*) base=commands/$base ;;
	esac
	echo "$base"
}

array_of() {
	echo "$(name_of "$1")_lua" | tr ./ __
}

content_of() {
	case $compiler,$1 in
	[!-]*,lua/*) "$compiler" "$(name_of "$1")" "$1" ;;
	*) cat "$1" ;;
	esac
}

echo '#include "script/prelude.h"'
for file in "$@"; do
	echo
	echo "static const char $(array_of "$file")[] = {"
	content_of "$file" >"$content"
	od -An -v -tx1 "$content" | sed 's/ \(..\)/0x\1,/g'
	echo '0 };'
done
echo
echo 'const struct prelude_file prelude_files[] = {'
for file in "$@"; do
	array=$(array_of "$file")
	printf '\t{ "%s", %s, sizeof %s - 1 },\n' "$(name_of "$file")" "$array" "$array"
done
printf '\t{ NULL, NULL, 0 },\n};\n'
