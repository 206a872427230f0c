-- What the locks of the clouds' stores share over HTTP: a request is sent again where that is safe, an answer that comes twice is not believed,
-- and a condition that was not met is looked after, since one's own write may be what it met. No lock file: a part of those beside it.

local lunarch = require "lunarch"
local time = lunarch.time

local TRIES <const> = 3 -- with newer credentials, or at a better place
local IDS <const> = 64 -- answers whose ids are remembered

local answers = {}

-- The operation with the time at which it ends.
function answers.with_deadline(op)
	return { ends = time.monotonic() + op.timeout, expected = op.expected }
end

function answers.left(op)
	return math.max(0.001, op.ends - time.monotonic())
end

-- Each answer has an id. One that comes twice, by some proxy's fault, would be taken for the answer to what was asked next. id nil: it has none.
function answers.is_repeated(store, id)
	store.ids = store.ids or { count = 0 }
	local ids = store.ids
	if not id then
		return false
	elseif ids["id " .. id] then
		return true
	end
	ids.count = ids.count % IDS + 1
	ids[ids[ids.count] or ""] = nil
	ids["id " .. id], ids[ids.count] = true, "id " .. id
	return false
end

-- attempt() -> a response and its error's code; or nil, an error's text, whether surely nothing was sent, and the error's code.
-- better(r, code) -> whether r was refused before anything was done, and another attempt may not be.
-- Returns what the last attempt did; beside a response, whether a copy of it that was sent before may have been done.
function answers.send(attempt, better)
	local repeated = false
	for _ = 1, TRIES do
		local r, code, unsent, kind = attempt()
		if not r then
			return nil, code, unsent and not repeated, kind
		end
		repeated = repeated or r.repeated == true
		if not better(r, code) then
			return r, code, repeated
		end
	end
	return nil, "each attempt was refused, and a better one asked for", not repeated
end

-- Of a request without an answer, of which nothing was done or which was a read. Whoever has no credentials at all will have none in a second, unless
-- what gives them did not answer. credentials nil: none are needed.
function answers.failed(credentials, text, unsent)
	local said = credentials and (rawget(credentials, "err") or not rawget(credentials, "tried")) -- else it has not answered yet
	local none = said and not rawget(credentials, "kept") and not rawget(credentials, "away")
	return unsent and none and "refused" or "failed", text
end

-- After an answer which says that the condition was not met. That says nothing where an earlier copy of the request was applied, whose answer was
-- lost: what is there now does, unless another has replaced it since. fetch(store, key, op): the lock's read. also: there was such a copy.
function answers.look(fetch, store, key, text, op, answer, also)
	local outcome, found, version = fetch(store, key, op)
	if outcome == "ok" and found == text then
		return "ok", version
	elseif also and (outcome == "ok" or outcome == "absent") then
		return "unknown", answer .. "; but it was sent more than once, and of one try no answer came"
	elseif outcome == "ok" and version ~= op.expected then
		return "conflict"
	elseif outcome == "absent" and op.expected ~= "" then
		return "conflict"
	elseif outcome == "ok" or outcome == "absent" then
		return "unknown", answer .. "; but what is there is what was expected"
	end
	return "unknown", ("%s; and then: %s"):format(answer, found)
end

return answers
