-- sleep, spawn, every, and waits inside the script's own coroutines.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function sleeping()
	local before = time.monotonic()
	equal(select("#", sleep(0.05)), 0, "sleep returns nothing")
	ok(time.monotonic() - before >= 0.049, "and not before its time")
	sleep(0)
	ok(pcall(sleep, 0.001), "sleep works inside pcall")
	raises("found no value", "sleep() is misuse", sleep)
	raises('the text "1"', "sleep with a text is misuse", sleep, "1")
	raises("0 or more", "sleep with a negative number is misuse", sleep, -1)
	raises("0 or more", "sleep with NaN is misuse", sleep, 0 / 0)
	raises("0 or more", "sleep for ever is misuse", sleep, math.huge)
end

local function spawning()
	local order = {}
	local task = spawn(function(a, b)
		order[#order + 1] = "task"
		sleep(0.01)
		return a + b, nil, "end"
	end, 2, 3)
	order[#order + 1] = "caller"
	ok(not task:done(), "a task runs when the caller waits")
	local sum, nothing, last = task:wait()
	equal(sum, 5, "task:wait returns the results")
	ok(nothing == nil and last == "end", "nil among them included")
	equal(table.concat(order, " "), "caller task", "spawn does not wait")
	ok(task:done(), "task:done after the end")
	equal(select("#", task:wait()), 3, "task:wait may be asked again")
	fails("timeout", "in time", "task:wait with a time limit", spawn(sleep, 5):wait(0.01))
	local slow = spawn(sleep, 100)
	sleep(0)
	slow:cancel()
	fails("cancelled", "task cancelled", "a cancelled task says so", slow:wait())
	local unstarted = spawn(error, "must not run")
	unstarted:cancel()
	fails("cancelled", "", "a task cancelled before it began never runs", unstarted:wait())
	raises("function", "spawn wants a function", spawn, 5)
	raises("own end", "a task cannot wait for itself", function()
		local self
		self = spawn(function() return pcall(self.wait, self) end)
		local _, message = self:wait()
		error(message, 0)
	end)
	local sum_of_all, tasks = 0, {}
	for i = 1, tap.many(1000) do
		tasks[i] = spawn(function() sleep(i % 7 / 1000) return i end)
	end
	for i, each in ipairs(tasks) do
		local value = each:wait()
		sum_of_all = sum_of_all + (value == i and 1 or 0)
	end
	equal(sum_of_all, #tasks, "many tasks at once, each with its own result")
	local waiters = 0
	local one = spawn(sleep, 0.01)
	for _ = 1, 10 do
		spawn(function() one:wait() waiters = waiters + 1 end)
	end
	sleep(0.03)
	one:wait()
	sleep(0)
	equal(waiters, 10, "ten tasks may wait for the same one")
end

local function swallowing()
	local raised = 0
	local task = spawn(function()
		for _ = 1, 5 do
			if not pcall(sleep, 10) then
				raised = raised + 1
			end
		end
		return "end"
	end)
	sleep(0)
	task:cancel()
	task:wait()
	equal(raised, 5, "after cancelling every wait raises, again and again")
	local order = {}
	local closing = spawn(function()
		local a <close> = setmetatable({}, { __close = function() order[#order + 1] = "a" end })
		local b <close> = setmetatable({}, { __close = function() order[#order + 1] = "b" end })
		sleep(100)
		return a, b
	end)
	sleep(0)
	closing:cancel()
	closing:wait()
	equal(table.concat(order), "ba", "<close> variables of a cancelled task are closed, in order")
end

local function ticking(term)
	local times = {}
	local task = every(0.02, function() times[#times + 1] = time.monotonic() end)
	sleep(0.005)
	equal(#times, 0, "every ticks first after its time")
	while #times < 3 do
		sleep(0.005)
	end
	task:cancel()
	local n = #times
	sleep(0.05)
	equal(#times, n, "a cancelled every stops")
	local at_once = 0
	task = term:every(100, function() at_once = at_once + 1 end, { now = true })
	sleep(0.001)
	sleep(0)
	equal(at_once, 1, "with now = true it ticks at once")
	task:cancel()
	local running, most = 0, 0
	task = every(0.001, function()
		running = running + 1
		most = math.max(most, running)
		sleep(0.01)
		running = running - 1
	end)
	sleep(0.05)
	task:cancel()
	equal(most, 1, "ticks never overlap: missed ones are skipped")
	raises("tasks.lua:", "misuse of every names the script's line", function() every(0, print) end)
	raises("above 0", "every 0 seconds is misuse", every, 0, print)
	raises("function", "every wants a function", every, 1)
	raises("did you mean 'now'", "every knows its options", every, 1, print, { nov = true })
end

local function coroutines()
	local co = coroutine.create(function(a)
		sleep(0.001)
		local b = coroutine.yield(a + 1)
		sleep(0.001)
		return b + 1
	end)
	local good, value = coroutine.resume(co, 1)
	ok(good and value == 2, "a sleep inside a coroutine is not seen by who resumes it")
	good, value = coroutine.resume(co, 10)
	ok(good and value == 11, "the second time neither")
	equal(coroutine.status(co), "dead", "and it ends as it should")

	local got = {}
	for i in coroutine.wrap(function()
		for i = 1, 3 do
			sleep(0.001)
			coroutine.yield(i)
		end
	end) do
		got[#got + 1] = i
	end
	equal(table.concat(got, ","), "1,2,3", "an iterator made by wrap may sleep")

	local function nest(depth)
		if depth == 0 then
			sleep(0.001)
			return 0
		end
		return 1 + coroutine.wrap(nest)(depth - 1)
	end
	equal(nest(20), 20, "a sleep goes through twenty coroutines and back")

	local parked = coroutine.create(function() sleep(0.02) return "done" end)
	local task = spawn(function() return select(2, coroutine.resume(parked)) end)
	sleep(0)
	equal(coroutine.status(parked), "normal", "a coroutine that waits in another task is not ours to resume")
	good, value = coroutine.resume(parked)
	ok(not good and value:find("waits in another task", 1, true), "resuming it fails, and says why", value)
	raises("waits in another task", "closing it too", coroutine.close, parked)
	equal(task:wait(), "done", "and it goes on as if nothing had been")

	raises("outside a coroutine", "a task itself cannot yield", coroutine.yield)
	equal(coroutine.isyieldable(), false, "and isyieldable knows")
	equal(coroutine.wrap(coroutine.isyieldable)(), true, "in a coroutine one can")
	raises("tasks.lua:", "an error comes out of wrap with its line", coroutine.wrap(function() error("inner") end))
	local object = {}
	local _, raised = pcall(coroutine.wrap(function() error(object) end))
	ok(raised == object, "and as it is when it is no text")
	local closed
	pcall(coroutine.wrap(function()
		local x <close> = setmetatable({}, { __close = function() closed = true end })
		error(x)
	end))
	ok(closed, "wrap closes what the failed coroutine left open")
	good, value = coroutine.resume(coroutine.running())
	ok(not good and value:find("non%-suspended"), "a running coroutine cannot be resumed", value)
	good, value = coroutine.resume(co)
	ok(not good and value:find("dead"), "nor a dead one", value)
	raises("dead", "nor by its wrapper", (function() local f = coroutine.wrap(print) f() return f end)())
	raises("coroutine expected", "resume wants a coroutine", coroutine.resume, 5)
	equal(select("#", coroutine.resume(coroutine.create(function() return nil, nil end))), 3, "nils come through resume")
	local many = { coroutine.resume(coroutine.create(function(...) return ... end), table.unpack({}, 1, 200)) }
	equal(many[1], true, "many values come through")
	co = coroutine.create(function() coroutine.yield() end)
	coroutine.resume(co)
	ok(coroutine.close(co), "close works as ever")
	equal(coroutine.status(co), "dead", "and status")
end

local function cancelled_coroutines()
	local seen = {}
	local task = spawn(function()
		local inner = coroutine.wrap(function()
			local x <close> = setmetatable({}, { __close = function() seen[#seen + 1] = "closed" end })
			sleep(100)
			return x
		end)
		local _, first = pcall(inner)
		local _, second = pcall(sleep, 1)
		table.move({ first, second }, 1, 2, #seen + 1, seen)
	end)
	sleep(0)
	task:cancel()
	task:wait()
	equal(table.concat(seen, "; "), "closed; task cancelled; task cancelled",
		"cancelling reaches into the coroutine, then the waits around it")
end

local function where_lua_cannot_yield()
	local function refused(what, f)
		raises("cannot wait here", "waiting in " .. what .. " is refused, and says so", f)
	end
	refused("a sort comparator", function() table.sort({ 3, 2, 1 }, function(a, b) sleep(0) return a < b end) end)
	refused("a gsub callback", function() string.gsub("x", "x", function() sleep(0) end) end)
	refused("__tostring", function() tostring(setmetatable({}, { __tostring = function() sleep(0) end })) end)
	refused("a coroutine under a sort comparator", function()
		table.sort({ 3, 2, 1 }, function(a, b) coroutine.wrap(sleep)(0) return a < b end)
	end)
	refused("a required module", function() require "waits_while_loading" end)
	refused("a loaded text's reader", function() assert(load(function() sleep(0) end)) end)
	local message
	setmetatable({}, { __gc = function() message = select(2, pcall(sleep, 0)) end })
	collectgarbage()
	collectgarbage()
	ok(message and message:find("cannot wait here", 1, true), "waiting in __gc is refused, and says so", message)
	local t = setmetatable({}, { __index = function(_, k) sleep(0) return k end, __add = function() sleep(0) return 1 end })
	ok(t.x == "x" and t + 1 == 1, "metamethods called from Lua may wait")
	local sum = 0
	for i in (function(_, i) sleep(0) return i < 3 and i + 1 or nil end), nil, 0 do
		sum = sum + i
	end
	equal(sum, 6, "iterators of a for loop may wait")
end

local function errors()
	local function message(f)
		local task = spawn(function() return select(2, pcall(f)) end)
		return tostring(task:wait())
	end
	local function recurse() return 1 + recurse() end
	ok(message(recurse):find("stack overflow", 1, true), "endless recursion is an error like others")
	local function resume_for_ever() return coroutine.wrap(resume_for_ever)() end
	ok(message(resume_for_ever):find("C stack overflow", 1, true), "endless nesting of coroutines too",
		message(resume_for_ever))
	local memory = message(function() return io.open("/dev/null"):read(1 << 44) end)
	ok(memory:find("memory", 1, true), "so is running out of memory", memory)
	raises("tasks.lua:", "an error in xpcall's handler is one", function()
		assert(xpcall(error, function() error("again") end))
		error("not here")
	end)
end

-- Memory after many switches; the numbers are for people, the bound is generous.
local function leaks()
	if arg[1] then
		return
	end
	local function round(n)
		for _ = 1, n do
			sleep(0)
		end
	end
	local function burst(n)
		for _ = 1, n do
			spawn(function() sleep(0) return {} end)
			if _ % 100 == 0 then
				sleep(0)
				sleep(0)
			end
		end
	end
	local function settled()
		for _ = 1, 4 do
			sleep(0)
			collectgarbage()
		end
		return collectgarbage("count")
	end
	round(1000)
	burst(1000)
	local before, start = settled(), time.monotonic()
	round(100000)
	local switching = time.monotonic() - start
	burst(10000)
	local grown = settled() - before
	io.write(("# 100,000 task switches: %.2f us each; memory grown by %.1f KB, 10,000 tasks later\n")
		:format(switching * 10, grown))
	ok(grown < 64, "100,000 switches and 10,000 tasks leave no memory behind", grown)
end

return tap.election { sleeping, spawning, swallowing, ticking, coroutines, cancelled_coroutines, where_lua_cannot_yield,
	errors, leaks }
