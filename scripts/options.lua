-- What is told of the options (runtime/config/options_table.h) outside of the program: writes the table of options in
-- docs/operations.md, and says where the annotations of an election's keys, or another table of the docs, differ. --help,
-- the completion and the manual pages ask the program.
--   lua5.4 scripts/options.lua            --check: writes nothing, and says what is not current

local DOCS <const>, META <const>, TABLE <const> = "docs/operations.md", "lua/meta/lunarch.d.lua", "runtime/config/options_table.h"
local WIRE <const> = "runtime/process/wire_messages.h"
local BEGIN <const>, END <const> = "<!-- options: made by `make api` -->\n", "<!-- end of options -->\n"
-- The type of a key, by the type of its option.
local TYPES <const> = { FLAG = "boolean", TEXT = "string", NUMBER = "integer", PERIOD = "number", DURATION = "number" }
-- What a script says for these is sent as a number, whatever the option (WIRE_FIELDS_said).
local NUMBERS <const> = { FLAG = true, NUMBER = true, PERIOD = true, DURATION = true }

local function contents(path)
	local file <close> = assert(io.open(path))
	return file:read "a"
end

local problems = {}
local function problem(path, text) problems[#problems + 1] = path .. ": " .. text end

-- The fields of a row: texts, or words of C.
local function row_of(line)
	local fields = {}
	local rest = line
	while rest ~= "" do
		local text, after = rest:match '^%s*"(.-)"%s*,?(.*)$'
		if not text then
			text, after = rest:match "^%s*([^,]+),?(.*)$"
			text = text ~= "NULL" and text or nil
		end
		fields[#fields + 1] = text or false
		rest = after
	end
	local name, type, long, alias, letter, value, preset, commands, key, help = table.unpack(fields)
	return {
		name = name, type = type, long = long, alias = alias, letter = letter ~= "0" and letter:sub(2, 2), value = value,
		preset = preset, commands = commands, is_key = key == "true", help = help, key = long:gsub("-", "_"),
	}
end

local rows, by_long = {}, {}
for kind, fields in contents(TABLE):gsub("^/%*.-%*/", ""):gsub("\n%s+", " "):gmatch "(%u+)(%b())" do
	local row = row_of(fields:sub(2, -2))
	row.env = kind ~= "O" and "LUNARCH_" .. row.name
	rows[#rows + 1] = row
	by_long[row.long] = by_long[row.long] or row
end
assert(#rows > 60, TABLE .. " is not understood")

-- ---- docs/operations.md ----

-- Those that run elections, and what asks about one has besides --help and --version.
local function is_shown(row) return (row.commands:find "LEADS" or row.commands:find "RUN" or row.commands:find "EXEC" or row.commands:find "CRON") and row.name ~= "JSON" end

local function cell(text) return (text:gsub("|", "\\|")) end

local function made_table()
	local lines = { "| option | preset | key | |", "|---|---|---|---|" }
	for _, row in ipairs(rows) do
		local spelled = (row.letter and "-" .. row.letter .. ", --" or "--") .. row.long .. (row.value and row.value ~= "RESOURCES" and " " .. row.value or "")
		local of = row.commands:find "LEADS" and "" or "`" .. row.commands:lower():gsub("%s*|%s*", "`, `") .. "`: "
		if is_shown(row) then
			lines[#lines + 1] = ("| `%s` | %s| %s| %s%s |"):format(
				cell(spelled), row.preset and cell(row.preset) .. " " or "", row.is_key and "`" .. row.key .. "` " or "", of, cell(row.help))
		end
	end
	return BEGIN .. table.concat(lines, "\n") .. "\n" .. END
end

local function update_docs(check)
	local text = contents(DOCS)
	local from, to = text:find(BEGIN, 1, true), select(2, text:find(END, 1, true))
	assert(from and to, DOCS .. " has no place for the options")
	local now = text:sub(1, from - 1) .. made_table() .. text:sub(to + 1)
	if now == text then return end
	if check then return problem(DOCS, "its table of options is not what " .. TABLE .. " says: run `make api` and commit it") end
	local file <close> = assert(io.open(DOCS, "w"))
	assert(file:write(now))
end

-- A table whose first heading is "option" names options that there are.
local function check_tables(path)
	local inside = false
	for line in contents(path):gmatch "[^\n]+" do
		inside = line:find "^| option |" or (inside and line:find "^|")
		for option in (inside and line:match "^|([^|]*)" or ""):gmatch "`%-%-([%w-]+)" do
			if not by_long[option] then problem(path, "there is no option --" .. option .. ": " .. line) end
		end
	end
end

-- ---- the annotations ----

local function check_annotations()
	local class = contents(META):match "%-%-%-@class lunarch%.Election\n(.-)\n\n"
	local described = {}
	for key, type in class:gmatch "%-%-%-@field ([%w_]+)%? (%S+)" do described[key] = type:match "^[%w_]+" end
	local carried = contents(WIRE):match "WIRE_FIELDS_election(.-)\n\n"
	for _, row in ipairs(rows) do
		if row.is_key and not NUMBERS[row.type] and not carried:find("F(str, " .. row.key .. ")", 1, true) then
			problem(TABLE, ("--%s: a script's %s gets to the elector only by a field of WIRE_FIELDS_election (%s), and there is none"):format(row.long, row.type, WIRE))
		end
		if row.is_key and described[row.key] ~= TYPES[row.type] then
			problem(META, ("class lunarch.Election: expected the field %s? %s, as %s has it; found %s"):format(row.key, TYPES[row.type], TABLE, described[row.key] or "none"))
		end
	end
	for key in pairs(described) do
		local row = by_long[key:gsub("_", "-")]
		if row and not row.is_key then problem(META, "class lunarch.Election: " .. key .. " is an option that no script says") end
	end
end

local check <const> = arg[1] == "--check"
update_docs(check)
local pipe <close> = assert(io.popen "scripts/git.sh ls-files README.md 'docs/*.md'")
for path in pipe:lines() do check_tables(path) end
check_annotations()
for _, p in ipairs(problems) do io.stderr:write(p, "\n") end
os.exit(#problems == 0, true)
