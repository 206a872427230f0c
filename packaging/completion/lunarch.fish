# Completion for lunarch in fish: what may stand at the cursor comes from the program itself (`lunarch -x complete WORD...`), so it is never
# old. Beside it are the same for bash and zsh.

# Directories, and files whose names end so.
function __lunarch_files
	complete -C "'' $argv[2]" | string match -r "^(?:[^\t]*/|[^\t]*$argv[1])(?:\t.*)?\$"
end

function __lunarch_words
	set -l words (commandline -opc) (commandline -ct)
	set -l option (string match -r -- '^--[^=]*=' $words[-1])
	set -l current (string replace -- "$option" "" $words[-1])

	for line in ($words[1] -x complete $words[2..-1] 2>/dev/null)
		switch $line
			case "<file>" # not behind another scheme
				string match -qr '^(?!file:)[a-z]+:' -- $current; or printf "$option%s\n" (__lunarch_files "" $current)
			case "<script>"
				printf "$option%s\n" (__lunarch_files "\.lua" $current)
			case "<test>"
				printf "$option%s\n" (__lunarch_files "_test\.lua" $current)
			case "<directory>"
				printf "$option%s\n" (__lunarch_files / $current)
			case "<program>"
				complete -C "$current" | string match -rv /
			case "<command *"
				set -l from (math 1 + (string match -r '\d+' $line))
				set -l before
				test $from -lt (count $words); and set before (string escape -- $words[$from..-2])
				complete -C (string join " " -- $before $current)
			case "*"
				echo "$option$line"
		end
	end
end

complete -c lunarch -f -a "(__lunarch_words)"
