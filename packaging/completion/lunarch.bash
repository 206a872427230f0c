# shellcheck shell=bash
# Completion for lunarch in bash: what may stand at the cursor comes from the program itself (`lunarch -x complete WORD...`), so it is never
# old. Beside it are the same for zsh and fish.

# Files and directories whose names end so.
_lunarch_files() {
	mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
		compgen -d -- "$2"
		compgen -f -X "!*$1" -- "$2" | while read -r file; do [[ -d $file ]] || echo "$file"; done
	)
	compopt -o filenames 2>/dev/null
}

_lunarch_programs() {
	mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$1" | sort -u)
}

# From word $1 on, as bash counts them, it is another program's command line.
_lunarch_command() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		_lunarch_programs "$2"
	else
		_lunarch_files "" "$2"
	fi
}

_lunarch() {
	local words=() starts=() i word current last=${COMP_WORDS[COMP_CWORD]}

	COMPREPLY=()
	# bash splits words at = and : (COMP_WORDBREAKS); the program gets them whole. starts: where each began.
	for ((i = 0; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((i > 1)) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == *[=:] ]]; then
			words[-1]+=$word
		else
			words+=("$word")
			starts+=("$i")
		fi
	done
	current=${words[-1]}
	[[ $current == --*=* ]] && current=${current#*=}
	while IFS=$'\t' read -r word _; do
		case $word in
		"<file>") _lunarch_files "" "$current" ;;
		"<script>") _lunarch_files .lua "$current" ;;
		"<test>") _lunarch_files _test.lua "$current" ;;
		"<directory>") mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current") ;;
		"<program>") _lunarch_programs "$current" ;;
		"<command "*) word=${word#* } && _lunarch_command "${starts[${word%>}]}" "$current" && return ;;
		"$current"*) COMPREPLY+=("$word") ;;
		esac
	done < <("${COMP_WORDS[0]}" -x complete "${words[@]:1}")
	# What bash has split off is not to be put in again.
	[[ $last == [=:] ]] && last=""
	i=$((${#current} - ${#last}))
	((i <= 0)) || COMPREPLY=("${COMPREPLY[@]#"${current:0:i}"}")
	# Behind a lock's scheme there is more to come.
	[[ ${COMPREPLY[*]-} != *: && ${COMPREPLY[*]-} != *:// ]] || compopt -o nospace 2>/dev/null
	return 0
}

complete -F _lunarch lunarch
