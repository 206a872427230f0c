-- A year of lua/api/cron.lua on virtual time: leaders come, hand over, crash (also while they save, and while a job runs), and
-- nobody leads for a while. The clocks of some are days behind or ahead, for the first hours or for as long as they lead. The checkpoint is a table here; a save takes time, and what a crash does to it is a coin's toss.
-- Arguments: the job maker of lua/api/cron.lua (given its deps), natives.cron, natives.fail, how many failovers, ok(good, text).
local make, parse, fail, failovers, ok = ...

local YEAR <const> = 366 * 86400
local START <const> = 1704067200 -- 2024-01-01T00:00:00Z

math.randomseed(20240101)

local JOBS = {
	{ name = "hourly, last", expression = "0 * * * *", zone = "Europe/Berlin", catch_up = "last", takes = 90 },
	{ name = "hourly, all", expression = "0 * * * *", zone = "UTC", catch_up = "all", takes = 600 },
	{ name = "odd hours, all", expression = "15 */2 * * *", zone = "America/New_York", catch_up = "all", takes = 20 },
	{ name = "nightly, all", expression = "30 2 * * *", zone = "Europe/Berlin", catch_up = "all", takes = 3000 },
	{ name = "nightly, again", expression = "H H(0-4) * * *", zone = "Europe/Berlin", catch_up = "all", takes = 3000, again = true },
	{ name = "hourly, again", expression = "H * * * *", zone = "Asia/Kolkata", catch_up = "last", takes = 100, again = true },
	{ name = "halves, skip", expression = "*/30 * * * *", zone = "UTC", catch_up = "skip", takes = 5 },
	{ name = "slow, last", expression = "20 * * * *", zone = "UTC", catch_up = "last", takes = 6000 },
	{ name = "slow, overlapping", expression = "20 * * * *", zone = "UTC", catch_up = "all", takes = 6000, overlap = true },
	{ name = "asked for, waits", expression = "*/20 * * * *", zone = "UTC", catch_up = "all", takes = 600, asked = true },
	{ name = "asked for, at once", expression = "*/20 * * * *", zone = "UTC", catch_up = 60, takes = 1000, asked = true },
	{ name = "asked for, skips", expression = "*/20 * * * *", zone = "UTC", catch_up = "all", takes = 900, asked = true, overlap = "skip" },
	{ name = "asked for, again", expression = "*/20 * * * *", zone = "UTC", catch_up = "last", takes = 300, asked = true, overlap = "skip", again = true },
}

local now = START
local store = {}            -- the checkpoint: name -> last
local leader                -- the term that runs, or nil
local log = {}              -- name -> what happened
for _, job in ipairs(JOBS) do
	log[job.name] = { begun = {}, order = {}, done = {}, claimed = {}, lost = {}, running = 0, most = 0, skipped = {}, too_late = 0, asked = 0, refused = 0 }
end

-- ---- what a leader runs on ----

local serial = 0

local function spawn(term, f, ...)
	local arguments = table.pack(...)
	local task = { wake = now, co = coroutine.create(function() f(table.unpack(arguments, 1, arguments.n)) end) }
	serial = serial + 1
	task.serial = serial
	task.done = function() return coroutine.status(task.co) == "dead" end
	term.tasks[task] = true
	return task
end

local function sleep(seconds)
	coroutine.yield(now + seconds)
end

local said = {}             -- of clocks that are behind

local deps = {
	parse = parse, fail = fail, rest = sleep, look_again = 7200,
	get = function() return store end,
}

