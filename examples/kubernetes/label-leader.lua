-- Labels the leader's pod, so that a Service whose selector has that label sends its clients to the leader alone.
--   lunarch run --lock kube:///web label-leader.lua
-- In a pod, with POD_NAME from the downward API and the rights of rbac.yaml. LABEL: another label's name.
local kube = require "lunarch.kube"
local retry = require "lunarch.retry"

local label = os.getenv "LABEL" or "lunarch.dev/leader"
local pod = assert(os.getenv "POD_NAME", "POD_NAME is not set: see deployment.yaml")
local api = kube.connect { timeout = 5 }

local function set(name, value)
  local done, err = api:patch("pods", name, { metadata = { labels = { [label] = value } } }) -- null takes it away
  log.info("label", { pod = name, value = value == json.null and "removed" or value, ok = done ~= nil, error = err and err.message })
  return done, err
end

-- For this pod alone. A pod whose node is gone has the label still.
local function take()
  local pods, err = api:list("pods", { selector = { [label] = "true" } })
  if not pods then return nil, err end
  for _, other in ipairs(pods) do
    if other.metadata.name ~= pod then
      local done, why = set(other.metadata.name, json.null)
      if not done and why.code ~= "missing" then return nil, why end
    end
  end
  return set(pod, "true")
end

return {
  on_start = function() set(pod, json.null) end, -- of a container that crashed while it led

  on_leading = function(term)
    assert(retry.call(take, { timeout = 60 }))
    print("leading", term.token)
  end,

  on_stopped = function() set(pod, json.null) end,
}
