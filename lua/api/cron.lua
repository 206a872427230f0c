-- term:cron(expression, f [, options]): calls f at the times of a cron expression, whoever leads. The last time for which f was called
-- is in the checkpoint. So no later leader calls f for it again, and each knows which times were missed.
-- deps: the functions that it needs; tests replace them by virtual time (tests/unit/cron/test_cron.c).

local use = ...
local check = use "options"

return function(deps)
	local known = {
		name = function(v) return (type(v) ~= "string" or v == "" or #v > 100) and "a text of 1 to 100 bytes" or nil end,
		zone = "text",
		catch_up = { skip = true, last = true, all = true },
		overlap = "boolean",
		again = "boolean",
	}

	local LOOK_AGAIN <const> = deps.look_again or 60 -- seconds: the clock may be set meanwhile
	local DAY <const> = 86400
	local BEHIND <const> = 60 -- seconds; two machines' clocks may differ by so much without a warning
	local LATEST <const> = 99999999999 -- the year 5138: the largest time that is used
	local FORGET <const> = 400 * DAY -- a job's mark that has not moved for so long is removed
	local EXPRESSION_MAX <const> = 1000 -- bytes
	local WHAT <const> = "term:cron"

	local jobs_of = setmetatable({}, { __mode = "k" }) -- term -> name -> task

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
		elseif options.overlap and options.again then
			fail(3, "overlap and again exclude each other: with several runs at once, it is not known which times have been done")
		end
		return options
	end

	local function check_name(term, name)
		local names = jobs_of[term] or {}
		jobs_of[term] = names
		if names[name] and not names[name]:done() then
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

	local function run(term, f, tick, options)
		if options.overlap then
			term:spawn(f, tick)
		else
			f(tick)
		end
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

	local function loop(term, job, name, names, f, options)
		local last, taking
		local behind, slept = watch_clock(name), 0
		local _ <close> = setmetatable({}, { __close = function()
			if taking then
				take_back(term, name, taking, last)
			end
		end })
		last = last_time(term, name, names)
		while last and not term:stopping() do
			local now = deps.now()
			local due, wake = job:due(last, now, options.catch_up or "last")
			behind(last, now, slept)
			slept = 0
			if due then
				taking = not options.again and due
				if taking and (not mark(term, name, names, due) or term:stopping()) then
					return
				end
				last, taking = due, nil
				run(term, f, { time = due, late = now - due, caught_up = now - due >= 60 }, options)
				if options.again and not mark(term, name, names, due) then
					return
				end
			else
				slept = math.min(LOOK_AGAIN, math.max(0, (wake or math.huge) - now))
				deps.rest(slept) -- it ends early when the term drains
			end
		end
	end

	return function(term, expression, f, options)
		options = read_options(expression, f, options)
		local name = options.name or expression
		local job, err = deps.parse(expression, term.lock .. "\n" .. name, options.zone or "local")
		if not job then
			fail(2, err.message)
		end
		local names = check_name(term, name)
		names[name] = term:spawn(loop, term, job, name, names, f, options)
		return names[name]
	end
end
