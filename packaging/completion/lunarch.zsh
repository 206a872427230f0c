#compdef lunarch
# Completion for lunarch in zsh: what may stand at the cursor comes from the program itself (`lunarch -x complete WORD...`), so it is never
# old. Beside it are the same for bash and fish.

local line word
local -a open open_shown whole whole_shown

[[ $PREFIX == --*=* ]] && compset -P 1 '*='
for line in "${(@f)$("${(Q)words[1]}" -x complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
	word=${line%%$'\t'*}
	case $word in
	("<file>") _files ;;
	("<script>") _files -g '*.lua' ;;
	("<test>") _files -g '*_test.lua' ;;
	("<directory>") _directories ;;
	("<program>") _command_names -e ;;
	("<command "*)
		word=${${word#* }%>}
		words=("${(@)words[word + 1,-1]}")
		((CURRENT -= word))
		_normal
		return
		;;
	# Behind these there is more to come, so no space follows.
	(*[:/]) open+=("$word") open_shown+=("${line/$'\t'/  -- }") ;;
	(?*) whole+=("$word") whole_shown+=("${line/$'\t'/  -- }") ;;
	esac
done
compadd -S '' -d open_shown -a open
[[ "$whole_shown" == *"  -- "* ]] && compadd -l -d whole_shown -a whole || compadd -a whole
