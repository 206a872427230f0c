-- What `lunarch cron` keeps of its runs, in a directory: history-HOST.jsonl, a JSON object for each begin and each end of a run, and
-- JOB.HOST.log, the output of a job's runs. Each machine has files of its own there, so that several can share the directory.
-- A file that has grown to SIZE is renamed to NAME.1, in place of an older one. What cannot be written is said once; no job waits for it.

local lunarch = require "lunarch"

local SIZE <const> = 1048576

local function size_of(path)
	local file <close> = io.open(path, "r")
	return file and file:seek "end" or 0
end

local function append(path, text)
	if size_of(path) >= SIZE then
		os.rename(path, path .. ".1")
	end
	local file <close>, why = io.open(path, "a")
	if not file then
		return nil, why
	end
	local good, failed = file:write(text)
	if good then
		good, failed = file:flush()
	end
	return good and true or nil, failed
end

local function host_of()
	local file <close> = io.open("/proc/sys/kernel/hostname", "r")
	local name = file and file:read "l" or "localhost"
	return (name:gsub("[^%w.-]", "_"))
end

-- tail: only of so many bytes at the end; nil: of all.
local function read_lines(json, path, tail, each)
	local file <close> = io.open(path, "r")
	local size = file and tail and file:seek "end" or 0
	if size > 0 then
		file:seek("set", math.max(0, size - tail))
	end
	if tail and size > tail then
		file:read "l" -- what is left of a line
	end
	for line in file and file:lines() or function() end do
		local value = json.decode(line)
		if type(value) == "table" and type(value.id) == "string" then -- a line that was cut by a crash is none
			each(value)
		end
	end
end

return function(natives)
	local json, emit = natives.json, natives.emit
	local history = { host = host_of() }

	-- directory nil: nothing is kept.
	function history.open(directory)
		local self = { directory = directory, log = directory and ("%s/history-%s.jsonl"):format(directory, history.host) }
		local said = false

		local function write(path, text)
			local good, why = append(path, text)
			if good then
				said = false
			elseif not said then
				said = true
				emit("warn", "cron_history", ("what ran cannot be kept: %s; the jobs run"):format(tostring(why)))
			end
			return good
		end

		function self.record(entry)
			local good, text = pcall(json.encode, entry) -- false: a text in it is no UTF-8
			if not good then
				entry.why = "?"
				text = json.encode(entry)
			end
			if directory then
				write(self.log, text .. "\n")
			end
		end

		-- The file to which the output was appended; nil: there is none.
		function self.output(job, head, output)
			if not directory or output == "" then
				return nil
			end
			local path = ("%s/%s.%s.log"):format(directory, job.name, history.host)
			local text = ("== %s\n%s%s"):format(head, output, output:sub(-1) == "\n" and "" or "\n")
			return write(path, text) and path or nil
		end

		return self
	end

	local function files_in(directory)
		local result, err = lunarch.exec { "find", "-H", directory, "-maxdepth", "1", "-type", "f", "(", "-name", "history-*.jsonl", "-o", "-name",
			"history-*.jsonl.1", ")", timeout = 30 }
		if not result or not result.ok then
			return nil, err or select(2, natives.fail("missing",
				"no run is known (the elector's --lock, --state-dir and --output-dir say where they are): " .. result.stderr:gsub("%s+$", "")))
		end
		local list = {}
		for path in result.stdout:gmatch "[^\n]+" do
			list[#list + 1] = path
		end
		return list
	end

	-- The runs of all machines in that directory, oldest first. One without an end was under way when the file was read, or was lost with its
	-- leader: lost, if a later leader is known. tail: only of so many bytes at the end of each file; nil: of all.
	function history.read(directory, tail)
		local list, err = files_in(directory)
		if not list then
			return nil, err
		end
		local runs, newest = {}, 0
		for _, path in ipairs(list) do
			read_lines(json, path, tail, function(entry)
				local run = runs[entry.id] or {}
				runs[entry.id] = run
				for key, value in pairs(entry) do
					run[key] = value
				end
				newest = math.max(newest, math.tointeger(entry.token) or 0)
			end)
		end
		local sorted = {}
		for _, run in pairs(runs) do
			run.status = run.status or ((math.tointeger(run.token) or 0) < newest and "lost" or "running")
			sorted[#sorted + 1] = run
		end
		table.sort(sorted, function(a, b)
			local x, y = tonumber(a.began) or 0, tonumber(b.began) or 0
			return x ~= y and x < y or x == y and a.id < b.id
		end)
		return sorted
	end

	return history
end
