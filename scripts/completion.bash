# shellcheck shell=bash
# Completion for lunarch: the words come from the program itself (`lunarch -x complete [COMMAND [OPTION]]`), so they are never old.

# Files and directories whose names end so.
_lunarch_files() {
	mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
		compgen -d -- "$2"
		compgen -f -X "!*$1" -- "$2" | while read -r file; do [[ -d $file ]] || echo "$file"; done
	)
	compopt -o filenames 2>/dev/null
}

# The control sockets at which somebody listens, in the state directory that the line names.
_lunarch_sockets() {
	local i state=()
	for ((i = 2; i < COMP_CWORD; i++)); do
		[[ ${COMP_WORDS[i]} == --state-dir ]] && state=(--state-dir "${COMP_WORDS[i + 1]}")
	done
	"$1" ctl --list "${state[@]}" 2>/dev/null | sed -n 's/^pid [0-9]*  //p'
}

# What can stand for these words: those that begin so, and what the ones in angle brackets mean.
_lunarch_words() {
	local program=$1 words=$2 current=$3 word
	for word in $words; do
		case $word in
		"<file>") _lunarch_files "" "$current" ;;
		"<script>") _lunarch_files .lua "$current" ;;
		"<test>") _lunarch_files _test.lua "$current" ;;
		"<directory>") mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current") ;;
		"<program>") mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$current" | sort -u) ;;
		"<socket>") _lunarch_words "$program" "$(_lunarch_sockets "$program")" "$current" ;;
		"$current"*) COMPREPLY+=("$word") ;;
		esac
	done
}

# Behind `exec ... COMMAND` and `run ... --` is somebody else's command line.
_lunarch_foreign() {
	if declare -F _command_offset >/dev/null && [[ ${COMP_WORDS[1]} == exec ]]; then
		_command_offset "$1"
	elif [[ ${COMP_WORDS[1]} == exec ]] && ((COMP_CWORD == $1)); then
		_lunarch_words "" "<program>" "$2"
	else
		_lunarch_files "" "$2"
	fi
}

# Where the first word behind the options is: the script of run, the command of exec. Nothing if the cursor stands before it.
_lunarch_first_word() {
	local program=$1 command=${COMP_WORDS[1]} i
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) echo $((i + 1)) && return ;;
		-* | =)
			if [[ ${COMP_WORDS[i + 1]:-} == "=" ]]; then
				((i += 2))
			elif "$program" -x complete "$command" "${COMP_WORDS[i]}" >/dev/null; then
				((i++))
			fi
			;;
		*) [[ $command == exec ]] && echo "$i" && return ;;
		esac
	done
}

_lunarch() {
	local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]:-} words first
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_lunarch_words "$program" "$("$program" -x complete) help --help --version" "$current"
		return
	fi
	first=$(_lunarch_first_word "$program")
	if [[ $first ]]; then
		_lunarch_foreign "$first" "$current"
		return
	fi
	if [[ $current == "=" ]]; then # --option=value is three words
		current=""
	elif [[ $previous == "=" ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ $command == help ]]; then
		words="$("$program" -x complete) api"
		[[ $previous == api ]] && words=$("$program" help api | sed -n 's/^##* `*\([a-z_.:]*\).*/\1/p')
		_lunarch_words "$program" "$words" "$current"
	elif [[ $previous == -* ]] && words=$("$program" -x complete "$command" "$previous"); then
		_lunarch_words "$program" "$words" "$current"
	else
		words=$("$program" -x complete "$command")
		# Options only where one has begun, or nothing else can stand.
		[[ $current == -* ]] || ! grep -qv '^--' <<<"$words" || words=$(grep -v '^--' <<<"$words")
		_lunarch_words "$program" "$words" "$current"
	fi
	# What bash has split off at a colon is not to be put in again.
	declare -F __ltrimcolons_completions >/dev/null && __ltrimcolons_completions "$current"
	return 0
}

complete -F _lunarch lunarch
