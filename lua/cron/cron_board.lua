-- What `lunarch cron` tells of its jobs to whom asks its elector (/jobs, the page): when each runs next, whether it runs, and what came of its
-- last run. Never the command, which may have secrets. Nothing depends on it.
-- next_time(job, after): when the job runs next, after that time; nil: never.

return function(natives, next_time)
	local board = {}
	local known = {} -- job -> what is told of it

	local function of(job)
		known[job] = known[job] or { name = job.name, schedule = job.time, zone = job.zone, running = 0 }
		return known[job]
	end

	local function tell(job)
		local it = of(job)
		it.next = next_time(job, math.floor(natives.time.now()))
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

	-- A term begins: all jobs are told, with the last runs of earlier terms as far as they are known. past: a list, oldest first.
	function board.begin(term, jobs, past)
		local last = {}
		for _, run in ipairs(past) do
			if is_run(run) then
				last[run.job] = run
			end
		end
		for _, job in ipairs(jobs) do
			local it, run = of(job), last[job.name]
			if run and not it.status then
				take_last(it, run)
				-- without an end, and its leader leads no more
				it.status = run.status == "running" and run.token < term.token and "lost" or run.status
			end
			if it.status == "running" then -- of this term: its end is not told yet
				it.last, it.status = nil, nil
			end
			tell(job)
		end
	end

	function board.began(job)
		of(job).running = of(job).running + 1
		tell(job)
	end

	function board.ended(job, run)
		local it = of(job)
		it.running = it.running - 1
		take_last(it, run)
		tell(job)
	end

	board.skipped = tell

	return board
end
