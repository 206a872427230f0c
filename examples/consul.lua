-- Keeps a key of Consul's up to date with what a command prints, from one machine of many. An old leader cannot overwrite a new one's value.
--   lunarch run --lock consul://127.0.0.1:8500/locks/servers examples/consul.lua -- http://127.0.0.1:8500 KEY SECONDS COMMAND [ARGUMENT...]
-- The key's Flags hold the token of the term that wrote it last. A term writes by check-and-set on what it has read, and only where no larger
-- token stands; so a write of an old term that comes late finds another index, and does nothing.
local consul, key, seconds = ...
assert(key and tonumber(seconds) and select(4, ...), "usage: lunarch run --lock URL consul.lua -- http://HOST:PORT KEY SECONDS COMMAND [ARGUMENT...]")
local url = ("%s/v1/kv/%s"):format(consul, key)
local options = { timeout = 10, headers = { ["X-Consul-Token"] = os.getenv "CONSUL_HTTP_TOKEN" } }

local function with(query, body)
  return { timeout = options.timeout, headers = options.headers, query = query, body = body }
end

-- The index to write on, and the token of the last write.
local function look()
  local r = assert(http.get(url, with { consistent = "" }))
  if r.status == 404 then return 0, 0 end
  assert(r.ok, r.body)
  local entry = assert(r:json())[1]
  return entry.ModifyIndex, entry.Flags
end

local function publish(term, text)
  local index, token = look()
  if token > term.token then return term:resign() end
  local r = assert(http.put(url, with({ cas = ("%d"):format(index), flags = ("%d"):format(term.token) }, text)))
  assert(r.ok, r.body)
  log.info("published", { written = r.body:find "true" ~= nil, token = term.token })
end

local command = { select(4, ...) }
command.timeout = 60

return {
  on_leading = function(term)
    term:every(tonumber(seconds), function()
      local result = assert(exec(command))
      if result.ok then publish(term, result.stdout) end
    end, { now = true })
  end,
}
