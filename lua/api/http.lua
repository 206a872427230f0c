-- http.get(url, options), http.post ... and http.request{ url = ..., method = ... }: checks the arguments, sends the request
-- (runtime/script/api/lua_http.c), repeats it where that is safe, and makes the response.

local use = ...
local check = use "options"

return function(natives)
	local core = natives.module "http"
	local json = natives.json

	local TIMEOUT <const> = 30
	local BACKOFF <const> = 0.2
	local BACKOFF_MAX <const> = 10
	local REDIRECTS <const> = 10
	local TEXT_MAX <const> = 1 << 20 -- bytes of any text but a body

	local function text_or_body(v)
		return type(v) ~= "string" and type(v) ~= "function" and "a text, or a function that returns its parts" or nil
	end

	local function token(v)
		return v ~= true and (type(v) ~= "string" or not v:find "^[%w%-]+$") and "true or the name of a header" or nil
	end

	local known = {
		url = "text", method = "text", headers = "table", query = "table", body = text_or_body, form = "table",
		json = function() end, timeout = "seconds", connect_timeout = "seconds", silence = "seconds", redirects = "count",
		user = "text", password = "text", bearer = "text", tls = "table", unix = "text", proxy = "text", no_proxy = "text",
		compressed = "boolean", max_body = "count", stream = "boolean", retries = "count", backoff = "seconds",
		idempotent = "boolean", token = token, aws_sigv4 = "table",
	}
	local known_tls = { ca = "text", cert = "text", key = "text", key_password = "text", insecure = "boolean", server_name = "text",
		http1 = "boolean" }

	local sign -- made when the first request is signed

	local function escape(s)
		return (tostring(s):gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
	end

	local function pairs_text(values)
		local parts, names = {}, {}
		for name in pairs(values) do
			names[#names + 1] = name
		end
		table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
		for _, name in ipairs(names) do
			local list = type(values[name]) == "table" and values[name] or { values[name] }
			for _, value in ipairs(list) do
				parts[#parts + 1] = escape(name) .. "=" .. escape(value)
			end
		end
		return table.concat(parts, "&")
	end

	local function fail(text)
		error("http: " .. text, 0)
	end

	-- unix:/run/x.sock:/path: the path /path, through that socket.
	local function place(spec, url)
		local socket, path = url:match "^unix:([^:]+):?(.*)$"
		if socket then
			spec.unix = socket
			url = "http://localhost" .. (path == "" and "/" or path)
		elseif not url:find "^https?://." then
			fail(('expected a URL that begins with http://, https:// or unix:, found "%s"'):format(url:match("^%w*"):sub(1, 20)))
		end
		return url
	end

	local function check_length(what, text)
		if #text > TEXT_MAX then
			fail(("%s: expected a text of at most 1 MB, found one of %.0f MB"):format(what, #text / 2 ^ 20))
		end
	end

	local function header_lines(given)
		local lines, seen = {}, {}
		for name, value in pairs(given or {}) do
			if type(name) ~= "string" or not name:find "^[%w!#$%%&'*+.^_`|~-]+$" then
				fail(("headers: '%s' is no name of a header"):format(tostring(name)))
			end
			check_length("headers: a name", name)
			check_length("headers: " .. name, tostring(value))
			if type(value) == "boolean" and not value then
				lines[#lines + 1] = name .. ":"
			elseif (type(value) ~= "string" and type(value) ~= "number") or tostring(value):find "[\r\n%z]" then
				fail(("headers: %s: expected a text of one line"):format(name))
			else
				lines[#lines + 1] = name .. ": " .. value
			end
			seen[name:lower()] = true
		end
		return lines, seen
	end

	local function add(spec, seen, name, value)
		if not seen[name:lower()] then
			spec.headers[#spec.headers + 1] = name .. ": " .. value
			seen[name:lower()] = true
		end
	end

	local function content(spec, given, seen)
		local bodies = (given.body ~= nil and 1 or 0) + (given.form and 1 or 0) + (given.json ~= nil and 1 or 0)
		if bodies > 1 then
			fail "only one of body, form and json can be sent"
		elseif given.json ~= nil then
			local good, text = pcall(json.encode, given.json)
			if not good then
				error(text, 0)
			end
			spec.body = text
			add(spec, seen, "Content-Type", "application/json")
		elseif given.form then
			spec.body = pairs_text(given.form)
			add(spec, seen, "Content-Type", "application/x-www-form-urlencoded")
		elseif type(given.body) == "function" then
			spec.streamed, spec.source = true, given.body
		else
			spec.body = given.body
		end
		if spec.method ~= "GET" and spec.method ~= "HEAD" and not spec.body and not spec.streamed then
			spec.body = spec.method ~= "DELETE" and spec.method ~= "OPTIONS" and "" or nil
		end
	end

	-- Adds the running term's token. The scheduler has put it into the environment, for the programs of the term.
	local function fencing(spec, given, seen)
		if not given.token then
			return
		end
		local value = os.getenv "LUNARCH_TOKEN"
		if not value then
			fail "option 'token': only a term has a token, and this is called outside of one"
		end
		add(spec, seen, given.token == true and "Fencing-Token" or given.token, value)
	end

	local direct = { "user", "password", "bearer", "unix", "proxy", "no_proxy", "connect_timeout", "silence", "max_body", "stream" }
	local of_tls = { "ca", "cert", "key", "key_password", "insecure", "server_name", "http1" }

	local function spec_of(given)
		local wrong = check("http", given, known) or (given.tls and check("http: tls", given.tls, known_tls))
		if wrong then
			error(wrong, 0)
		elseif type(given.url) ~= "string" then
			fail("expected a URL, found " .. (given.url == nil and "nil" or "a " .. type(given.url)))
		end
		for name, kind in pairs(known) do
			if kind == "text" and given[name] then
				check_length(name == "url" and "the URL" or "option '" .. name .. "'", given[name])
			end
		end
		local has_body = given.body ~= nil or given.form or given.json ~= nil
		local spec = { method = (given.method or (has_body and "POST" or "GET")):upper() }
		if not spec.method:find "^%u+$" then
			fail(("option 'method': expected a word as GET, found \"%s\""):format(given.method))
		end
		for _, name in ipairs(direct) do
			spec[name] = given[name]
		end
		for _, name in ipairs(given.tls and of_tls or {}) do
			spec[name] = given.tls[name]
		end
		spec.url = place(spec, given.url)
		if given.query then
			local query = pairs_text(given.query)
			local before, fragment = spec.url:match "^([^#]*)(.*)$"
			spec.url = before .. (before:find("?", 1, true) and "&" or "?") .. query .. fragment
		end
		local seen
		spec.headers, seen = header_lines(given.headers)
		content(spec, given, seen)
		fencing(spec, given, seen)
		if given.aws_sigv4 then
			sign = sign or use "sigv4"(natives.module "hash", escape)
			sign(spec, given, function(name, value) add(spec, seen, name, value) end)
		end
		spec.compressed = given.compressed ~= false
		spec.redirects = given.aws_sigv4 and 0 or given.redirects or REDIRECTS
		return spec
	end

	-- ---- one attempt ----

	local function send_all(call, source)
		while true do
			local part = source()
			if part ~= nil and type(part) ~= "string" then
				core.cancel(call)
				error(("http: the body's function: expected a text or nil, found a %s"):format(type(part)), 0)
			end
			local waiting = core.send(call, part)
			while waiting and waiting > 65536 do
				core.wait(call)
				waiting = core.send(call, "")
			end
			local _, ended = core.state(call)
			if part == nil or ended then
				return
			end
		end
	end

	local Response = {}
	Response.__index = use "unknown"("response", Response, { ok = true, status = true, headers = true, url = true, body = true,
		repeated = true })
	Response.__name = "response"

	-- Returns the call as soon as its answer is there; nil and an error.
	local function exchange(spec, timeout)
		if spec.stream then
			spec.first_byte = timeout
			spec.connect_timeout = spec.connect_timeout or timeout
		else
			spec.timeout = timeout
		end
		local call = core.start(spec)
		if spec.source then
			send_all(call, spec.source)
		end
		local answered, ended = core.state(call)
		while not ended and not (spec.stream and answered) do
			core.wait(call)
			answered, ended = core.state(call)
		end
		local failed, err = core.failure(call)
		if err and not (spec.stream and answered) then
			return failed, err
		end
		return call
	end

	-- For lunarch doctor --full, as for a lock file whose connection breaks: the answer is lost. Or the request is sent again, as libcurl
	-- does when a connection that it kept has broken.
	local function without_answer(spec, timeout, cut, first)
		core.cancel(first)
		if cut == "again" and not spec.source then
			local call, err = exchange(spec, timeout)
			if err then
				err.unsent = false
			end
			return call, err
		end
		local _, err = natives.fail("unreachable", "http: the connection was closed before the answer's end")
		err.unsent = false
		return nil, err
	end

	local function attempt(spec, timeout)
		local cut = natives.cut and natives.cut()
		local call, err = exchange(spec, timeout)
		if call and cut then
			call, err = without_answer(spec, timeout, cut, call)
		end
		if not call then
			return nil, err
		end
		local r = setmetatable({}, Response)
		local repeated
		r.status, r.headers, r.url, repeated = core.answer(call)
		r.ok = r.status >= 200 and r.status < 300
		if spec.stream then
			r.call = call
		else
			r.body, r.repeated = core.take(call), repeated or cut ~= nil
		end
		return r
	end

	-- ---- the response ----

	function Response:json()
		if not self.body then
			error("response:json: this response is a stream", 2)
		end
		return json.decode(self.body)
	end

	local function stream_of(self, what)
		if not self.call then
			error(("%s: only of a response that was asked for with stream = true"):format(what), 3)
		end
		return self.call
	end

	local function read(call)
		while true do
			local part = core.take(call)
			if part ~= "" then
				return part
			end
			local _, ended = core.state(call)
			if ended then
				return core.failure(call)
			end
			core.wait(call)
		end
	end

	-- The next part of the body; nil at the end; nil and an error if the connection breaks before the end.
	function Response:read()
		local call = stream_of(self, "response:read")
		local rest = self.rest
		if rest and rest ~= "" then
			self.rest = nil
			return rest
		end
		return read(call)
	end

	local LINE_MAX <const> = 1024 * 1024

	-- for line in response:lines() do ... end; raises if the connection breaks before the end. A line longer than 1 MB comes in pieces.
	function Response:lines()
		local call = stream_of(self, "response:lines")
		return function()
			local have, from = self.rest or "", 1
			while have do
				local at = have:find("\n", from, true)
				if at or #have > LINE_MAX then
					at = at or #have + 1
					self.rest = have:sub(at + 1)
					return (have:sub(1, at - 1):gsub("\r$", ""))
				end
				from = #have + 1
				local more, err = read(call)
				if err then
					error(err, 0)
				elseif not more then
					self.rest = nil
					return have ~= "" and have or nil
				end
				have = have .. more
			end
		end
	end

	function Response:close()
		if self.call then
			core.cancel(self.call)
		end
	end

	Response.__close = Response.close

	-- ---- repeating a request ----

	local repeatable = { GET = true, HEAD = true, PUT = true, DELETE = true, OPTIONS = true }
	local overloaded = { [429] = true, [502] = true, [503] = true, [504] = true }

	-- Whether the request may be sent again, without the danger that the server acts twice. With 429 the server says that it did
	-- nothing.
	local function worth_it(spec, given, r, err)
		if spec.source then
			return false
		elseif r then
			return overloaded[r.status] and (r.status == 429 or given.idempotent or repeatable[spec.method])
		end
		return (err.unsent or given.idempotent or repeatable[spec.method]) and err.code ~= "invalid" and err.code ~= "full" and err.code ~= "denied"
	end

	local function pause_before(tries, given, r)
		local asked = r and tonumber(r.headers["retry-after"])
		local pause = math.min(BACKOFF_MAX, (given.backoff or BACKOFF) * 2 ^ (tries - 1))
		return math.max(pause * (0.5 + math.random() / 2), asked or 0)
	end

	local function perform(given, spec)
		local deadline = natives.time.monotonic() + (given.timeout or TIMEOUT)
		local tries, sent = 0, false
		while true do
			local left = deadline - natives.time.monotonic()
			local r, err = attempt(spec, math.max(0.001, left))
			tries = tries + 1
			if r and r.body and sent then
				r.repeated = true
			end
			sent = sent or (err and not err.unsent) or (r and r.status ~= 429)
			if err then
				err.unsent = not sent -- the server may have acted on an earlier try
			end
			if (r and not overloaded[r.status]) or tries > (given.retries or 0) or not worth_it(spec, given, r, err) then
				return r, err
			end
			local pause = pause_before(tries, given, r)
			if natives.time.monotonic() + pause >= deadline then
				return r, err
			end
			if r then
				r:close()
			end
			natives.sleep(pause)
		end
	end

	local http = {}

	function http.request(given)
		if type(given) ~= "table" then
			error(("http.request: expected a table, as in { url = ... }, found a %s"):format(type(given)), 2)
		end
		local good, spec = pcall(spec_of, given)
		if not good then
			error(spec, 2)
		end
		return perform(given, spec)
	end

	for _, method in ipairs { "get", "head", "post", "put", "patch", "delete" } do
		http[method] = function(url, options, extra)
			if (options ~= nil and type(options) ~= "table") or extra ~= nil then
				error(('http.%s: expected http.%s("url", { options })'):format(method, method), 2)
			elseif options and (options.url ~= nil or options.method ~= nil) then
				error(("http.%s: url and method are not options here, but of http.request"):format(method), 2)
			end
			local given = {}
			for key, value in pairs(options or {}) do
				given[key] = value
			end
			given.url, given.method = url, method
			local good, spec = pcall(spec_of, given)
			if not good then
				error(spec, 2)
			end
			return perform(given, spec)
		end
	end

	return http
end
