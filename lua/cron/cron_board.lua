-- What `lunarch cron` tells of its jobs to whom asks its elector (/jobs, the page): when each runs next, whether it runs, and what came of its
-- last run. Never the command, which may have secrets. Nothing depends on it.
-- next_time(job, after): when the job runs next, after that time; nil: never.

return function(natives, next_time)
	local board = {}
	local known = {} -- by name: what is told of it, and the job

	local function tell(it)
		it.next = next_time(it.job, math.floor(natives.time.now()))
		natives.job(it)
	end

	local function take_last(it, run)
		it.last, it.status = math.floor(run.began), run.status
		it.why = run.status ~= "ok" and run.why or nil
		it.took_ms = run.took and math.floor(run.took * 1000) or nil
	end

	-- A run of the history, in whose files anything may stand.
	local function is_run(run)
		return type(run.job) == "string" and type(run.status) == "string" and math.tointeger(run.token) and type(run.began) == "number"
			and run.began >= 0 and run.began < 1e11 and (run.took == nil or type(run.took) == "number" and run.took >= 0 and run.took < 1e11)
			and (run.why == nil or type(run.why) == "string" and #run.why <= 500) and run.status ~= "skipped"
	end

	-- There is this job, or it is another one now. Told only within a term.
	function board.set(job)
		local it = known[job.name] or { name = job.name, running = 0 }
		known[job.name], it.job, it.schedule, it.zone = it, job, job.time, job.zone
		tell(it)
	end

	-- There is no such job any more, whether its last run has ended or not.
	function board.drop(name)
		known[name] = nil
		natives.job { name = name }
	end

	-- A term begins: all jobs are told, with the last runs of earlier terms as far as they are known. past: a list, oldest first.
	function board.begin(term, jobs, past)
		local last = {}
		for _, run in ipairs(past) do
			if is_run(run) then
				last[run.job] = run
			end
		end
		for _, job in ipairs(jobs) do
			board.set(job)
			local it, run = known[job.name], last[job.name]
			if run and not it.status then
				take_last(it, run)
				-- without an end, and its leader leads no more
				it.status = run.status == "running" and run.token < term.token and "lost" or run.status
			end
			if it.status == "running" then -- of this term: its end is not told yet
				it.last, it.status = nil, nil
			end
			tell(it)
		end
	end

	local function change(job, by, run)
		local it = known[job.name]
		if not it then
			return
		end
		it.running = math.max(0, it.running + by)
		if run then
			take_last(it, run)
		end
		tell(it)
	end

	-- What is due at once begins before the history is read, and thus before board.begin.
	function board.began(job)
		if not known[job.name] then
			board.set(job)
		end
		change(job, 1)
	end

	function board.ended(job, run) change(job, -1, run) end
	function board.skipped(job) change(job, 0) end

	return board
end
