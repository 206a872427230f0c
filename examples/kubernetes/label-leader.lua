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

return {
  on_start = function() set(pod, json.null) end, -- of a container that crashed while it led

  on_leading = function(term)
    for _, other in ipairs(api:list("pods", { selector = { [label] = "true" } }) or {}) do -- of a node that is gone
      if other.metadata.name ~= pod then set(other.metadata.name, json.null) end
    end
    assert(retry.call(function() return api:label_self { [label] = "true" } end, { timeout = 60 }))
    print("leading", term.token)
  end,

  on_stopped = function() set(pod, json.null) end,
}
