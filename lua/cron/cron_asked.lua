-- `lunarch cron run JOB`: answers what the elector passes on, that a job of this term's crontabs is to run now. Its overlap rule holds.
-- Whether that happens is decided by term:cron (natives.cron_ask).

local use = ...
local suggest = use "suggest"
local lunarch = require "lunarch"

local SHOWN <const> = 10 -- names in an answer
local HASH <const> = "%-%x%x%x%x%x%x%x%x%.?%d*$" -- what a job's name ends with that the crontab does not give

local function iso(time)
	return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(time))
end

local function list_of(names)
	table.sort(names)
	local more = #names > SHOWN and (" and %d more"):format(#names - SHOWN) or ""
	return table.concat(names, ", ", 1, math.min(#names, SHOWN)) .. more
end

-- By its name; or by its program's, for a job that has no name in the crontab and is the only one of it. nil and why not.
local function find(jobs, wanted)
	local names, near, found = {}, {}, nil
	for _, job in ipairs(jobs) do
		if job.name == wanted then
			return job
		end
		local short = job.name:gsub(HASH, "")
		names[job.name], names[short] = true, true
		if short == wanted then
			near[#near + 1] = job.name
			found = job
		elseif wanted ~= "" and job.name:sub(1, #wanted) == wanted then
			near[#near + 1] = job.name
		end
	end
	if #near == 1 and found then
		return found
	elseif #near > 0 then
		return nil, ("which job? '%s' is the whole name of none, and these begin with it: %s"):format(wanted, list_of(near))
	end
	local all = {}
	for i, job in ipairs(jobs) do
		all[i] = job.name
	end
	return nil, ("there is no job '%s'%s; there are: %s"):format(wanted, (suggest(wanted, names)), list_of(all))
end

-- Of the file of passwords, so that the history names people.
local function name_of(uid)
	local passwords <close> = io.open("/etc/passwd", "r")
	for line in passwords and passwords:lines() or function() end do
		local name, its = line:match "^([^:]*):[^:]*:(%d+):"
		if tonumber(its) == uid then
			return name
		end
	end
	return uid == 0xffffffff and "?" or tostring(uid)
end

local refusals <const> = {
	unknown = "the term is ending",
	overlap = "it runs already, since %s, and overlap=skip: no other run begins", queued = "it runs already, since %s, and one that was asked for waits for it",
}

return function(natives, term, jobs, runner)
	local asked = 0

	-- The answer when it has ended.
	local function outcome(task, tick)
		task:wait()
		local run = tick.run
		if not run then
			return false, "it has not begun: the term ends", 0
		elseif run.status == "interrupted" then
			return false, run.why, 0
		end
		return true, ("%s, after %.1f s"):format(run.why, run.took), run.code
	end

	natives.on_request(term, function(wanted, wait, uid)
		local job, why = find(jobs, wanted)
		if not job then
			return false, why, 0
		end
		asked = asked + 1
		local now = lunarch.time.now()
		local tick = { time = math.floor(now), late = 0, caught_up = false, asked = { by = name_of(uid), number = asked } }
		local task, waits = natives.cron_ask(term, job.name, tick)
		local since = runner.running_since(job) -- its own run has not begun yet
		if task and waits then
			natives.emit("info", "cron_queued", ("the job \"%s\" (%s:%d) runs again when its run has ended, as %s has asked"):format(
				job.name, job.path, job.line, tick.asked.by))
		end
		if not task then
			return false, ("the job \"%s\": %s"):format(job.name, refusals[waits]:format(since and iso(since) or "this moment")), 0
		elseif wait then
			local begun, text, code = outcome(task, tick)
			return begun, ("the job \"%s\": %s"):format(job.name, text), code
		elseif waits then
			return true, ("the job \"%s\" runs already, since %s: it runs again when that has ended"):format(job.name, iso(since or now)), 0
		end
		return true, ("the job \"%s\" starts%s"):format(job.name, since and (", beside its run since %s"):format(iso(since)) or ""), 0
	end)
end
