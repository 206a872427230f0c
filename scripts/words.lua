-- lua5.4 scripts/words.lua: says where the sources and docs use a word of scripts/words.txt; silent when they do not.

local NAMES <const> = "scripts/git.sh ls-files '*.c' '*.h' '*.lua' '*.md' '*.py' '*.sh' '*.mk' Makefile .ci/run scripts packaging"

local words, excepted = {}, {}

-- A phrase as a Lua pattern between non-letters: "floor #" matches "Floor 3".
local function pattern_of(phrase)
	return "%f[%a]" .. phrase:gsub("#", "%%d+"):gsub("(%a)$", "%1%%f[%%A]")
end

for line in io.lines "scripts/words.txt" do
	local path = line:match "^except (%S+): %g"
	local list, instead = line:match "^([%l #,]+): (%g.*)$"
	if path then
		excepted[path] = true
	elseif list and not line:find "^#" then
		for phrase in list:gmatch "[^,]+" do
			phrase = phrase:match "^%s*(.-)%s*$"
			words[#words + 1] = { phrase = phrase, pattern = pattern_of(phrase), instead = instead }
		end
	end
end

-- Texts between quotes are for users and tests. Prose is not cut: quotes in it are quotes.
local function said(path, line)
	line = line:gsub("POST", "")
	return (path:find "%.md$" and line or line:gsub('\\"', ""):gsub('"[^"]*"', '""')):lower()
end

local found = false
local files <close> = assert(io.popen(NAMES))
for path in files:lines() do
	local number = 0
	for line in excepted[path] and (function() end) or io.lines(path) do
		number = number + 1
		local text = said(path, line)
		for _, word in ipairs(words) do
			if text:find(word.pattern) then
				found = true
				print(("%s:%d: '%s' says nothing to a stranger: %s (scripts/words.txt)"):format(path, number, word.phrase, word.instead))
			end
		end
	end
end
os.exit(not found)
