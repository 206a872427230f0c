-- What this version of the script has read of its files before, in this worker or another: that is read, and not the file, which may be
-- newer, half written or gone. Not what the script reads itself (io.open, dofile).

local package <const>, open <const>, load <const> = package, io.open, load

local function cannot_load(name, path, why)
	error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, why), 0)
end

local function read_module(name, path)
	local file <close>, why = open(path, "rb")
	local text = file and file:read "a"
	return text or cannot_load(name, path, why or "cannot read " .. path)
end

-- As luaL_loadfile: without a byte order mark, and without a first line that begins with #.
local function compile_module(name, path, text)
	local chunk, why = load(text:gsub("^\239\187\191", ""):gsub("^#[^\n]*", ""), "@" .. path)
	return chunk or cannot_load(name, path, why)
end

return function(natives)
	local find <const>, keep <const> = natives.kept_find, natives.keep

	-- The text of that name. If there is none, what read() returns, which is kept: a text, or nil and why not. again: an empty text is
	-- not believed.
	function natives.kept(name, read, again)
		local text, why = find(name)
		if why or text and not (again and text == "") then
			return text, why
		end
		text, why = read()
		if text then
			text, why = keep(name, text)
		end
		return text, why
	end

	-- The searcher of Lua files. By the module's name: meanwhile another file may stand earlier in package.path, or the file where there was
	-- none. But who asks again for a module that was not there means the file of now. What cannot be compiled is not kept.
	local asked = {}
	package.searchers[2] = function(name)
		local missing, own, chunk = "no file where an earlier process of this script looked for it: load the script anew (SIGHUP)", nil, nil
		local kept, wrong = natives.kept("module " .. name, function()
			local path, why = package.searchpath(name, package.path)
			if not path then
				missing = why
				return ""
			end
			local text = read_module(name, path)
			chunk, own = compile_module(name, path, text), path .. "\0" .. text
			return own
		end, asked[name])
		asked[name] = true
		if not kept then
			error(wrong, 0)
		end
		local path, text = kept:match "^([^\0]*)\0(.*)$"
		if not path then
			return missing
		end
		return kept == own and chunk or compile_module(name, path, text), path
	end
end
