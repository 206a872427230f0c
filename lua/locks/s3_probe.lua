-- What an endpoint makes of S3's conditions: PUTs race for a scratch object beside the lock, before the first write of a process. Several
-- look-alikes of S3 ignore a condition, or compare and write in two steps (docs/stores/s3.md). No lock file: a part of s3.lua.

local lunarch = require "lunarch"
local time, log = lunarch.time, lunarch.log

local RACERS <const>, ROUNDS <const> = 3, 3
local TIMEOUT <const> = 10 -- seconds for each request
local PAUSE <const>, PAUSE_MAX <const> = 1, 30 -- seconds before another probe: doubled each time that no PUT was done

local function random_name()
	local file = io.open "/proc/sys/kernel/random/uuid"
	local text = file and file:read "l" or ("%x%x"):format(math.random(0), math.random(0))
	if file then
		file:close()
	end
	return (text:gsub("-", ""):sub(1, 16))
end

local function random_text()
	return ('{"probe":"%s"}'):format(random_name())
end

local function soon()
	return { ends = time.monotonic() + TIMEOUT }
end

-- Ends a probe. kind: "unfit" for good, else an outcome. none_done: the next probe waits. It does not after errors: they may be over at once.
local function verdict(kind, text, none_done)
	error({ kind = kind, text = text, none_done = none_done }, 0)
end

