-- A lock in Box (tests/lib/box.py), a store that speaks HTTP: a value has an ETag, PUT and DELETE take If-Match and If-None-Match,
-- and a GET may wait for a change. An example of a lock file: docs/write-a-lock.md says what each function must do.

local http <const> = lunarch.http

local WAIT <const> = 5 -- seconds that one request for a change waits

local function url_of(box, key)
	return box.url .. "/k/" .. key:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end)
end

-- The version is the ETag, which Box never gives twice.
local function read(box, key, timeout)
	local r, err = http.get(url_of(box, key), { timeout = timeout })
	if not r then
		return "failed", err
	elseif r.status == 404 then
		return "absent"
	elseif r.status ~= 200 then
		return "failed", "Box answered with the status " .. r.status
	end
	return "ok", r.body, r.headers.etag
end

local function condition(expected)
	if expected == "" then
		return { ["If-None-Match"] = "*" }
	end
	return { ["If-Match"] = expected }
end

local function refusal(status)
	if status == 403 then
		return "refused", "Box is read-only"
	elseif status == 507 then
		return "failed", "Box is full"
	end
	return "unknown", "Box answered with the status " .. status
end

return {
	scheme = "box",
	summary = "box://HOST:PORT/KEY",
	options = { host = "text" },

	open = function(place)
		local host = place.hosts[1]
		local at = host and host.name .. ":" .. host.port or place.options.host
		if not at then
			error(place.lock .. ": expected box://HOST:PORT/KEY, or the option host=HOST:PORT", 0)
		end
		return { url = "http://" .. at }
	end,

	read = function(box, key, op)
		return read(box, key, op.timeout)
	end,

	write = function(box, key, text, op)
		local until_ = lunarch.time.monotonic() + op.timeout
		local r, err = http.put(url_of(box, key), { body = text, headers = condition(op.expected), timeout = op.timeout })
		if not r then
			return nil, err -- unknown, unless err.unsent says that nothing was sent
		elseif r.status == 200 then
			return "ok", r.headers.etag
		elseif r.status ~= 412 then
			return refusal(r.status)
		end
		-- The request may have come twice, and the first one have made the second fail. No two records have the same text.
		local outcome, there, version = read(box, key, math.max(0.001, until_ - lunarch.time.monotonic()))
		if outcome == "ok" and there == text then
			return "ok", version
		elseif outcome == "ok" or outcome == "absent" then
			return "conflict"
		end
		return "unknown", there
	end,

	watch = function(box, key, changed)
		local seen
		while true do
			local r, err = http.get(url_of(box, key), { query = { after = seen, wait = WAIT }, timeout = 2 * WAIT })
			if not r then
				return nil, err
			end
			local etag = r.headers.etag or ""
			if etag ~= seen then
				seen = etag
				changed() -- the next request says what has been seen, so nothing that happens in between is missed
			end
		end
	end,

	about = function(box, op)
		local r, err = http.get(box.url, { timeout = op.timeout })
		if not r then
			return nil, err
		end
		return { server = (r.headers.server or "Box"):match "^%S+" }
	end,

	remove = function(box, key, op)
		if op.expected == "" then
			return "absent"
		end
		local r, err = http.delete(url_of(box, key), { headers = condition(op.expected), timeout = op.timeout })
		if not r then
			return nil, err
		elseif r.status == 404 then
			return "absent"
		elseif r.status == 412 then
			return "conflict"
		elseif r.status ~= 200 then
			return refusal(r.status)
		end
		return "ok"
	end,

	list = function(box, prefix, op)
		local r, err = http.get(box.url .. "/list", { query = { prefix = prefix, limit = 1000 }, timeout = op.timeout })
		if not r then
			return nil, err
		elseif r.status ~= 200 then
			return "failed", "Box answered with the status " .. r.status
		end
		local listing = r:json()
		return "ok", listing.names, listing.more
	end,
}
