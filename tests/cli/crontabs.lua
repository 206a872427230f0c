-- Prints what Lunarch makes of crontabs, a JSON object for each: its jobs with their times. For tests/cli/cron.py.
-- Arguments: a file to write, spans as "FROM-TO FROM-TO", and crontabs; one whose name begins with "s" has users.
local crontab = require "lunarch.crontab"
local file <close> = assert(io.open(arg[1], "w"))

local function times(job)
	local list = {}
	for from, to in arg[2]:gmatch "(%d+)-(%d+)" do
		local at = tonumber(from) - 1
		repeat
			local some = crontab.next(job, at, 40)
			for _, time in ipairs(some) do
				list[#list + 1] = time < tonumber(to) and time // 60 or nil
			end
			at = some[#some] or math.huge
		until at >= tonumber(to)
	end
	return list
end

for i = 3, #arg do
	local jobs, err = crontab.read { files = { arg[i] }, system = arg[i]:find "/s[^/]*$" ~= nil, user = "root", home = "/root" }
	local seen = {}
	for n, job in ipairs(jobs or {}) do
		seen[n] = { shell = job.env.SHELL, command = job.command, input = job.stdin or "", env = job.env, times = times(job) }
	end
	file:write(json.encode { name = arg[i]:match "[^/]*$", error = err and err.message or "", jobs = seen }, "\n")
end
return { on_leading = print }