-- s3: how s3.lua asks, and what it makes of answers. Returns unproven(store, key, op): nil if the endpoint keeps both conditions, else an outcome
-- and why.
return function(s3)
	local function unfit(store, text)
		verdict("unfit", ("%s: it cannot keep a lock: %s. Its conditional PUTs are not S3's"):format(s3.where(store), text))
	end

	-- true: the PUT was done. false: its condition was not met. Anything else ends the probe.
	local function judged(store, what, r, code, unsent)
		if not r then
			verdict(s3.failed(store, code, unsent))
		elseif r.status == 200 then
			return true
		elseif s3.unmet(r, code) then
			return false
		elseif r.status == 501 or code == "NotImplemented" or code == "InvalidArgument" then
			unfit(store, ("%s was answered by status %d %s"):format(what, r.status, code or ""))
		end
		local outcome, text = s3.refusal(store, r, code)
		verdict(outcome or "failed", "the probe of conditional PUTs: " .. text)
	end

	-- At once, each with a text of its own. Returns the text that won; nil: none did, and store.lost says so.
	local function race(store, key, etag, what)
		local texts, racers = {}, {}
		for i = 1, RACERS do
			texts[i] = random_text()
			racers[i] = function() return { s3.put(store, key, texts[i], etag, soon()) } end
		end
		local answers, won, count = lunarch.tasks.wait_all(racers), nil, 0
		for i = 1, RACERS do
			if judged(store, what, answers[i][1], answers[i][2], answers[i][3]) then
				won, count = texts[i], count + 1
			end
		end
		if count > 1 then
			unfit(store, ("of %d PUTs at the same time with %s it did %d, and one may be"):format(RACERS, what, count))
		end
		local last = answers[RACERS]
		store.lost = not won and ("of %d PUTs at the same time with %s none was done: %s"):format(RACERS, what, s3.told(store, last[1], last[2])) or nil
		return won
	end

	local function there(store, key)
		local outcome, text, etag = s3.fetch(store, key, soon())
		if outcome ~= "ok" and outcome ~= "absent" then
			verdict(outcome == "foreign" and "failed" or outcome, text)
		end
		return outcome == "ok" and text or nil, etag
	end

	-- alone: nobody else writes this key, so one of those that race must win, and what it wrote be there. Returns the ETag then, or nil if none
	-- won; and whether it is still the one that was named.
	local function check_race(store, key, etag, what, alone)
		local won = race(store, key, etag, what)
		local text, now = there(store, key)
		if alone and won and text ~= won then
			unfit(store, ("of several PUTs with %s it accepted one, and has the text of another"):format(what))
		end
		return won and now or nil, now == etag
	end

	-- Where the server takes no PUT with the ETag that it has, the ETag's other form is tried, and kept if that one is taken.
	local function check_match(store, key, etag, alone)
		local now, still = check_race(store, key, etag, "If-Match", alone)
		if not now and still then
			store.other_form = not store.other_form
			now = check_race(store, key, etag, "If-Match and the object's ETag, with quotes or without,", alone)
		end
		if not now and still then
			store.other_form = not store.other_form
		end
		return now
	end

	local function check_stale(store, key, etag, what)
		local r, code, unsent = s3.put(store, key, random_text(), etag, soon())
		if judged(store, what, r, code, unsent) then
			unfit(store, ("it did a PUT with %s"):format(what))
		end
	end

	local function check_fresh(store, key)
		local first = check_race(store, key, "", "If-None-Match: *", true)
		local second = first and check_match(store, key, first, true)
		if not second then
			return false
		end
		check_stale(store, key, first, "If-Match: and an ETag that was replaced")
		check_stale(store, key, "", "If-None-Match: * though the object was there")
		return true, second
	end

	-- A key that all candidates share, where none may delete: others may write it meanwhile.
	local function check_shared(store, key, etag)
		if not check_match(store, key, etag, false) then
			return false
		end
		check_stale(store, key, etag, "If-Match: and an ETag that was replaced")
		check_stale(store, key, "", "If-None-Match: * though the object was there")
		return true
	end

	local function forbidden(store, key)
		log.warn("scratch_left", { message = ("s3: %s: DELETE is refused, so the probe's objects stay: from now on it is %s"):format(s3.where(store), key) })
		s3.put(store, key, random_text(), "", soon())
	end

	-- Ends the probe if no PUT was done.
	local function examine(store, key)
		local shared = key .. ".probe"
		for _ = 1, ROUNDS do
			local text, etag = there(store, shared)
			if text then
				if check_shared(store, shared, etag) then
					return
				end
			else
				local scratch = shared .. "-" .. random_name()
				local good, fit, last = pcall(check_fresh, store, scratch)
				local r, code = s3.delete(store, scratch, soon())
				if not good then
					error(fit, 0)
				elseif fit then
					if r and r.status == 403 then
						forbidden(store, shared)
					elseif r and (r.status == 204 or r.status == 200) then
						check_stale(store, scratch, last, "If-Match: though the object was deleted")
					elseif r and code ~= "NoSuchKey" then
						log.warn("scratch_left", { message = s3.told(store, r, code) })
					end
					return
				end
			end
		end
		verdict("failed", "the probe of conditional PUTs: " .. store.lost, true)
	end

	local function probe(store, key)
		local good, result = pcall(examine, store, key)
		if good then
			store.proven = true
		elseif type(result) == "table" and result.kind == "unfit" then
			store.unfit = result.text
			log.error("store_unfit", { message = result.text })
		else
			store.wrong = type(result) == "table" and result.kind and result or { kind = "failed", text = tostring(result) }
			store.pause = store.wrong.none_done and math.min(PAUSE_MAX, (store.pause or PAUSE / 2) * 2) or nil
			store.probe_at = time.monotonic() + (store.pause or 0)
		end
	end

	-- Before the first write. In a task of its own: the operations that wait for it may end before it does. nil: proven.
	return function(store, key, op)
		if not store.proven and not store.unfit then
			if not store.probing or (store.probing:done() and time.monotonic() >= (store.probe_at or 0)) then
				store.wrong = nil
				store.probing = lunarch.spawn(probe, store, key)
			end
			store.probing:wait(s3.left(op))
		end
		if store.proven then
			return nil
		elseif store.unfit then
			return "refused", store.unfit
		elseif store.wrong then
			return store.wrong.kind, store.wrong.text
		end
		return "failed", s3.where(store) .. ": the probe of conditional PUTs has not ended in time"
	end
end
