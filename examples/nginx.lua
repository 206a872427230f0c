-- nginx sends its clients to the leader, and to nobody while there is none. To be run beside nginx: it only watches, and never leads.
--   lunarch run --lock URL examples/nginx.lua -- FILE COMMAND
-- FILE is included in nginx.conf's http block and has the upstream "leader" (proxy_pass http://leader); COMMAND, as "nginx -s reload",
-- lets nginx read it. Who serves says its address: lunarch run --lock URL --address HOST:PORT SCRIPT.lua
local files = require "lunarch.files"
local template = require "lunarch.template"

local path, reload = ...
assert(path and reload, 'usage: lunarch run --lock URL nginx.lua -- FILE "nginx -s reload"')

local upstream = template.compile [[
# Written by nginx.lua, for {{identity}}.
upstream leader {
{% if address %}
  server {{address}};
{% else %}
  server 127.0.0.1:1 down;
{% end %}
}
]]

local function point_to(identity, address)
  local text = upstream { identity = identity, address = address }
  if files.read(path) == text then return end
  assert(files.write(path, text))
  local r, err = exec(reload, { timeout = 10 })
  if not (r and r.ok) then error("nginx goes on with what it had: " .. (err and err.message or r.stderr)) end
  log.info("upstream", { identity = identity, address = address or "none" })
end

-- An address goes into nginx's configuration: nothing else may.
local function is_address(text) return text:find "^[%w.-]+:%d+$" or text:find "^%[[%x:]+%]:%d+$" end

return {
  on_start = function() point_to("nobody yet", nil) end, -- what an earlier run has left may be long out of date
  on_new_leader = function(leader)
    if is_address(leader.address) then return point_to(leader.identity, leader.address) end
    log.warn("no_address", { identity = leader.identity, address = leader.address })
    point_to(leader.identity, nil)
  end,
  on_no_leader = function() point_to("nobody", nil) end,
}
