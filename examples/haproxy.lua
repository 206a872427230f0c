-- HAProxy sends its clients to the leader, and to nobody while there is none, without a reload: by a map that it looks the leader up
-- in. To be run beside HAProxy: it only watches, and never leads.
--   lunarch run --lock URL examples/haproxy.lua -- MAP SOCKET [KEY]
-- MAP is the map's file, SOCKET HAProxy's runtime socket (stats socket PATH level admin), KEY (leader) the map's key. In haproxy.cfg:
--   http-request set-var(txn.to) str(leader),map_str(MAP)
--   http-request deny deny_status 503 unless { var(txn.to) -m found }
--   http-request set-dst var(txn.to),field(1,:)
--   http-request set-dst-port var(txn.to),field(2,:)
--   server leader 0.0.0.0:0
local files = require "lunarch.files"

local map, socket, key = ...
key = key or "leader"
assert(map and socket, "usage: lunarch run --lock URL haproxy.lua -- MAP SOCKET [KEY]")

-- A new version of the map is made beside the one in use, and takes its place as a whole; no answer but a number or nothing is good.
local function ask(command)
  local r, err = exec { "socat", "-t5", "-", "UNIX-CONNECT:" .. socket, stdin = command .. "\n", timeout = 5 }
  if not (r and r.ok) then error("haproxy: " .. (err and err.message or r.stderr)) end
  return (r.stdout:gsub("%s+$", ""))
end

local function quiet(command)
  local answer = ask(command)
  if answer ~= "" then error(("haproxy: %s: %s"):format(command, answer)) end
end

-- address: nil empties the map. The file is what HAProxy reads when it starts.
local function point_to(address)
  assert(files.write(map, address and key .. " " .. address .. "\n" or ""))
  local version = assert(ask("prepare map " .. map):match "New version created: (%d+)", "haproxy has no map " .. map)
  if address then quiet(("add map @%s %s %s %s"):format(version, map, key, address)) end
  quiet(("commit map @%s %s"):format(version, map))
  log.info("map", { address = address or "none" })
end

return {
  on_start = function() point_to(nil) end, -- what an earlier run has left may be long out of date
  on_new_leader = function(leader)
    if leader.address:find "^%d+%.%d+%.%d+%.%d+:%d+$" then return point_to(leader.address) end
    log.warn("no_address", { identity = leader.identity, address = leader.address })
    point_to(nil)
  end,
  on_no_leader = function() point_to(nil) end,
}
