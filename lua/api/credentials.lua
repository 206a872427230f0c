-- credentials(natives, name, find): methods for an object with credentials that end: they are looked for when they are first asked for, kept, renewed
-- before they end, and looked for again after a refusal. One for each cloud's library (lua/lunarch/aws.lua, gcp.lua, azure.lua).

local use = ...
local given = use "given"
local lunarch = require "lunarch"
local time = lunarch.time

local WAIT <const> = 60 -- seconds for the first ones
local EARLY <const> = 15 * 60 -- seconds before their end new credentials are asked for, and the old ones used meanwhile
local LEAST <const> = 60 -- seconds that new credentials are used at least: this machine's clock may be wrong, and the server decides
local PAUSE <const> = 10 -- seconds at most between two attempts to renew

-- name: as errors begin. find(self) -> what is kept: a table whose `expires` is a time of the wall clock, if they end, or whose `lasts` is in
-- seconds; or nil or false, and an error's text, and whether a source that is set up did not answer. An instance's metadata, which is asked where
-- nothing is set up, counts as none then.
return function(natives, name, find)
	local Credentials = {}

	local function take(self, found)
		local now = time.monotonic()
		local left = found.lasts or (found.expires and found.expires - time.now())
		self.kept = found
		if left then
			left = math.max(0, left)
			self.ends, self.renews = now + math.max(LEAST, left), now + left - math.min(EARLY, left / 4)
			self.pause = math.max(1, math.min(PAUSE, left / 4))
		else
			self.ends, self.renews, self.pause = math.huge, math.huge, PAUSE
		end
	end

	-- In a task of its own, so that who asks may give up, and others may ask meanwhile.
	local function fetch(self)
		self.tried = time.monotonic()
		local found, err, away = find(self)
		self.away = away
		if found then
			self.err = nil
			take(self, found)
		else
			self.err = name .. ": " .. (err or "no credentials were found")
		end
	end

	local function fetching(self)
		if self.task and not self.task:done() then
			return self.task
		end
		self.task = lunarch.spawn(fetch, self)
		return self.task
	end

	function Credentials:get(timeout)
		local now = time.monotonic()
		if self.kept and now < self.ends and not self.refused then
			if now >= self.renews and now - self.tried >= self.pause then
				fetching(self)
			end
			return self.kept
		end
		local _, err = fetching(self):wait(timeout or WAIT)
		if self.err or not self.kept then
			return natives.fail("denied", self.err or (err and name .. ": credentials: " .. err.message) or name .. ": no credentials in time")
		elseif err and self.refused then
			return natives.fail("timeout", name .. ": no new credentials in time")
		end
		self.refused = false
		return self.kept
	end

	-- refused: the token or the access key that a server has refused; nil: the one that is kept. Of several requests with the same one, the first
	-- refusal has it replaced: the later ones are not about what is kept by then.
	function Credentials:renew(refused)
		if refused ~= nil then
			given.text("credentials:renew: refused", refused)
		end
		local kept = self.kept
		self.refused = self.refused or not (refused and kept) or refused == kept.token or refused == kept.key
	end

	Credentials.__name = "lunarch.Credentials"
	Credentials.__index = use "unknown"("credentials", Credentials)
	return Credentials
end
