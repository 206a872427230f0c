# shellcheck shell=bash
# Completion for lunarch: the words come from the program itself (`lunarch -x complete [COMMAND]`), so they are never old.

_lunarch_values() {
	case $1 in
	--log-format) echo "text json" ;;
	--log-level) echo "debug info warn error" ;;
	--restart) echo "never on-loss always" ;;
	--lease-duration | --renew-deadline | --retry-period | --stop-grace | --kill-allowance | --drift-allowance | \
		--shutdown-grace | --wait | --at-least | --identity | --address | --election | --conflict-exit-code | -e | --eval)
		echo "" ;;
	*) return 1 ;;
	esac
}

_lunarch_files() {
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
	compopt -o filenames 2>/dev/null
}

_lunarch_words() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_lunarch() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]:-} values word

	if ((COMP_CWORD == 1)); then
		_lunarch_words "$("$program" -x complete) help --help --version" "$current"
		return
	fi
	for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
		if [[ $word == -- ]]; then # the rest is somebody else's command line
			_lunarch_files "$current"
			return
		fi
	done
	if values=$(_lunarch_values "$previous"); then
		_lunarch_words "$values" "$current"
	elif [[ $previous == --lock || $previous == --control ]]; then
		_lunarch_files "$current"
	elif [[ $current == -* ]]; then
		_lunarch_words "$("$program" -x complete "$command")" "$current"
	elif [[ $command == ctl ]]; then
		_lunarch_words "status is-leading why resign pause resume reload" "$current"
	elif [[ $command == help ]]; then
		_lunarch_words "$("$program" -x complete)" "$current"
	else
		_lunarch_files "$current"
	fi
}

complete -F _lunarch lunarch
