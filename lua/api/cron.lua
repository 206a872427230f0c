-- term:cron(expression, f [, options]): calls f at the times of a cron expression, whoever leads. The last time for which f was called
-- is in the checkpoint. So no later leader calls f for it again, and each knows which times were missed.
-- deps: the functions that it needs; tests replace them by virtual time (tests/unit/cron/test_cron.c).

local use = ...
local check = use "options"

return function(deps)
	local known = {
		name = function(v) return (type(v) ~= "string" or v == "" or #v > 100) and "a text of 1 to 100 bytes" or nil end,
		zone = "text",
		catch_up = function(v)
			local good = v == "skip" or v == "last" or v == "all" or (type(v) == "number" and v >= 0 and v < math.huge)
			return not good and '"all", "last", "skip", or a number of seconds' or nil
		end,
		overlap = function(v) return type(v) ~= "boolean" and v ~= "skip" and 'true, false or "skip"' or nil end,
		again = "boolean",
		seed = "text",
		on_skip = function(v) return type(v) ~= "function" and "a function" or nil end,
	}

	local LOOK_AGAIN <const> = deps.look_again or 60 -- seconds: the clock may be set meanwhile
	local DAY <const> = 86400
	local ON_TIME <const> = 60 -- seconds: less is not late (cron.c)
	local BEHIND <const> = 60 -- seconds; two machines' clocks may differ by so much without a warning
	local LATEST <const> = 99999999999 -- the year 5138: the largest time that is used
	local FORGET <const> = 400 * DAY -- a job's mark that has not moved for so long is removed
	local EXPRESSION_MAX <const> = 1000 -- bytes
	local WHAT <const> = "term:cron"

	local jobs_of = setmetatable({}, { __mode = "k" }) -- term -> name -> state

	local function fail(level, text)
		error(WHAT .. ": " .. text, level + 1)
	end

	local function read_options(expression, f, options)
		if type(expression) ~= "string" then
			fail(3, ("expected a cron expression, as in \"30 3 * * *\", found a %s"):format(type(expression)))
		elseif #expression > EXPRESSION_MAX then
			fail(3, ("expected a cron expression of at most %d bytes, found a text of %d"):format(EXPRESSION_MAX, #expression))
		elseif type(f) ~= "function" then
			fail(3, ("expected a function to call, found a %s"):format(type(f)))
		elseif options ~= nil and type(options) ~= "table" then
			fail(3, 'the options are a table, as in { catch_up = "all" }')
		end
		options = options or {}
		local wrong = check(WHAT, options, known)
		if wrong then
			error(wrong, 3)
		elseif options.overlap == true and options.again then
			fail(3, "overlap and again exclude each other: with several runs at once, it is not known which times have been done")
		end
		return options
	end

	local function check_name(term, name)
		local names = jobs_of[term] or {}
		jobs_of[term] = names
		if names[name] and not names[name].gone and not names[name].task:done() then
			fail(3, ("there is a job \"%s\" already: give each a name of its own, as in { name = \"report\" }"):format(name))
		end
		return names
	end

	-- Moves the job's mark, the last time for which f was called; never backwards. false: the term is over, and so is the job.
	local function mark(term, name, names, due)
		local good, err = deps.update(term, "cron", function(all)
			all = all or {}
			for other, last in pairs(all) do
				if not names[other] and type(last) == "number" and last < due - FORGET then
					all[other] = nil
				end
			end
			all[name] = math.max(math.tointeger(all[name]) or due, due)
			return all
		end, WHAT)
		if not good and err.code ~= "ended" then
			error(err, 0)
		end
		return good
	end

	-- The job's mark. A job that no leader has had before gets one now: nothing was missed.
	local function last_time(term, name, names)
		local all, err = deps.get(term, "cron", WHAT)
		if err then
			error(err, 0)
		end
		local last = type(all) == "table" and math.tointeger(all[name]) or nil
		if last then
			return math.min(math.max(last, 0), LATEST)
		end
		local now = math.floor(deps.now())
		return mark(term, name, names, now) and now
	end

	-- Warns if the mark is later than this machine's clock: at once, then once a day.
	local function watch_clock(name)
		local waited = DAY
		return function(last, now, slept)
			waited = waited + slept
			if last - now < BEHIND then
				waited = DAY
			elseif waited >= DAY then
				waited = 0
				deps.emit("warn", "cron_future", ("the job \"%s\" ran last for %s, and this machine's clock says %s: it waits until the "
					.. "clock is past that. If that time is wrong, give the job another name, and it begins anew"):format(name,
					os.date("!%Y-%m-%dT%H:%M:%SZ", last), os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(now))))
			end
		end
	end

	-- What is due, and when to look again; the third: it is to be left out, since it is later than catch_up allows. A time that came while f
	-- ran has waited for f, and is not late.
	local function look(state, job, now, catch_up)
		local limit = type(catch_up) == "number" and math.max(catch_up, ON_TIME)
		local due, wake = job:due(state.last, now, limit and "last" or catch_up)
		local waited = due and state.busy_to and due > state.busy_from and due <= state.busy_to
		return due, wake, limit and due and not waited and now - due >= limit and "late" or nil
	end

	-- The term ended or drained while the mark was being saved, so f was not called. With the old mark the next leader calls it.
	local function take_back(term, name, due, before)
		deps.update(term, "cron", function(all)
			if all and all[name] == due then
				all[name] = before
			end
			return all
		end, WHAT, nil, true)
	end

	-- Calls f, and with `again` marks it when f says that it is done, or has returned. Then what was left out meanwhile is marked, too.
	-- A time that was asked for is no time of the expression, and is not marked itself.
	local function run(state, tick)
		local marked = not state.options.again -- state.options may be others by then
		local function done()
			marked = marked or mark(state.term, state.name, state.names, tick.asked and state.last or math.max(tick.time, state.last))
			return marked
		end
		state.f(tick, done)
		return done()
	end

	-- Those who wait for the end of a run, or for the beginning of the job.
	local function wake_all(state)
		repeat until not state.free:wake()
	end

	-- Without overlap = true, one run at a time: state.busy, from before its time is marked until it has ended.
	local function run_alone(state, tick)
		local _ <close> = setmetatable({}, { __close = function()
			state.busy = nil
			wake_all(state)
		end })
		return run(state, tick)
	end

	-- One time that is due. false: the term is over, and so is the job.
	local function take(state, due, now, why)
		local term, options = state.term, state.options
		local tick = { time = due, late = now - due, caught_up = now - due >= ON_TIME }
		if not why and options.overlap == "skip" and state.busy then
			why = "overlap"
		end
		state.busy = state.busy or (not why and options.overlap ~= true) or nil
		local before = not options.again or why == "late"
		state.taking = before and not why and due
		if before and (not mark(term, state.name, state.names, due) or (not why and (term:stopping() or state.gone))) then
			return false
		end
		state.last, state.taking = due, nil
		if why then
			if options.on_skip then
				options.on_skip(tick, why)
			end
		elseif options.overlap then
			term:spawn(options.overlap == true and run or run_alone, state, tick)
		else
			local goes_on = run_alone(state, tick)
			state.busy_from, state.busy_to = now, deps.now()
			return goes_on
		end
		return true
	end

	local function loop(state)
		local term, name, names = state.term, state.name, state.names
		local behind, slept = watch_clock(name), 0
		local _ <close> = setmetatable({}, { __close = function()
			if state.taking then
				take_back(term, name, state.taking, state.last)
			end
		end })
		state.last = last_time(term, name, names)
		wake_all(state)
		while state.last and not state.gone and not term:stopping() do
			local now = deps.now()
			local due, wake, why = look(state, state.job, now, state.options.catch_up or "last")
			behind(state.last, now, slept)
			slept = 0
			if not due then
				slept = math.min(LOOK_AGAIN, math.max(0, (wake or math.huge) - now))
				state.resting = true
				deps.rest(slept) -- it ends early when the term drains
				state.resting = nil
			elseif state.busy and not state.options.overlap then -- by a run that was asked for
				state.free:wait()
				state.busy_from, state.busy_to = state.asked_from, deps.now()
			elseif not take(state, due, now, why) then
				return
			end
		end
	end

	-- Waits for the run that is under way. If the term ends meanwhile, f is not called.
	local function run_queued(state, tick)
		local begun = false
		local _ <close> = setmetatable({}, { __close = function()
			if not begun and state.options.on_skip then
				state.options.on_skip(tick, "ended")
			end
		end })
		while state.busy do
			state.free:wait()
		end
		state.queued = nil
		if not state.term:stopping() then
			begun, state.busy, state.asked_from = true, true, deps.now()
			run_alone(state, tick)
		end
	end

	-- Runs f now, by the rule for overlapping. Returns its task, and whether that waits for a run that is under way; or nil and why not:
	-- "unknown" job, "overlap", or "queued": another one that was asked for waits already. At the beginning of a term it waits for the job's.
	local function ask(term, name, tick)
		local state = (jobs_of[term] or {})[name]
		state = state and not state.gone and state or nil
		local rule = state and state.options.overlap
		if state and not state.last then
			state.free:wait()
		end
		if not state or not state.last or state.task:done() then
			return nil, "unknown"
		elseif rule == true then
			return term:spawn(run, state, tick), false
		elseif state.busy and rule == "skip" then
			return nil, "overlap"
		elseif state.queued then
			return nil, "queued"
		end
		if state.busy then
			state.queued = true
			return term:spawn(run_queued, state, tick), true
		end
		state.busy, state.asked_from = true, deps.now()
		return term:spawn(run_alone, state, tick), false
	end

	local function start(term, expression, f, options)
		options = read_options(expression, f, options)
		local name = options.name or expression
		local job, err = deps.parse(expression, options.seed or term.lock .. "\n" .. name, options.zone or "local")
		if not job then
			fail(2, err.message)
		end
		local names = check_name(term, name)
		local state = names[name]
		if not (state and state.gone) then
			state = { term = term, name = name, names = names, free = deps.signal() }
		end
		names[name], state.f, state.options, state.job, state.gone = state, f, options, job, nil
		if not state.task or state.task:done() then
			state.task = term:spawn(loop, state)
		end
		return state.task
	end

	-- The job begins no more. What runs goes on, and counts for `overlap` if the job is started again under its name.
	local function drop(term, name)
		local state = jobs_of[term][name]
		state.gone = true
		if state.resting then
			state.resting = nil
			state.task:cancel()
			state.task = nil
		end
	end

	return start, ask, drop
end
