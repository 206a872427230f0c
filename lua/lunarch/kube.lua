-- lunarch.kube: objects of a Kubernetes API server: get, list, create, patch, watch; the labels of the script's own pod, and the address of
-- a Service that leads to the leader. It uses http, with
-- the pod's service account or the options. No kubeconfig, no discovery: a resource is named as in its URL.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local ACCOUNT <const> = "/var/run/secrets/kubernetes.io/serviceaccount/"
local TIMEOUT <const>, PAGE <const> = 10, 500
local WATCH <const>, SILENCE <const> = 240, 100 -- seconds: how long one watch lasts; how long it may be silent (a bookmark comes each minute)
local PAUSE <const>, PAUSE_MAX <const> = 0.5, 30
local REFUSALS <const> = 5 -- so many in a row end a watch that was allowed before

local function selector_text(v)
	return type(v) ~= "string" and type(v) ~= "table" and 'a text as "app=web", or { app = "web" }' or nil
end

local function a_namespace(v)
	return v ~= false and (type(v) ~= "string" or v == "") and "a name, or false for what is in no namespace" or nil
end

local of_server = { server = "text", token = "text", token_file = "text", ca = "text", namespace = "text", timeout = "seconds", insecure = "boolean" }
local of_get = { namespace = a_namespace }
local of_list = { namespace = a_namespace, selector = selector_text, fields = "text" }
local of_address = { address = "text", port = "count", name = "text", namespace = a_namespace }
local of_watch = { namespace = a_namespace, selector = selector_text, fields = "text", name = "text" }
local kinds = { merge = "application/merge-patch+json", strategic = "application/strategic-merge-patch+json", json = "application/json-patch+json" }
local of_patch = { namespace = a_namespace, type = kinds }

local function read(path)
	local file, why = io.open(path)
	if not file then
		return nil, why
	end
	local text = file:read "a"
	file:close()
	return text:match "^%s*(.-)%s*$"
end

