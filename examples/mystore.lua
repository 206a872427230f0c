-- mystore.lua: a lock in a store that speaks HTTP: GET, PUT and DELETE with ETags, If-Match and If-None-Match.
--   lunarch check mystore.lua                        says what is wrong with this file
--   lunarch test mystore_test.lua                    its tests: no store, no waiting
--   lunarch doctor --full --lock 'lua:PATH/mystore.lua?host=HOST:PORT#try'   examines it on a store of yours
--   install -m 644 mystore.lua /etc/lunarch/locks/   from then on: --lock mystore://HOST:PORT/KEY
-- docs/write-a-lock.md of Lunarch says what each function must do, and what is safe by itself. This file has to do one thing right:
-- write changes the record in one step with comparing its version, and says "ok", "conflict" or "failed" only if that is sure.
local http <const> = lunarch.http

local function url_of(store, key)
  return store.url .. key:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end)
end

-- A store that answers something else has surely not done it, if it says 4xx; after 5xx nobody knows.
local function refusal(status)
  local text = "the store answered with the status " .. status
  if status == 401 or status == 403 then return "refused", text end
  return status < 500 and "failed" or "unknown", text
end

local function read(store, key, timeout)
  local r, err = http.get(url_of(store, key), { timeout = timeout })
  if not r then return "failed", err end
  if r.status == 404 then return "absent" end
  if r.status == 401 or r.status == 403 then return "refused", "the store answered with the status " .. r.status end
  if r.status ~= 200 then return "failed", "the store answered with the status " .. r.status end
  return "ok", r.body, r.headers.etag -- the version: any text of 1 to 63 bytes that no other record of this key ever has
end

local function condition(expected)
  if expected == "" then return { ["If-None-Match"] = "*" } end -- only if there is no record
  return { ["If-Match"] = expected }
end

return {
  scheme = "mystore",
  summary = "mystore://HOST:PORT/KEY",
  options = { host = "text", prefix = "text", tls = "boolean" }, -- what may follow '?' in the URL

  -- Called once in each process. place: what the URL says. Connect here; return nil and an error if that has to be tried again.
  open = function(place)
    local host = place.hosts[1]
    local at = place.options.host or host and (host.port > 0 and host.name .. ":" .. host.port or host.name)
    if not at then error(place.lock .. ": expected mystore://HOST:PORT/KEY, or the option host=HOST:PORT", 0) end
    return { url = (place.options.tls and "https://" or "http://") .. at .. (place.options.prefix or "/") }
  end,

  read = function(store, key, op) return read(store, key, op.timeout) end,

  -- Compare-and-swap: only if the record's version is op.expected; "": only if there is none.
  write = function(store, key, text, op)
    local ends = time.monotonic() + op.timeout
    local r, err = http.put(url_of(store, key), { body = text, headers = condition(op.expected), timeout = op.timeout })
    if not r then return nil, err end -- unknown; failed if err.unsent says that nothing was sent
    if r.status >= 200 and r.status < 300 and r.headers.etag then return "ok", r.headers.etag end
    if r.status ~= 412 then return refusal(r.status) end
    -- A request that was sent twice can have been refused because of itself. No two records have the same text.
    local outcome, there, version = read(store, key, math.max(0.001, ends - time.monotonic()))
    if outcome == "ok" and there == text then return "ok", version end
    if outcome == "ok" or outcome == "absent" then return "conflict" end
    return "unknown", there
  end,

  -- The rest may be missing. remove is for `lunarch doctor`, which cleans up with it.
  remove = function(store, key, op)
    if op.expected == "" then return "absent" end
    local r, err = http.delete(url_of(store, key), { headers = condition(op.expected), timeout = op.timeout })
    if not r then return nil, err end
    if r.status == 404 then return "absent" end
    if r.status == 412 then return "conflict" end
    if r.status >= 200 and r.status < 300 then return "ok" end
    return refusal(r.status)
  end,

  about = function(store, op)
    local r, err = http.get(store.url, { timeout = op.timeout })
    if not r then return nil, err end
    return { server = r.headers.server or "" }
  end,

  -- watch = function(store, key, changed) ... end -- calls changed() after each change; without it standbys look again every retry period
  -- list = function(store, prefix, op) return "ok", { "key" }, false end -- for `lunarch list`
}
