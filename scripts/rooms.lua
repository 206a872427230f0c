-- Checks that the sources keep to scripts/rooms.txt and define each struct, union and enum once; draws the rooms for docs/design.md.
-- lua5.4 scripts/rooms.lua --check: silent if all is well.  --calls FOLDER: the same for the objects in FOLDER/obj: what a file calls
-- without including it itself.  --draw: the picture (Mermaid) and the table of rooms, which the docs must hold.

local MOST <const> = 20 -- .c files in a room: one that has more holds two ideas
local LIBRARIES <const> = { ["ev.h"] = "ev.h", ["lua.h"] = "lua", ["lauxlib.h"] = "lua", ["lualib.h"] = "lua", ["curl/curl.h"] = "curl",
	["nghttp2/nghttp2.h"] = "nghttp2", ["openssl/ssl.h"] = "openssl" }
-- Which files alone may include a library.
local SOLE <const> = { curl = "runtime/net/http/http_internal.h", nghttp2 = "runtime/net/grpc/grpc.c", openssl = "runtime/net/tls/tls.c runtime/script/api/lua_mysql.c" }
-- The tests that may look inside, and why: the simulator copies a lease machine whole (a cloned virtual machine); the replay of the
-- model's traces compares what the machine knows; what libcurl's codes mean is a table that no server of a test can fill.
local INSIDERS <const> = { ["tests/sim/world.h"] = "lease/lease_internal.h", ["tests/unit/net/http/test_http.c"] = "net/http/http_internal.h",
	["tests/model/replay.c"] = "lease/lease_internal.h" }
local DOCS <const> = "docs/design.md"

local rooms, order, problems = {}, {}, {}
local defended = {} -- "FILE FILE": the first may include the second although that makes a circle
local excused = {} -- "FILE ROOM": the file may use a symbol of the room although the room is not below its own

