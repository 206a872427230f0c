-- Makes the manual pages, in mdoc (mdoc(7)), from what there is already: `lunarch --help`, `lunarch COMMAND --help`, and sections of
-- README.md and docs/*.md. Corrections belong there. Understands what those use of Markdown.
--   lua5.4 packaging/man.lua PROGRAM DIRECTORY      PROGRAM is the lunarch to ask; the pages go to
-- man1 and man7 in DIRECTORY. SOURCE_DATE_EPOCH is their date.

local program <const>, directory <const> = arg[1], arg[2]
local date <const> = os.date("!%B %d, %Y", tonumber(os.getenv "SOURCE_DATE_EPOCH")):gsub(" 0", " ")

local function output_of(arguments)
	local pipe <close> = assert(io.popen(program .. " " .. arguments))
	return pipe:read "a"
end

local function contents(path)
	local file <close> = assert(io.open(path))
	return file:read "a"
end

local version <const> = output_of("--version"):match "^lunarch (%S+)"

-- ---- text ----

local FONTS <const> = { code = "\\fB", strong = "\\fB", stress = "\\fI" }

-- mandoc(1) takes "name()" for a function of C that lacks its markup.
local function escaped(text) return (text:gsub("\\", "\\e"):gsub("%(%)", "\\&()")) end

-- "-" is a hyphen in text, but what is typed has a minus. Between alternatives a line may end, and
-- is adjusted.
local function typed(text) return (escaped(text):gsub("%-", "\\-"):gsub('"|"', '" | "')) end

-- What stands between backquotes is kept apart first, since nothing in it is markup.
local function inline(text)
	local kept = {}
	local function keep(font, inner)
		kept[#kept + 1] = font .. inner .. "\\fR"
		return "\1" .. #kept .. "\1"
	end
	text = text:gsub("\\|", "|"):gsub("`([^`]+)`", function(code) return keep(FONTS.code, typed(code)) end)
	text = text:gsub("!?%[([^%]]+)%]%((%S-)%)", function(words, where) return where:find "^https?:" and words .. " (" .. where .. ")" or words end)
	text = escaped(text):gsub("%-%-", "\\-\\-")
	text = text:gsub("%*%*(.-)%*%*", FONTS.strong .. "%1\\fR"):gsub("%f[%S]%*([^%s*][^*]-)%*", FONTS.stress .. "%1\\fR")
	return (text:gsub("\1(%d+)\1", function(number) return kept[tonumber(number)] end))
end

local WIDTH <const> = 76

local page -- the lines of the one that is being made
local function put(line) page[#page + 1] = line end

-- A line of its own for each sentence, as mandoc(1) asks for; none begins like a request.
local function put_text(text)
	local line = ""
	local function flush()
		if line ~= "" then put(line:find "^[.']" and "\\&" .. line or line) end
		line = ""
	end
	for word in text:gmatch "%S+" do
		local ended = line:gsub("\\f.$", ""):find "[.!?][)\"']*$"
		if (ended and word:gsub("^\\f.", ""):find "^[%u\\(\"]") or #line + #word > WIDTH then flush() end
		line = line == "" and word or line .. " " .. word
	end
	flush()
end

local function put_literal(lines)
	put ".Bd -literal -offset indent"
	for _, line in ipairs(lines) do
		line = typed(line:gsub("\t", "    "))
		put(line:find "^[.']" and "\\&" .. line or line)
	end
	put ".Ed"
end

local function begin_page(name, section, summary)
	page = {}
	put((".\\\" Lunarch %s. Made by packaging/man.lua: correct what that reads."):format(version))
	put(".Dd " .. date)
	put((".Dt %s %d"):format(name:upper(), section))
	put ".Os"
	put ".Sh NAME"
	put(".Nm " .. name)
	put(".Nd " .. summary)
end

local function end_page(name, section, others)
	put ".Sh SEE ALSO"
	for i, other in ipairs(others) do put(".Xr " .. other .. (i < #others and " ," or "")) end
	local path = ("%s/man%d/%s.%d"):format(directory, section, name, section)
	local file <close> = assert(io.open(path, "w"))
	assert(file:write(table.concat(page, "\n"), "\n"))
end

-- ---- Markdown ----

local function cells_of(row)
	local cells = {}
	for cell in row:gsub("\\|", "\2"):gsub("^|", ""):gmatch "([^|]*)|" do
		cells[#cells + 1] = cell:gsub("\2", "|"):match "^%s*(.-)%s*$"
	end
	return cells
end

-- A table's first column names what the others tell. Two columns need no headings.
local function put_table(rows)
	local headings = cells_of(rows[1])
	put ".Bl -tag -width Ds"
	for i = 3, #rows do
		local cells, told = cells_of(rows[i]), false
		put(".It " .. inline(cells[1]))
		for column = 2, #cells do
			local heading, cell = headings[column], cells[column]
			if cell ~= "" then
				if told then put ".br" end
				put_text((#cells > 2 and heading ~= "" and inline(heading) .. ": " or "") .. inline(cell))
				told = true
			end
		end
	end
	put ".El"
end

local function put_bullets(bullets)
	put ".Bl -bullet -compact"
	for _, bullet in ipairs(bullets) do
		put ".It"
		put_text(inline(bullet))
	end
	put ".El"
end

local KINDS <const> = { { "^|", "table" }, { "^[*-] ", "bullets" }, { "^%d+%. ", "bullets" } }

local function kind_of(line)
	for _, kind in ipairs(KINDS) do
		if line:find(kind[1]) then return kind[2], kind[1] end
	end
	return "text"
end

-- Headings of depth `top` become sections, deeper ones subsections.
local function put_markdown(text, top)
	local block, kind, fence
	local fresh = true -- right behind a heading, where no paragraph is to be parted from another
	local function flush()
		if not block then return end
		if not fresh and (kind == "text" or kind == "bullets") then put ".Pp" end
		if kind == "table" then
			put_table(block)
		elseif kind == "bullets" then
			put_bullets(block)
		elseif kind == "literal" then
			if fence ~= "mermaid" then put_literal(block) end
		else
			put_text(inline(table.concat(block, " ")))
		end
		block, fresh = nil, false
	end
	for line in text:gmatch "([^\n]*)\n" do
		local depth = line:match "^(#+) "
		if kind == "literal" and block then
			if line:find "^%s*```" then flush() else block[#block + 1] = line end
		elseif line:find "^%s*```" then
			flush()
			kind, block, fence = "literal", {}, line:match "```(%w*)"
		elseif depth then
			flush()
			local heading = line:match "^#+ (.*)$":gsub("`", "")
			if #depth <= top then put(".Sh " .. typed(heading)) else put(".Ss " .. typed(heading)) end
			fresh = true
		elseif line:find "^%s*$" or line:find "^!%[" then
			flush()
		else
			local now, mark = kind_of(line)
			if block and kind == "bullets" and now == "text" then
				block[#block] = block[#block] .. " " .. line
			else
				if block and now ~= kind then flush() end
				kind, block = now, block or {}
				block[#block + 1] = now == "bullets" and line:gsub(mark, "", 1) or line
			end
		end
	end
	flush()
end

-- What stands below a heading, down to the next one that is no deeper.
local function section(path, heading)
	local text = "\n" .. contents(path):gsub("<!%-%-.-%-%->\n", "")
	local depth, from = text:match("\n(#+) " .. heading:gsub("%p", "%%%0") .. "\n()")
	assert(depth, path .. " has no heading " .. heading)
	local rest = text:sub(from)
	for at, deep in rest:gmatch "()\n(#+) " do
		if #deep <= #depth then return rest:sub(1, at) end
	end
	return rest
end

-- ---- commands ----

-- "run [OPTIONS] SCRIPT.lua [-- ARGS]" in macros, a line for each part.
local function put_usage(usage)
	local function macros(words)
		local out = {}
		for word in words:gmatch "%S+" do
			local ellipsis = word:match "^(.-)%.%.%.$"
			if word == "|" then
				out[#out + 1] = "|"
			elseif word == "--" then
				out[#out + 1] = "Fl -"
			elseif word:find "^%-%-?" then
				out[#out + 1] = "Fl " .. word:sub(2)
			else
				out[#out + 1] = "Ar " .. (ellipsis and ellipsis .. " ..." or word)
			end
		end
		return table.concat(out, " ")
	end
	local rest = usage
	while rest ~= "" do
		local group, behind = rest:match "^%[([^%]]*)%]%s*(.*)$"
		if group then
			put(".Op " .. macros(group))
		else
			group, behind = rest:match "^([^%[]+)(.*)$"
			for line in (macros(group):gsub(" | ", "\n|\n")):gmatch "[^\n]+" do put(line == "|" and line or "." .. line) end
		end
		rest = behind
	end
end

-- Rows "  NAME   text", whose text may go on in lines that are indented further than any name.
local function rows_of(text)
	local rows = {}
	for line in text:gmatch "[^\n]+" do
		local indent, rest = line:match "^( *)(.*)$"
		if #indent > #"  -x " then
			rows[#rows].text = rows[#rows].text .. " " .. rest
		else
			local name, told = rest:match "^(.-)%s%s+(.*)$"
			rows[#rows + 1] = { name = name or rest, text = told or "" }
		end
	end
	return rows
end

local function option_macros(name)
	local letter, long, value = name:match "^%-(%a) %-%-(%S+)%s*(.*)$"
	if not letter then long, value = name:match "^%-%-(%S+)%s*(.*)$" end
	local out = ".It " .. (letter and "Fl " .. letter .. " , " or "") .. "Fl -" .. long
	return value ~= "" and out .. " Ar " .. value:gsub("|", " | ") or out
end

local function put_rows(rows, heading)
	put ".Bl -tag -width Ds"
	for _, row in ipairs(rows) do
		put(heading(row.name))
		put_text(inline(row.text))
	end
	put ".El"
end

local function plain_item(name) return ".It " .. inline("`" .. name .. "`") end

-- The text of a command's help: paragraphs, and rows of what `ctl` can be told.
local function put_told(text)
	local told, rows, more = {}, {}, false
	local function flush()
		if #told > 0 then
			if more then put ".Pp" end
			put_text(inline(table.concat(told, " ")))
		end
		if #rows > 0 then put_rows(rows_of(table.concat(rows, "\n")), plain_item) end
		told, rows, more = {}, {}, true
	end
	for line in text:gmatch "[^\n]+" do
		if line:find "^  " then
			rows[#rows + 1] = line
		else
			if #rows > 0 then flush() end
			told[#told + 1] = line
		end
	end
	flush()
end

local function command_page(command, summary)
	local help = output_of(command .. " --help")
	local usage, text, options = help:match "^Usage: lunarch %S+ ?([^\n]*)\n\n(.-)\n\nOptions:\n(.*)$"
	local environment, examples = options:match "\n\nEnvironment, [^\n]*\n(.-)\n\n", options:match "\nExamples:\n(.*)$"
	local status
	text, status = (text .. "\n"):match "^(.-)Exit status: (.*)$"
	begin_page("lunarch-" .. command, 1, summary)
	put ".Sh SYNOPSIS"
	put(".Nm lunarch " .. command)
	put_usage(usage)
	put ".Sh DESCRIPTION"
	put_told(text or help:match "\n\n(.-)\n\nOptions:\n")
	put ".Pp"
	put "The options are:"
	put_rows(rows_of(options:match "^(.-)\n\n"), option_macros)
	if environment then
		put ".Sh ENVIRONMENT"
		put "These variables count where no option is given:"
		put_rows(rows_of(environment), function(name) return ".It Ev " .. name end)
	end
	if status then
		put ".Sh EXIT STATUS"
		put_text(inline((status:gsub("\n", " "))))
	end
	put ".Sh EXAMPLES"
	local lines = {}
	for line in examples:gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("^  ", "") end
	put_literal(lines)
	end_page("lunarch-" .. command, 1, { "lunarch 1", "lunarch 7" })
end

-- ---- the pages ----

local help <const> = output_of "--help"
local commands, others = {}, {}
for line in help:match "Usage:\n(.-)\n\n":gmatch "[^\n]+" do
	local name, summary = line:match "^  lunarch (%l+) .-%s%s+(%S.*)$"
	if name and name ~= "help" then commands[#commands + 1] = { name = name, summary = summary } end
end
for _, command in ipairs(commands) do others[#others + 1] = "lunarch-" .. command.name .. " 1" end
table.sort(others)

begin_page("lunarch", 1, "lead on exactly one of many machines")
put ".Sh SYNOPSIS"
put ".Nm"
put ".Ar COMMAND"
put ".Op Ar ARGUMENTS"
put ".Sh DESCRIPTION"
put_text(help:match "^([^\n]*)")
put ".Pp"
put "The commands are:"
put ".Bl -tag -width Ds"
for _, command in ipairs(commands) do
	put((".It Xr lunarch-%s 1"):format(command.name))
	put_text(inline(command.summary))
end
put ".El"
put ".Ss Where the record lives"
put_text(inline "The option `--lock` names the place where candidates meet. It begins with one of these, or is the name of a file:")
put_rows(rows_of(help:match "%(%-%-lock%):\n(.-)\n\n"), plain_item)
for _, heading in ipairs { "Signals", "Logs" } do
	put(".Ss " .. heading)
	put_markdown(section("docs/operations.md", heading), 1)
end
for _, name in ipairs { "Environment", "Files", "Exit statuses" } do
	put(".Sh " .. (name == "Exit statuses" and "EXIT STATUS" or name:upper()))
	put_markdown(section("docs/operations.md", name), 1)
end
put ".Sh EXAMPLES"
put_text(help:match "\n\n(Try it[^\n]*)\n")
local lines = {}
for line in help:match "\n\nTry it[^\n]*\n(.*)$":gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("^  ", "") end
put_literal(lines)
local also = { table.unpack(others) }
also[#also + 1], also[#also + 2] = "lunarch 7", "lunarch-script 7"
end_page("lunarch", 1, also)

for _, command in ipairs(commands) do command_page(command.name, command.summary) end

begin_page("lunarch", 7, "how Lunarch elects a leader, and what its words mean")
put ".Sh DESCRIPTION"
put_markdown(section("README.md", "What it promises"), 1)
put ".Ss Times and other options"
put_markdown(section("docs/operations.md", "Options"), 1)
for _, heading in ipairs { "Before it runs", "Who comes next", "The state file" } do
	put(".Ss " .. heading)
	put_markdown(section("docs/operations.md", heading), 1)
end
put ".Ss Words"
put_markdown(section("docs/glossary.md", "Words"), 1)
end_page("lunarch", 7, { "lunarch 1", "lunarch-script 7" })

begin_page("lunarch-script", 7, "what a script of Lunarch can call")
put ".Sh DESCRIPTION"
-- Its first paragraph is about the page itself.
put_markdown(section("docs/api.md", "The API"):gsub("^\n*.-\n\n", "", 1), 2)
end_page("lunarch-script", 7, { "lunarch-run 1", "lunarch-test 1", "lunarch 7" })
