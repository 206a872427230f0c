-- tasks: wait_all, first, with_timeout, scope, queue, semaphore. Nothing that they start is left behind.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function after(seconds, ...)
	local values = table.pack(...)
	return function()
		sleep(seconds)
		return table.unpack(values, 1, values.n)
	end
end

-- A function that waits for long, and says in `seen` how it was left.
local function endless(seen)
	return function()
		local _ <close> = setmetatable({}, { __close = function() seen.closed = (seen.closed or 0) + 1 end })
		seen.begun = (seen.begun or 0) + 1
		sleep(1000)
	end
end

local function waiting_for_all()
	local r = tasks.wait_all { after(0.02, "a"), after(0.01, "b", "more"), after(0, nil), last = after(0, 4) }
	ok(r[1] == "a" and r[2] == "b" and r[3] == nil and r.last == 4, "wait_all: the first result of each, under its key")
	equal(next(tasks.wait_all {}), nil, "of nobody at once")
	local task = spawn(after(0.01, "task"))
	r = tasks.wait_all { task, after(0, 1), task }
	ok(r[1] == "task" and r[3] == "task", "tasks may be among them, one twice")
	local many = {}
	for i = 1, tap.many(1000) do
		many[i] = after(i % 5 / 1000, i)
	end
	local right = 0
	for i, v in ipairs(tasks.wait_all(many)) do
		right = right + (i == v and 1 or 0)
	end
	equal(right, #many, "many")
	local seen = {}
	local good, err = pcall(tasks.wait_all, { endless(seen), function() sleep(0.01) error "broken" end, endless(seen) })
	ok(not good and err.code == "failed" and tostring(err):find("scopes.lua:%d+: broken$"), "an error of one is raised", err)
	ok(err.traceback:find "stack traceback" and err.traceback:find "scopes.lua", "with the traceback of where it was")
	ok(seen.begun == 2 and seen.closed == 2, "when the others were cancelled and have ended, <close> included")
	seen = {}
	task = spawn(endless(seen))
	fails("timeout", "not within 0.01 s", "a time limit", tasks.wait_all({ task, endless(seen) }, { timeout = 0.01 }))
	equal(seen.closed, 1, "ends what wait_all started")
	ok(not task:done(), "not the task that was there before")
	task:cancel()
	equal(next(tasks.wait_all { task }), nil, "a cancelled task has no result")
	seen = {}
	local outer = spawn(function() tasks.wait_all { endless(seen), endless(seen) } end)
	sleep(0.01)
	outer:cancel()
	fails("cancelled", "", "cancelled itself", outer:wait())
	sleep(0)
	sleep(0)
	equal(seen.closed, 2, "it cancels them")
end

local function first_of_all()
	local seen = {}
	local key, a, b = tasks.first { endless(seen), quick = after(0.01, "x", "y"), endless(seen) }
	ok(key == "quick" and a == "x" and b == "y", "first: who it was, and its results")
	equal(seen.closed, 2, "the others have ended")
	ok(not pcall(tasks.first, { function() error "early" end, endless(seen) }), "an error that is first is raised")
	fails("timeout", "not within", "a time limit", tasks.first({ endless(seen) }, { timeout = 0.01 }))
	equal(seen.begun, seen.closed, "leaves nothing")
	raises("at least one", "first of nobody", tasks.first, {})
end

local function time_limits()
	local a, b = tasks.with_timeout(10, function(x) sleep(0.001) return x, "b" end, "a")
	ok(a == "a" and b == "b", "with_timeout returns what the function returns")
	local seen = {}
	fails("timeout", "not within 0.01 s", "or that it took too long", tasks.with_timeout(0.01, endless(seen)))
	equal(seen.closed, 1, "when it has ended")
	raises("inside", "its error is raised", tasks.with_timeout, 10, function() error "inside" end)
	local tries = 0
	fails("timeout", "with_timeout", "one that catches its cancellation is cancelled again", tasks.with_timeout(0.01, function()
		while tries < 50 do
			tries = tries + (pcall(sleep, 100) and 0 or 1)
		end
		error "enough"
	end))
	equal(tries, 50, "at every wait")
	fails("timeout", "with_timeout", "one inside another", tasks.with_timeout(0.01, function()
		return tasks.with_timeout(100, endless(seen))
	end))
	sleep(0)
	sleep(0)
	equal(seen.begun, seen.closed, "both end")
	fails("timeout", "", "around exec", tasks.with_timeout(0.05, exec, { "sleep", "100" }))
	local path = os.tmpname()
	fails("timeout", "", "around exec of what prints all the time", tasks.with_timeout(0.3, exec, "echo $$ >" .. path .. "; exec yes"))
	local f <close> = io.open(path)
	local pid = f:read "n"
	while pid and exec { "kill", "-0", tostring(pid) }.ok do
		sleep(0.05)
	end
	ok(true, "which is stopped")
	os.remove(path)
end

local function scopes()
	local order = {}
	local result, second = tasks.scope(function(scope, x)
		scope:spawn(function() sleep(0.02) order[#order + 1] = "child" end)
		scope:spawn(function(y) order[#order + 1] = y end, "quick")
		order[#order + 1] = x
		return "r", 2
	end, "body")
	equal(table.concat(order, " ") .. result .. second, "body quick childr2", "a scope is left when all of it has ended")
	local seen = {}
	raises("child failed", "a child's error", tasks.scope, function(scope)
		scope:spawn(endless(seen))
		scope:spawn(function() sleep(0.01) error "child failed" end)
		endless(seen)()
	end)
	equal(seen.closed, 2, "ends the others and the body")
	raises("body failed", "the body's error", tasks.scope, function(scope)
		scope:spawn(endless(seen))
		sleep(0.001)
		error "body failed"
	end)
	equal(seen.closed, 3, "ends the children")
	local kept
	tasks.scope(function(scope) kept = scope end)
	raises("has been left", "nothing can be started in a scope that was left", kept.spawn, kept, print)
	local values = {}
	tasks.scope(function(scope)
		local t = scope:spawn(after(0.01, "v"))
		values[1] = t:wait()
		scope:spawn(function() tasks.scope(function(inner) inner:spawn(function() values[2] = "deep" end) end) end)
	end)
	equal(table.concat(values, " "), "v deep", "scopes nest, and spawn gives a task")
end

local function queues()
	local q, got = tasks.queue(), {}
	local taker = spawn(function()
		for v in q:each() do
			got[#got + 1] = tostring(v)
		end
	end)
	for i = 1, 5 do
		q:put(i)
	end
	q:put(false)
	sleep(0)
	q:put("last")
	q:close()
	taker:wait()
	equal(table.concat(got, " "), "1 2 3 4 5 false last", "what is put is taken, in order, false included")
	fails("closed", "closed", "put after close", q:put(1))
	fails("closed", "closed and empty", "take after close", q:take())
	q = tasks.queue(2)
	ok(q:put(1) and q:put(2), "a queue with a capacity")
	fails("timeout", "full for 0.01 s", "is full then", q:put(3, 0.01))
	local putter = spawn(q.put, q, 3)
	sleep(0)
	equal(q:size(), 2, "who puts, waits")
	equal(q:take(), 1, "until somebody takes")
	equal(putter:wait(), true, "and goes on then")
	equal(q:take() + q:take(), 5, "nothing is lost")
	fails("timeout", "empty for 0.01 s", "take with a time limit", q:take(0.01))
	local sum, takers, n = 0, {}, tap.many(3000)
	for i = 1, 10 do
		takers[i] = function()
			for v in q:each() do
				sum = sum + v
			end
		end
	end
	takers[11] = function()
		for i = 1, n do
			q:put(i)
		end
		q:close()
	end
	tasks.wait_all(takers)
	equal(sum, n * (n + 1) // 2, "one giver, ten takers: every value once")
	q = tasks.queue()
	local a, b = spawn(q.take, q), spawn(q.take, q)
	sleep(0)
	q:put("x")
	a:cancel()
	equal(b:wait(), "x", "a taker that is cancelled when it was just woken leaves the value to the next")
	raises("found nil", "nil cannot be put", q.put, q, nil)
	raises("whole number", "a capacity of 0", tasks.queue, 0)
	raises("number of seconds", "a time limit that is none", q.take, q, "5")
end

local function semaphores()
	local s, now, most = tasks.semaphore(3), 0, 0
	local all = {}
	for i = 1, 20 do
		all[i] = function()
			local permit <close> = s:acquire()
			now = now + 1
			most = math.max(most, now)
			sleep(0.001)
			now = now - 1
			return permit ~= nil
		end
	end
	tasks.wait_all(all)
	equal(most, 3, "three permits: three at a time")
	local one = tasks.semaphore(1)
	local permit = one:acquire()
	fails("timeout", "no permit", "acquire with a time limit", one:acquire(0.01))
	permit:release()
	permit:release()
	local again <const> = one:acquire(0)
	ok(again, "released, it can be had again")
	fails("timeout", "", "and releasing twice gave no second one", one:acquire(0))
	raises("error inside", "an error", pcall and function()
		local _ <close> = s:acquire()
		error "error inside"
	end)
	local three <const> = { s:acquire(0), s:acquire(0), s:acquire(0) }
	equal(#three, 3, "gives the permit back")
	raises("whole number", "permits that are none", tasks.semaphore, 1.5)
end

local function misuse()
	raises("expected a table of functions", "wait_all(f)", tasks.wait_all, print)
	raises("found a number at 2", "wait_all{f, 5}", tasks.wait_all, { print, 5 })
	raises("did you mean 'timeout'", "a wrong option", tasks.wait_all, { print }, { timout = 1 })
	raises("expected a function", "with_timeout without a function", tasks.with_timeout, 1)
	raises("number of seconds", "with_timeout without a time", tasks.with_timeout, print)
	raises("scopes.lua:", "named with the script's line", function() tasks.wait_all(5) end)
	raises("cannot wait here", "where Lua cannot yield", function()
		table.sort({ 1, 2 }, function() tasks.wait_all { print } end)
	end)
	equal(coroutine.wrap(function() return tasks.wait_all({ after(0.001, "in") })[1] end)(), "in", "inside a coroutine")
	local levels = 0
	local function deeper(n)
		levels = n
		if n < 100 then
			tasks.with_timeout(100, deeper, n + 1)
		end
	end
	deeper(1)
	equal(levels, 100, "a hundred of them, one inside the other")
end

return tap.election { waiting_for_all, first_of_all, time_limits, scopes, queues, semaphores, misuse }
