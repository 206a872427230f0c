-- Labels the leader's pod, so that a Service whose selector has that label sends its clients to the leader alone.
--   lunarch run --lock kube:///web label-leader.lua
-- In a pod, with POD_NAME and POD_NAMESPACE from the downward API and the rights of rbac.yaml. LABEL: another label's name.
local account = "/var/run/secrets/kubernetes.io/serviceaccount/"
local label = os.getenv "LABEL" or "lunarch.dev/leader"
local pod = assert(os.getenv "POD_NAME", "POD_NAME is not set: see deployment.yaml")
local namespace = assert(os.getenv "POD_NAMESPACE", "POD_NAMESPACE is not set: see deployment.yaml")
local host, port = os.getenv "KUBERNETES_SERVICE_HOST", os.getenv "KUBERNETES_SERVICE_PORT"
local server = ("https://%s:%s"):format(host:find(":", 1, true) and "[" .. host .. "]" or host, port)

-- The token goes to curl on its standard input: arguments can be seen by everybody on the machine.
local function call(method, path, body)
  local file = assert(io.open(account .. "token"))
  local token = file:read "l"
  file:close()
  local options = {
    ("url = %q"):format(server .. "/api/v1/namespaces/" .. namespace .. "/pods" .. path),
    ("request = %q"):format(method),
    ("cacert = %q"):format(account .. "ca.crt"),
    ("header = %q"):format("Authorization: Bearer " .. token),
    'header = "Content-Type: application/merge-patch+json"',
  }
  if body then
    options[#options + 1] = "data = " .. json.encode(json.encode(body))
  end
  local result = exec { "curl", "--silent", "--show-error", "--fail-with-body", "--config", "-",
    stdin = table.concat(options, "\n"), timeout = 5 }
  if not result or not result.ok then
    return nil, result and result.stdout .. result.stderr or "curl did not run"
  end
  return json.decode(result.stdout)
end

-- null takes a label away (RFC 7396).
local function set(name, value)
  local done, why = call("PATCH", "/" .. name, { metadata = { labels = { [label] = value } } })
  log.info("label", { pod = name, value = value == json.null and "removed" or value, ok = done ~= nil, error = why })
  return done, why
end

local function labelled()
  local list = call("GET", "?labelSelector=" .. label:gsub("/", "%%2F") .. "%3Dtrue")
  return list and list.items or {}
end

return {
  on_start = function() set(pod, json.null) end, -- of a container that crashed while it led
  on_leading = function(term)
    for _, other in ipairs(labelled()) do -- of a node that is gone
      if other.metadata.name ~= pod then
        set(other.metadata.name, json.null)
      end
    end
    while not set(pod, "true") do
      sleep(0.5)
    end
    print("leading", term.token)
  end,
  on_stopped = function() set(pod, json.null) end,
}