local function escape(text)
	return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function selector(value)
	if type(value) ~= "table" then
		return value
	end
	local list = {}
	for name, wanted in pairs(value) do
		list[#list + 1] = name .. "=" .. tostring(wanted)
	end
	table.sort(list)
	return table.concat(list, ",")
end

local codes = { [400] = "invalid", [401] = "denied", [403] = "denied", [404] = "missing", [409] = "conflict", [410] = "expired", [413] = "full", [422] = "invalid" }

-- Errors that another try cannot mend.
local final = { denied = true, missing = true, invalid = true }

return function(natives)
	local json, http = lunarch.json, lunarch.http

	local Client = { __name = "lunarch.KubeClient" }
	Client.__index = use "unknown"("client", Client)

	-- "pods" is /api/v1/.../pods, "apps/v1/deployments" /apis/apps/v1/.../deployments.
	local function path_of(self, where, resource, name, options)
		given.text(where .. ": resource", resource, 3)
		local group, plural = resource:match "^(.*)/([^/]+)$"
		group = not group and "api/v1" or group:find("/", 1, true) and "apis/" .. group or "api/" .. group
		plural = plural or resource
		if not (group .. "/" .. plural):find "^[%w./-]+$" then
			error(('%s: expected a resource as "pods" or "apps/v1/deployments", found "%s"'):format(where, resource), 3)
		end
		local namespace = options.namespace
		if namespace == nil then
			namespace = self.namespace
		end
		return ("/%s%s/%s%s"):format(group, namespace and "/namespaces/" .. escape(namespace) or "", plural, name and "/" .. escape(name) or "")
	end

	local function refused(method, path, response)
		local status = response.body and json.decode(response.body)
		local said = type(status) == "table" and status.message or (response.body or ""):sub(1, 200)
		local nothing, err = natives.fail(codes[response.status] or "failed", ("kube: %s %s: %d: %s"):format(method, path, response.status, said))
		err.status = response.status
		return nothing, err
	end

	local function send(self, method, path, options)
		local token = self.token
		if not token and self.token_file then
			local text, why = read(self.token_file) -- read each time, since it is renewed
			if not text then
				return natives.fail("missing", "kube: the account's token cannot be read: " .. why)
			end
			token = text
		end
		options.url, options.method, options.bearer, options.tls = self.server .. path, method, token, self.tls
		options.timeout = options.timeout or self.timeout
		local response, err = http.request(options)
		if not response then
			local nothing, problem = natives.fail(err.code, ("kube: %s %s: %s"):format(method, path, err.message))
			problem.unsent = err.unsent
			return nothing, problem
		elseif not response.ok then
			if options.stream then
				response.body = response:read() or ""
				response:close()
			end
			return refused(method, path, response)
		end
		return response
	end

	local function object_of(method, path, response, err)
		if not response then
			return nil, err
		end
		local object, wrong = response:json()
		if type(object) ~= "table" then
			return natives.fail("invalid", ("kube: %s %s: the answer is no object: %s"):format(method, path, wrong or "another kind of JSON"))
		end
		return object
	end

	function Client:get(resource, name, options)
		options = given.options("client:get", options, of_get)
		local path = path_of(self, "client:get", resource, given.text("client:get: name", name), options)
		return object_of("GET", path, send(self, "GET", path, { retries = 2 }))
	end

	-- Reads all pages. The items, and their version.
	local function pages(self, path, query)
		local items, version, continue = {}, nil, nil
		repeat
			query.limit, query.continue = PAGE, continue
			local list, err = object_of("GET", path, send(self, "GET", path, { query = query, retries = 2 }))
			if not list and err.code == "expired" and continue then
				items, continue = {}, nil -- the list has expired: begin again
			elseif not list then
				return nil, err
			elseif type(list.metadata) ~= "table" or type(list.items) ~= "table" then
				return natives.fail("invalid", ("kube: GET %s: the answer is no list"):format(path))
			else
				table.move(list.items, 1, #list.items, #items + 1, items)
				version, continue = list.metadata.resourceVersion, list.metadata.continue
			end
		until list and (continue == nil or continue == "")
		return items, version
	end

	local function query_of(options)
		local fields = options.name and "metadata.name=" .. options.name or nil
		fields = fields and options.fields and fields .. "," .. options.fields or fields or options.fields
		return { labelSelector = selector(options.selector), fieldSelector = fields }
	end

	function Client:list(resource, options)
		options = given.options("client:list", options, of_list)
		local items, err = pages(self, path_of(self, "client:list", resource, nil, options), query_of(options))
		return items, not items and err or nil
	end

	function Client:patch(resource, name, patch, options)
		options = given.options("client:patch", options, of_patch)
		local path = path_of(self, "client:patch", resource, given.text("client:patch: name", name), options)
		if type(patch) ~= "table" then
			error(("client:patch: expected a table, found a %s"):format(type(patch)), 2)
		end
		local kind = options.type or "merge"
		return object_of("PATCH", path, send(self, "PATCH", path, { json = patch, headers = { ["Content-Type"] = kinds[kind] }, retries = 2,
			idempotent = kind ~= "json" }))
	end

	function Client:create(resource, object, options)
		options = given.options("client:create", options, of_get)
		if type(object) ~= "table" then
			error(("client:create: expected an object, found a %s"):format(type(object)), 2)
		end
		local path = path_of(self, "client:create", resource, nil, options)
		return object_of("POST", path, send(self, "POST", path, { json = object }))
	end

	-- ---- the EndpointSlice of a Service without a selector, which names the leader (reference: discovery.k8s.io/v1) ----

	local SLICES <const>, MANAGER <const>, TOKEN <const> = "discovery.k8s.io/v1/endpointslices", "lunarch.dev", "lunarch.dev/token"

	local function slice_labels(service)
		return { ["kubernetes.io/service-name"] = service, ["endpointslice.kubernetes.io/managed-by"] = MANAGER }
	end

	-- The slice that is there, if it is ours and no larger token has written it.
	local function slice_of(self, where, service, token, options)
		given.text(where .. ": service", service, 3)
		local name = service .. "-lunarch"
		local slice, err = self:get(SLICES, name, { namespace = options.namespace })
		if not slice then
			return nil, err, name
		end
		local metadata = type(slice.metadata) == "table" and slice.metadata or {}
		for label, value in pairs(slice_labels(service)) do
			local found = type(metadata.labels) == "table" and metadata.labels[label]
			if found ~= value then
				return natives.fail("foreign", ("kube: EndpointSlice %s: its label %s is %s, not %s: somebody else keeps it, so it stays as it is"):format(
					name, label, found or "missing", value))
			end
		end
		local last = type(metadata.annotations) == "table" and math.tointeger(tonumber(metadata.annotations[TOKEN]))
		if not last then
			return natives.fail("foreign", ("kube: EndpointSlice %s: its annotation %s is no token, so it stays as it is"):format(name, TOKEN))
		elseif last > token then
			return natives.fail("fenced", ("kube: EndpointSlice %s: token %d has written it, and ours is %d"):format(name, last, token))
		end
		return slice, nil, name
	end

	-- By the version that was looked at: a write that comes late, after another one, is refused by the server.
	local function slice_write(self, slice, name, token, change, options)
		change.metadata = { resourceVersion = slice.metadata.resourceVersion, annotations = { [TOKEN] = tostring(token) } }
		return self:patch(SLICES, name, change, { namespace = options.namespace })
	end

	function Client:publish(term, service, options)
		local token = given.token("client:publish", term)
		options = given.options("client:publish", options, of_address)
		local address, port = given.text("client:publish: address", options.address), options.port
		if not port or port < 1 or port > 65535 then
			error(("client:publish: expected a port from 1 to 65535, found %s"):format(tostring(port)), 2)
		end
		local slice, err, name = slice_of(self, "client:publish", service, token, options)
		local endpoints = json.array { { addresses = json.array { address }, conditions = { ready = true } } }
		local ports = json.array { { name = options.name or "", port = port, protocol = "TCP" } }
		if slice then
			return slice_write(self, slice, name, token, { endpoints = endpoints, ports = ports }, options)
		elseif err.code ~= "missing" then
			return nil, err
		end
		return self:create(SLICES, { apiVersion = "discovery.k8s.io/v1", kind = "EndpointSlice", addressType = address:find ":" and "IPv6" or "IPv4",
			metadata = { name = name, labels = slice_labels(service), annotations = { [TOKEN] = tostring(token) } },
			endpoints = endpoints, ports = ports }, { namespace = options.namespace })
	end

	function Client:withdraw(term, service, options)
		local token = given.token("client:withdraw", term)
		options = given.options("client:withdraw", options, of_get)
		local slice, err, name = slice_of(self, "client:withdraw", service, token, options)
		if not slice then
			if err.code == "missing" then
				return true
			end
			return nil, err
		end
		local done, why = slice_write(self, slice, name, token, { endpoints = json.array {} }, options)
		return done and true or nil, why
	end

	function Client:label_self(labels)
		if type(labels) ~= "table" then
			error(("client:label_self: expected { label = value }, found a %s"):format(type(labels)), 2)
		end
		local pod = os.getenv "POD_NAME" or os.getenv "HOSTNAME"
		if not pod then
			return natives.fail("missing", "kube: the pod's name is not known: set POD_NAME by the downward API (fieldPath: metadata.name)")
		end
		local values = {}
		for name, value in pairs(labels) do
			values[name] = value == false and json.null or value -- null removes the label (RFC 7396)
		end
		return self:patch("pods", pod, { metadata = { labels = values } })
	end

	-- ---- watch ----

	local Watch = {}
	Watch.__index = Watch

	function Watch:add(kind, object)
		self.last = self.last + 1
		self.events[self.last] = { kind, object }
	end

	local function key_of(object)
		return (object.metadata.namespace or "") .. "/" .. object.metadata.name
	end

	function Watch:see(object)
		local key = key_of(object)
		local before = self.known[key]
		self.known[key] = object
		if not before then
			self:add("added", object)
		elseif before.metadata.resourceVersion ~= object.metadata.resourceVersion then
			self:add("modified", object)
		end
	end

	function Watch:forget(object)
		local key = key_of(object)
		if self.known[key] then
			self.known[key] = nil
			self:add("deleted", object)
		end
	end

	function Watch:wait()
		lunarch.sleep(math.min(PAUSE_MAX, PAUSE * 2.0 ^ math.min(self.failures, 10)) * (0.5 + math.random()))
		self.failures = self.failures + 1
	end

	-- A server that has just been started does not know its roles for a moment, and refuses everybody. So a watch that was allowed before is
	-- tried again.
	function Watch:fail(err)
		self.refusals = err.code == "denied" and self.refusals + 1 or 0
		if final[err.code] and (not self.allowed or err.code ~= "denied" or self.refusals > REFUSALS) then
			error(err.message, 0)
		end
		lunarch.log.warn("kube_watch", { path = self.path, why = err.message })
		self:wait()
	end

	-- Compares what is there now with what was there before, so that changes between two watches are seen.
	function Watch:list()
		local items, version = pages(self.client, self.path, query_of(self.options))
		if not items then
			return self:fail(version)
		end
		local there = {}
		for _, object in ipairs(items) do
			there[key_of(object)] = true
			self:see(object)
		end
		for key, object in pairs(self.known) do
			if not there[key] then
				self:forget(object)
			end
		end
		self.version, self.failures, self.refusals, self.allowed = version, math.min(self.failures, 1), 0, true
	end

	function Watch:open()
		local query = query_of(self.options)
		query.watch, query.allowWatchBookmarks, query.resourceVersion, query.timeoutSeconds = "1", "true", self.version, WATCH
		local stream, err = send(self.client, "GET", self.path, { query = query, stream = true, silence = SILENCE })
		if stream then
			self.stream, self.rest, self.began, self.refusals = stream, "", lunarch.time.monotonic(), 0
		elseif err.code == "expired" then
			self.version = nil
			self:wait()
		else
			self:fail(err)
		end
	end

	function Watch:close()
		if self.stream then
			self.stream:close()
			self.stream = nil
		end
	end

	-- After an event that cannot be understood the stream is not trusted any more: everything is listed again.
	function Watch:take(line)
		local event = json.decode(line)
		local object = type(event) == "table" and event.object
		local metadata = type(object) == "table" and object.metadata
		if type(metadata) ~= "table" or event.type == "ERROR" or not metadata.resourceVersion then
			local code = type(object) == "table" and object.code
			self.version = nil
			self:close()
			if code ~= 410 then
				self:fail { code = "failed", message = "the stream says " .. line:sub(1, 200) }
			end
			return
		end
		self.version, self.failures = metadata.resourceVersion, 0
		if event.type == "DELETED" then
			self:forget(object)
		elseif event.type ~= "BOOKMARK" then
			self:see(object)
		end
	end

	function Watch:listen()
		local part, err = self.stream:read()
		if part then
			local text, from = self.rest .. part, 1
			for line, at in text:gmatch "([^\n]*)\n()" do
				from = at
				if self.stream and line:find "%S" then
					self:take(line)
				end
			end
			self.rest = text:sub(from)
			return
		end
		local short = lunarch.time.monotonic() - self.began < 1
		self:close()
		if err and err.code ~= "timeout" or short then -- else the watch's time was up: begin the next one at once
			self:wait()
		end
	end

	function Watch:next()
		while self.first > self.last do
			if not self.version then
				self:list()
			elseif not self.stream then
				self:open()
			else
				self:listen()
			end
		end
		local event = self.events[self.first]
		self.events[self.first] = nil
		self.first = self.first + 1
		return event[1], event[2]
	end

	function Client:watch(resource, options)
		options = given.options("client:watch", options, of_watch)
		local watch = setmetatable({ client = self, path = path_of(self, "client:watch", resource, nil, options), options = options, known = {},
			events = {}, first = 1, last = 0, failures = 0, refusals = 0, allowed = false }, Watch)
		return function() return watch:next() end, nil, nil, setmetatable({}, { __close = function() watch:close() end })
	end

	-- ---- the server ----

	local function in_a_pod(options)
		local host, port = os.getenv "KUBERNETES_SERVICE_HOST", os.getenv "KUBERNETES_SERVICE_PORT"
		if not host or not port then
			error("kube.connect: this is no pod (KUBERNETES_SERVICE_HOST is not set): expected { server = ..., token_file = ..., namespace = ... }", 3)
		end
		local server = ("https://%s:%s"):format(host:find(":", 1, true) and "[" .. host .. "]" or host, port)
		return server, options.ca or ACCOUNT .. "ca.crt", not options.token and (options.token_file or ACCOUNT .. "token") or nil
	end

	local kube = {}

	function kube.connect(options)
		options = given.options("kube.connect", options, of_server)
		local server, ca, token_file = options.server, options.ca, options.token_file
		if not server then
			server, ca, token_file = in_a_pod(options)
		elseif not server:find "^https?://[^/]+/?$" then
			error(('kube.connect: expected a server as "https://HOST:PORT", found "%s"'):format(server), 2)
		end
		local namespace = options.namespace or os.getenv "POD_NAMESPACE" or (not options.server and read(ACCOUNT .. "namespace")) or "default"
		return setmetatable({ server = server:gsub("/$", ""), token = options.token, token_file = token_file, namespace = namespace,
			tls = server:find "^https" and { ca = ca, insecure = options.insecure } or nil, timeout = options.timeout or TIMEOUT }, Client)
	end

	return kube
end