local function problem(...)
	problems[#problems + 1] = string.format(...)
end

local function set_of(text)
	local set = {}
	for word in text:gmatch("%S+") do
		set[word] = true
	end
	return set
end

local function text_of(path)
	local f <close> = assert(io.open(path))
	return f:read "a"
end

-- The top of a room's main header says what the room is: "Room NAME: a sentence." and an empty line.
local function about_of(room)
	local path = "runtime/" .. (room.header:find "/" and "" or room.name .. "/") .. room.header
	local f <close> = io.open(path)
	local name, about = (f and f:read "a" or ""):match "^/%* Room ([%w/]+): (.-)%.\n %*\n"
	if name ~= room.name then
		problem("%s:1: expected \"/* Room %s: what it is.\" and an empty line of the comment", path, room.name)
		return ""
	end
	return (about:gsub("\n %* ", " "))
end

local function read_rooms()
	for line in io.lines("scripts/rooms.txt") do
		local from, to = line:match("^circle ([%w/_]+) ([%w/_]+): %g")
		if from then
			defended[from .. " " .. to] = true
		end
		local user, used = line:match("^call ([%w/_]+) ([%w/]+): %g")
		if user then
			excused[user .. " " .. used] = "unmet"
		end
		local name, header, rest = line:match("^([%w/]+) %(([%w_/]+%.h)%):(.*)$")
		if name then
			local below, libraries = rest:match("^([^|]*)|?(.*)$")
			rooms[name] = { name = name, header = header, below = set_of(below), libraries = set_of(libraries), files = {}, sources = 0 }
			for other in pairs(rooms[name].below) do
				if not rooms[other] then
					problem("scripts/rooms.txt: %s may include %s, which is not below it", name, other)
				end
			end
			order[#order + 1] = name
		elseif not from and not user and line:find "^[^#]" then
			problem("scripts/rooms.txt: \"%s\" is no line of the form ROOM (HEADER): rooms | libraries", line)
		end
	end
end

local function room_of(path)
	return path:match "^(.*)/[^/]*$"
end

-- X_internal.h is for the files whose names begin with X.
local function check_inner(path, number, included)
	local owner = included:match "^(.*)_internal%.h$"
	local ours = owner and ("runtime/" .. owner)
	if ours and path:sub(1, #ours) ~= ours and INSIDERS[path] ~= included then
		problem('%s:%d: "%s" is private to %s*', path, number, included, owner)
	end
end

-- `used` collects what is included from where, so that an edge that nothing needs any more leaves the list.
local function check_include(room, path, number, line, used, files)
	local own = line:match '^#include "([^"]+)"'
	if own and own ~= "version.h" and own ~= "modules.h" and not (own:find "%.pb%-c%.h$" and room_of(own) == room.name) then -- made by protoc-c
		local other = room_of(own)
		check_inner(path, number, own)
		if not files["runtime/" .. own] then
			problem('%s:%d: "%s": includes go by path from runtime/', path, number, own)
		elseif other ~= room.name and not room.below[other] then
			problem("%s:%d: %s may not include %s (scripts/rooms.txt)", path, number, room.name, other)
		else
			used[other] = true
		end
	end
	local library = LIBRARIES[line:match "^#include <([^>]+)>" or ""]
	if library then
		used[library] = true
		if not room.libraries[library] then
			problem("%s:%d: %s does not use %s (scripts/rooms.txt)", path, number, room.name, library)
		elseif SOLE[library] and not SOLE[library]:find(path, 1, true) then
			problem("%s:%d: only %s includes %s", path, number, SOLE[library], library)
		end
	end
end

local function check_file(room, path, used, files)
	local text = text_of(path)
	if path:find "%.h$" and not text:find "^/%*" then
		problem("%s:1: a header begins with a comment: what it is, what it is not, who uses it", path)
	end
	local number = 0
	for line in text:gmatch "([^\n]*)\n" do
		number = number + 1
		check_include(room, path, number, line, used, files)
	end
end

local function list_files()
	local files = {}
	local list <close> = assert(io.popen "find runtime -name '*.[ch]' | LC_ALL=C sort")
	for path in list:lines() do
		local name = room_of(path):sub(#"runtime/" + 1)
		files[path] = true
		local room = rooms[name]
		if room then
			room.files[#room.files + 1] = path
			room.sources = room.sources + (path:find "%.c$" and 1 or 0)
		else
			problem("%s: %s is no room of scripts/rooms.txt", path, name)
		end
	end
	return files
end

local function check_rooms(files)
	for _, name in ipairs(order) do
		local room, used = rooms[name], {}
		for _, path in ipairs(room.files) do
			check_file(room, path, used, files)
		end
		for _, allowed in ipairs { room.below, room.libraries } do
			for other in pairs(allowed) do
				if not used[other] then
					problem("scripts/rooms.txt: %s includes nothing of %s", name, other)
				end
			end
		end
		if room.sources > MOST then
			problem("runtime/%s: %d C files, %d at the most", name, room.sources, MOST)
		end
	end
end

-- The name of a struct, union or enum says what it is in the whole program, so it is defined once.
local function check_names(files)
	local defined = {}
	for path in pairs(files) do
		for kind, name in ("\n" .. text_of(path)):gmatch "\n[%w_\t ]*%f[%w](%l+) ([%w_]+) {" do
			if kind == "struct" or kind == "union" or kind == "enum" then
				defined[name] = defined[name] or {}
				table.insert(defined[name], path)
			end
		end
	end
	for name, paths in pairs(defined) do
		if #paths > 1 then
			table.sort(paths)
			problem("%s: %s is defined in %s as well", paths[1], name, table.concat(paths, ", ", 2))
		end
	end
end

-- Two files (a header, its source and its X_internal.h are one) that include each other, directly or through others.
local function check_circles(files)
	local includes, met = {}, {}
	for path in pairs(files) do
		local stem = path:match("^runtime/(.*)%.[ch]$"):gsub("_internal$", "")
		includes[stem] = includes[stem] or {}
		for other in text_of(path):gmatch '#include "([^"]+)%.h"' do
			other = other:gsub("_internal$", "")
			if defended[stem .. " " .. other] then
				met[stem .. " " .. other] = true
			elseif other ~= stem and files["runtime/" .. other .. ".h"] then
				includes[stem][other] = true
			end
		end
	end
	local state = {}
	local function visit(stem, trail)
		state[stem] = "open"
		trail[#trail + 1] = stem
		for other in pairs(includes[stem]) do
			if state[other] == "open" then
				problem("runtime/: a circle of files: %s, %s", table.concat(trail, ", "), other)
			elseif not state[other] then
				visit(other, trail)
			end
		end
		trail[#trail] = nil
		state[stem] = "done"
	end
	for pair in pairs(defended) do
		if not met[pair] then
			problem("scripts/rooms.txt: circle %s: it is no more", pair)
		end
	end
	for stem in pairs(includes) do
		if not state[stem] then
			visit(stem, {})
		end
	end
end

-- Without the arrows that others imply: what a room may include through one below it is not drawn.
local function drawing()
	local reach, lines = {}, { "```mermaid", "graph TD" }
	for _, name in ipairs(order) do
		reach[name] = {}
		for other in pairs(rooms[name].below) do
			reach[name][other] = true
			for further in pairs(reach[other]) do
				reach[name][further] = true
			end
		end
	end
	local function implied(name, other)
		for between in pairs(rooms[name].below) do
			if reach[between][other] then
				return true
			end
		end
	end
	for i = #order, 1, -1 do
		local name = order[i]
		for j = #order, 1, -1 do
			local other = order[j]
			if rooms[name].below[other] and not implied(name, other) then
				lines[#lines + 1] = string.format("    %s --> %s", name, other)
			end
		end
	end
	lines[#lines + 1] = "```\n\n| room | what it is |\n|---|---|"
	for i = #order, 1, -1 do
		lines[#lines + 1] = string.format("| `%s` | %s; begin with `%s` |", order[i], about_of(rooms[order[i]]), rooms[order[i]].header)
	end
	return table.concat(lines, "\n") .. "\n"
end

local function check_tests()
	local list <close> = assert(io.popen "find tests -name '*.[ch]'")
	for path in list:lines() do
		local number = 0
		for line in io.lines(path) do
			number = number + 1
			local included = line:match '^#include "([^"]+)"'
			if included then
				check_inner(path, number, included)
			end
		end
	end
end

-- What each object of `folder` defines and uses, by nm(1): files are named without their folder and ending. `files`: the sources that
-- are there; an object may be left of one that is gone.
local function read_symbols(folder, files)
	local owner, uses = {}, {}
	local list <close> = assert(io.popen("find " .. folder .. "/obj -name '*.o' | LC_ALL=C sort | xargs nm -A -g"))
	for line in list:lines() do
		local file, kind, symbol = line:match "/obj/([^:]*)%.o:%s*%x*%s+(%a) (%S+)$"
		if file and files["runtime/" .. file .. ".c"] then
			if kind == "U" then
				uses[#uses + 1] = { file = file, symbol = symbol }
			else
				owner[symbol] = file
			end
		end
	end
	return owner, uses
end

-- An include says what a file may call. This says what it calls: by a header that another header includes, or by a name that it declares itself.
local function check_calls(folder, files)
	local owner, uses = read_symbols(folder, files)
	if #uses == 0 then
		problem("%s: no objects to look at: run make first", folder)
	end
	for _, use in ipairs(uses) do
		local from, to = room_of(use.file), owner[use.symbol] and room_of(owner[use.symbol])
		local excuse = to and use.file .. " " .. to
		if to and excused[excuse] then
			excused[excuse] = "met"
		elseif to and to ~= from and not rooms[from].below[to] then
			problem("runtime/%s.c uses %s of %s, which %s may not (scripts/rooms.txt)", use.file, use.symbol, to, from)
		end
	end
	for pair, state in pairs(excused) do
		if state ~= "met" then
			problem("scripts/rooms.txt: call %s: there is none any more", pair)
		end
	end
end

local function end_with_problems()
	if #problems > 0 then
		table.sort(problems)
		print(table.concat(problems, "\n"))
		os.exit(1)
	end
end

read_rooms()
end_with_problems()
if arg[1] == "--draw" then
	io.write(drawing())
	return
end
local files = list_files()
if arg[1] == "--calls" then
	check_calls(arg[2], files)
	end_with_problems()
	return
end
check_rooms(files)
check_circles(files)
check_names(files)
check_tests()
if not text_of(DOCS):find(drawing(), 1, true) then
	problem("%s: its picture of the rooms is not what `lua5.4 scripts/rooms.lua --draw` prints", DOCS)
end
end_with_problems()