function deps.signal()
	local waiting, signal = {}, {}
	function signal.wait()
		local me = coroutine.running()
		for task in pairs(leader.tasks) do
			waiting[#waiting + 1] = task.co == me and task or nil
		end
		coroutine.yield(math.huge)
	end
	function signal.wake()
		local task = table.remove(waiting, 1)
		if task then
			task.wake = now
		end
		return task ~= nil
	end
	return signal
end

function deps.emit(_, event, text)
	assert(event == "cron_future", text)
	said[#said + 1] = { at = now, leader = leader }
end

-- What the leader's clock says.
function deps.now()
	return now + (now < leader.right_from and leader.wrong or 0)
end

-- As the runtime has it: upon what is on its way, one answer each; without waiting, it is sent while the lock is still held.
function deps.update(term, _, change, _, _, no_wait)
	local copy, mine = {}, {}
	for k, v in pairs(store) do
		copy[k] = v
	end
	for k, v in pairs(term.pending) do
		copy[k] = v
	end
	for k, v in pairs(change(copy)) do
		if v ~= (term.pending[k] or store[k]) then
			mine[k] = v
		end
	end
	local function apply()
		for k, v in pairs(mine) do
			store[k] = v
			log[k].claimed[v] = true
		end
	end
	if no_wait then
		if not term.crashed then
			apply()
		end
		return true
	end
	for k, v in pairs(mine) do
		term.pending[k] = v
	end
	local me = coroutine.running()
	term.saving[me] = apply
	coroutine.yield(now + math.random() * 0.5)
	term.saving[me] = nil
	apply()
	return true
end

local cron, ask = make(deps)

-- ---- the leaders ----

local function job_body(job)
	local l = log[job.name]
	return function(tick)
		if tick.asked then
			l.asked = l.asked + 1
		else
			l.begun[tick.time] = (l.begun[tick.time] or 0) + 1
			l.order[#l.order + 1] = { time = tick.time, at = now, late = tick.late, caught_up = tick.caught_up, mark = store[job.name] }
		end
		l.running = l.running + 1
		l.most = math.max(l.most, l.running)
		local _ <close> = setmetatable({}, { __close = function() l.running = l.running - 1 end })
		sleep(math.random() * job.takes)
		l.done[tick.time] = (l.done[tick.time] or 0) + (tick.asked and 0 or 1)
	end
end

-- Somebody who asks for runs of the job, now and then when it is due.
local function asks(term, job)
	local l = log[job.name]
	while true do
		sleep(math.random() < 0.3 and 1200 - now % 1200 + math.random() * 0.6 or math.random() * 4000)
		if not ask(term, job.name, { time = now // 1, late = 0, asked = true }) then
			l.refused = l.refused + 1
		end
	end
end

local function lead(wrong, hours)
	local term = { tasks = {}, pending = {}, saving = {}, lock = "file:lock", spawn = spawn, stopping = function() return false end }
	term.began, term.wrong, term.right_from = now, wrong or 0, now + (hours or 0) * 3600
	leader = term
	for _, job in ipairs(JOBS) do
		cron(term, job.expression, job_body(job), { name = job.name, zone = job.zone, catch_up = job.catch_up, again = job.again,
			overlap = job.overlap, on_skip = job.asked and function(tick, why)
				local l = log[job.name]
				l.skipped[tick.time] = not tick.asked or nil
				l.too_late = l.too_late + (why == "late" and 1 or 0)
			end })
		if job.asked then
			spawn(term, asks, term, job)
		end
	end
end

-- What was being saved is in the record or it is not. What a crash leaves taken but not begun is lost.
local function depose(crash)
	for _, apply in pairs(leader.saving) do
		if math.random() < 0.5 then
			apply()
		end
	end
	leader.crashed = crash
	for task in pairs(leader.tasks) do
		coroutine.close(task.co)
	end
	for name, l in pairs(crash and log or {}) do
		l.lost[store[name] or 0] = true
	end
	leader = nil
end

local function next_task()
	local first
	for task in pairs(leader and leader.tasks or {}) do
		if not first or task.wake < first.wake or (task.wake == first.wake and task.serial < first.serial) then
			first = task
		end
	end
	return first
end

local function run_until(time)
	while true do
		local task = next_task()
		if not task or task.wake > time then
			break
		end
		now = math.max(now, task.wake)
		local good, wake = coroutine.resume(task.co)
		if not good then
			error(wake)
		end
		if coroutine.status(task.co) == "dead" then
			leader.tasks[task] = nil
		else
			task.wake = wake
		end
	end
	now = time
end

local moments, absent, behind = {}, 0, 0
for i = 1, failovers do
	moments[i] = START + math.random() * YEAR
	if i % 3 == 0 then -- just when jobs are due
		moments[i] = moments[i] // 900 * 900 + math.random() * 2
	end
end
table.sort(moments)
lead()
for i, moment in ipairs(moments) do
	run_until(math.max(moment, now))
	depose(i % 2 == 0)
	local nobody = i % 10 == 0 and math.random() * 20000 or math.random() * 16
	absent = absent + nobody
	now = now + nobody
	if i % 20 == 7 then
		behind = behind + 1
		lead(-math.random(1, 3) * 86400, i % 40 == 7 and 2 or math.huge)
	elseif i % 100 == 13 then
		lead(math.random(1, 2) * 86400, 1)
	elseif i % 10 == 5 then
		lead(math.random(30, 180) * 60, math.huge) -- and dies while jobs run that are not due for the others
		run_until(now + math.random() * 100)
		depose(true)
		lead()
	else
		lead()
	end
end
run_until(math.max(START + YEAR, now) + 86400) -- what is still behind catches up: after the last failover nobody may lead for hours

-- ---- the verdict ----

local sayers, too_often = {}, 0
for _, s in ipairs(said) do
	too_often = too_often + ((sayers[s.leader] or 0) >= #JOBS * (1 + (s.at - s.leader.began) // 86400) and 1 or 0)
	sayers[s.leader] = (sayers[s.leader] or 0) + 1
end
ok(#said >= behind and too_often == 0, ("%d leaders with a clock days behind the marks: that is said, once a day for each job"):format(behind))

for _, job in ipairs(JOBS) do
	local l = log[job.name]
	local timer = parse(job.expression, "file:lock\n" .. job.name, job.zone)
	local scheduled, n, t = {}, 0, START
	while true do
		local _, wake = timer:due(t, t, "all")
		if wake > START + YEAR - 3600 then
			break
		end
		scheduled[wake] = true
		n, t = n + 1, wake
	end
	local never, lost, twice, unknown, backwards, after_cut, unfinished, late = 0, 0, 0, 0, 0, 0, 0, 0
	for time in pairs(scheduled) do
		never = never + ((l.begun[time] or l.skipped[time]) and 0 or 1)
		lost = lost + (not l.begun[time] and not l.skipped[time] and l.lost[time] and 1 or 0)
		twice = twice + ((l.begun[time] or 0) > 1 and 1 or 0)
		unfinished = unfinished + (l.done[time] and 0 or 1)
	end
	for i, run in ipairs(l.order) do
		unknown = unknown + ((scheduled[run.time] or run.time > START + YEAR - 3600) and 0 or 1)
		local earlier = i > 1 and run.time < l.order[i - 1].time
		if job.again then -- the record decides: a run that was cut before it was marked counts for nothing
			backwards = backwards + (run.time <= run.mark and 1 or 0)
			after_cut = after_cut + (earlier and 1 or 0)
		else
			backwards = backwards + ((earlier or i > 1 and run.time == l.order[i - 1].time) and 1 or 0)
		end
		late = late + (run.late >= 61 and 1 or 0)
	end
	local figures = ("%d times, %d runs, %d never begun, %d begun twice, %d late"):format(n, #l.order, never, twice, late)
	ok(unknown == 0 and backwards == 0, ("%s: every run is of a scheduled time, in order (%s)"):format(job.name, figures))
	if job.again then
		ok(job.catch_up ~= "all" or unfinished == 0, job.name .. ": no time was left without a run that came to its end")
		ok(twice <= failovers, job.name .. ": only what was interrupted ran again")
		if job.catch_up == "last" then
			ok(after_cut > 0, ("%s: %d times an earlier time followed one of a leader ahead that was cut"):format(job.name, after_cut))
		end
	else
		ok(twice == 0, job.name .. ": no time was run twice")
	end
	if job.catch_up == "all" and not job.again then
		local unclaimed = 0
		for time in pairs(scheduled) do
			unclaimed = unclaimed + (l.claimed[time] and 0 or 1)
		end
		ok(unclaimed == 0, job.name .. ": every time was taken by somebody")
		-- a time may be left out in the moment in which its leader ends: then nobody tells
		ok(job.overlap == "skip" and never <= lost + failovers // 100 or never == lost, ("%s: and run, but for %d whose leader crashed in the very moment of taking it"):format(job.name, lost))
	elseif job.catch_up == "skip" then
		ok(late == 0, job.name .. ": none was caught up")
	elseif not job.again and job.takes < 600 then
		ok(never < failovers, job.name .. ": what was missed in a row was caught up once")
	end
	ok(job.overlap == true and l.most > 1 or l.most == 1, ("%s: %d at a time"):format(job.name, l.most))
	if job.asked then
		local of_its_own = 0
		for mark in pairs(l.claimed) do
			of_its_own = of_its_own + (mark % 1200 == 0 and 0 or 1)
		end
		ok(of_its_own == 0, ("%s: %d marks of times that are none of its own, as a run that was asked for would leave"):format(job.name, of_its_own))
		ok(l.asked > 1000 and l.refused > 100, ("%s: beside %d runs that were asked for, where %d were refused"):format(job.name, l.asked, l.refused))
		ok(l.too_late <= failovers * 2, ("%s: %d times too late, none for a run that was asked for"):format(job.name, l.too_late))
	end
end
return absent
