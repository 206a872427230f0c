-- queue() passes values between tasks; semaphore() limits how many tasks do something at the same time. Only one task runs at a
-- time, and another one only while it waits: so nothing here needs a lock.

local use = ...
local unknown = use "unknown"
local made

local function make(natives)
	local function number_of(what, value)
		if math.type(value) ~= "integer" or value < 1 then
			error(("%s: expected a whole number, 1 or more, found %s"):format(what, tostring(value)), 3)
		end
	end

	local function deadline_of(what, timeout)
		if timeout == nil then
			return
		elseif type(timeout) ~= "number" or not (timeout >= 0 and timeout < math.huge) then
			error(("%s: expected a number of seconds, found %s"):format(what, tostring(timeout)), 3)
		end
		return natives.time.monotonic() + timeout
	end

	-- Waits until ready() or the deadline. false: the time is up.
	local function wait_until(signal, ready, deadline)
		while not ready() do
			local left = deadline and deadline - natives.time.monotonic()
			if left and left <= 0 then
				return false
			end
			signal:wait(left)
		end
		return true
	end

	local function fail(code, what, why)
		return natives.fail(code, what .. ": " .. why)
	end

	local Queue = {}
	Queue.__index = unknown("queue", Queue)

	function Queue:put(value, timeout)
		if value == nil then
			error("queue:put: expected a value, found nil", 2)
		end
		local deadline = deadline_of("queue:put", timeout)
		if self.closed then
			return fail("closed", "queue:put", "the queue is closed")
		end
		if not wait_until(self.givers, function() return self.closed or self.count < self.capacity end, deadline) then
			return fail("timeout", "queue:put", ("the queue was full for %g s"):format(timeout))
		elseif self.closed then
			return fail("closed", "queue:put", "the queue is closed")
		end
		self[self.first + self.count] = value
		self.count = self.count + 1
		self.takers:wake()
		return true
	end

	function Queue:take(timeout)
		local deadline = deadline_of("queue:take", timeout)
		if not wait_until(self.takers, function() return self.closed or self.count > 0 end, deadline) then
			return fail("timeout", "queue:take", ("the queue was empty for %g s"):format(timeout))
		elseif self.count == 0 then
			return fail("closed", "queue:take", "the queue is closed and empty")
		end
		local value = self[self.first]
		self[self.first] = nil
		self.first, self.count = self.first + 1, self.count - 1
		self.givers:wake()
		return value
	end

	-- No more values can be put; those in the queue can still be taken.
	function Queue:close()
		self.closed = true
		repeat until not self.takers:wake()
		repeat until not self.givers:wake()
	end

	function Queue:size()
		return self.count
	end

	-- for value in queue:each() do ... end, until it is closed and empty
	function Queue:each()
		return function() return (self:take()) end
	end

	Queue.__close = Queue.close
	Queue.__name = "queue"

	local Permit = {}
	Permit.__index = unknown("permit", Permit)

	function Permit:release()
		local semaphore = self.semaphore
		if semaphore then
			self.semaphore = nil
			semaphore.free = semaphore.free + 1
			semaphore.waiting:wake()
		end
	end

	Permit.__close = Permit.release
	Permit.__name = "permit"

	local Semaphore = {}
	Semaphore.__index = unknown("semaphore", Semaphore)

	-- A permit: released by permit:release(), or as a <close> variable
	function Semaphore:acquire(timeout)
		local deadline = deadline_of("semaphore:acquire", timeout)
		if not wait_until(self.waiting, function() return self.free > 0 end, deadline) then
			return fail("timeout", "semaphore:acquire", ("no permit within %g s"):format(timeout))
		end
		self.free = self.free - 1
		return setmetatable({ semaphore = self }, Permit)
	end

	Semaphore.__name = "semaphore"

	local function queue(capacity)
		if capacity ~= nil then
			number_of("tasks.queue", capacity)
		end
		return setmetatable({ capacity = capacity or math.huge, first = 1, count = 0, closed = false, takers = natives.signal(), givers = natives.signal() }, Queue)
	end

	local function semaphore(permits)
		number_of("tasks.semaphore", permits)
		return setmetatable({ free = permits, waiting = natives.signal() }, Semaphore)
	end

	return { queue = queue, semaphore = semaphore }
end

return function(natives)
	made = made or make(natives)
	return made
end
