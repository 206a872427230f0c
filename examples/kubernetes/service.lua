-- Sends a Service's clients to the leader alone: keeps the EndpointSlice of a Service that has no selector.
--   SERVICE=web POD_PORT=8080 lunarch run --lock kube:///web service.lua
-- In a pod, with POD_IP from the downward API and a right to get, create and patch endpointslices (discovery.k8s.io). The lease does not
-- wait for it: while it fails, the Service has the last leader's address, and the log says why.
local kube = require "lunarch.kube"
local retry = require "lunarch.retry"

local service = assert(os.getenv "SERVICE", "SERVICE is not set: the Service's name")
local address = assert(os.getenv "POD_IP", "POD_IP is not set: see deployment.yaml")
local port = assert(math.tointeger(tonumber(os.getenv "POD_PORT")), "POD_PORT is not set: the port that clients come to")
local api = kube.connect { timeout = 2 }

local function failed(err) log.warn("service", { service = service, code = err.code, error = err.message }) end

-- Until it is done, however long that takes. The term goes on meanwhile.
local function publish(term)
  local pause = 0.2
  while true do
    local done, err = api:publish(term, service, { address = address, port = port })
    if done then return log.info("service", { service = service, address = address, port = port }) end
    failed(err)
    sleep(pause)
    pause = math.min(pause * 2, 10)
  end
end

return {
  on_leading = function(term)
    spawn(publish, term)
    while true do sleep(3600) end -- the work
  end,

  -- While the lease is still held, if it was not lost. After a conflict who leads now is looked at again.
  on_stopped = function(term)
    local done, err = retry.call(function() return api:withdraw(term, service) end, { timeout = 2, pause = 0.1,
      errors = function(e) return e.code ~= "foreign" and e.code ~= "fenced" end })
    if not done and err.code ~= "fenced" then failed(err) end
  end,
}
