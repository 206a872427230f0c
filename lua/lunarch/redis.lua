-- lunarch.redis: commands to a Redis server through redis-cli(1), and writes that the server refuses to a former leader.
-- Commands go through standard input and passwords through the environment, so that a list of processes shows neither.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TIMEOUT <const>, PORT <const>, SENTINEL_PORT <const> = 5, "6379", "26379"
local of_lock = { timeout = "seconds", user = "text", password = "text", ca = "text", cert = "text", key = "text", sentinel_password = "text" }
local of_server = { timeout = "seconds", user = "text", password = "text", ca = "text", cert = "text", key = "text",
	sentinel_password = "text", fence = "text" }

-- The fence is a key that holds the largest token that has written, or the lock's own counter. Tokens are compared as texts, since a
-- double cannot hold them exactly. The user's Redis script is called with its own keys and arguments only, and keeps its line numbers.
local largest = "local s = redis.call('GET', KEYS[1]) or '0' local t = ARGV[1] if #s > #t or (#s == #t and s > t) then "
	.. "return redis.error_reply('FENCED there is a newer leader') end redis.call('SET', KEYS[1], t) "
local of_the_lock = "if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return redis.error_reply('FENCED there is a newer leader') end "
local shift = "table.remove(KEYS, 1) table.remove(ARGV, 1) "

local function place_of(text, port_otherwise)
	local host, port = text:match "^%[([%x:.]+)%]:?(%d*)$"
	if not host then
		host, port = text:match "^([^:]*):?(%d*)$"
	end
	return host and { host = host ~= "" and host or "127.0.0.1", port = port ~= "" and port or port_otherwise }
end

local of_url = { ca = true, cert = true, key = true, server_name = true, db = true, sentinel_username = true }

-- redis[s]://[USER[:PASSWORD]@]HOST[:PORT][,...][/PATH][?...], or, where the hosts are Sentinels,
-- redis[s]+sentinel://[USER[:PASSWORD]@]HOST[:PORT][,...]/MASTER[/DB][?...]#KEY
local function parse(url)
	local scheme, kind, rest = url:match "^(rediss?)([+%l]*)://(.*)$"
	if not scheme or (kind ~= "" and kind ~= "+sentinel") then
		return nil
	end
	local fragment = kind ~= "" and rest:match "#(.*)$" or nil
	local authority, path, query = rest:gsub(kind ~= "" and "#.*" or "^$", ""):match "^([^/?]*)/?([^?]*)%??(.*)"
	local login, hosts = authority:match "^(.*)@([^@]*)$"
	local user, password = (login or ""):match "^([^:]*):?(.*)$"
	local server = { tls = scheme == "rediss", places = {}, path = given.plain(path), user = user ~= "" and given.plain(user) or nil,
		password = password ~= "" and given.plain(password) or nil, key_of_lock = fragment and given.plain(fragment) }
	if kind ~= "" then
		server.sentinels, server.master, server.path = {}, server.path:match "^([^/]*)/?(.*)$"
	end
	for name, value in query:gmatch "([%w_]+)=([^&]*)" do
		if of_url[name] then
			server[name] = given.plain(value)
		end
	end
	local places = server.sentinels or server.places
	for text in (hosts or authority):gmatch "[^,]+" do
		places[#places + 1] = place_of(text, server.sentinels and SENTINEL_PORT or PORT)
	end
	return #places > 0 and server or nil
end

-- Quotes an argument for redis-cli, which reads commands from lines.
local function quoted(value)
	return '"' .. tostring(value):gsub('[%c"\\\127-\255]', function(c) return ("\\x%02x"):format(c:byte()) end) .. '"'
end

local function line_of(where, ...)
	local words = table.pack(...)
	for i = 1, words.n do
		local kind = type(words[i])
		if kind ~= "string" and kind ~= "number" then
			error(("%s: argument %d: expected a text or a number, found a %s"):format(where, i, kind), 3)
		end
		words[i] = quoted(words[i])
	end
	return table.concat(words, " ") .. "\n"
end

return function(natives)
	local Store = { __name = "lunarch.Store" }
	Store.__index = use "unknown"("store", Store)

	local function command_of(self, place)
		local command = { "redis-cli", "--json", "-h", place.host, "-p", place.port, "-n", self.db, timeout = self.timeout,
			env = { REDISCLI_AUTH = self.password } }
		if self.user then
			table.move({ "--user", self.user, "--no-auth-warning" }, 1, 3, #command + 1, command)
		end
		command[#command + 1] = self.tls and "--tls" or nil
		for name, word in pairs(self.tls and { ca = "--cacert", cert = "--cert", key = "--key", server_name = "--sni" } or {}) do
			table.move({ word, self[name] }, 1, self[name] and 2 or 0, #command + 1, command)
		end
		return command
	end

	local function failed(place, code, text)
		return natives.fail(code, ("redis: %s:%s: %s"):format(place.host, place.port, text))
	end

	local codes = { FENCED = "fenced", NOAUTH = "denied", WRONGPASS = "denied", NOPERM = "denied", READONLY = "readonly", LOADING = "readonly",
		OOM = "full" }

	-- Asks one server. The error's code is "unsent" if nothing can have reached it, and "readonly" if it is a replica, which has done nothing.
	local function ask(self, place, line)
		local command = command_of(self, place)
		command.stdin = line
		local r, err = lunarch.exec(command)
		if not r then
			return failed(place, err.code, err.message)
		elseif (r.stdout .. r.stderr):find "Could not connect" then
			return failed(place, "unsent", (r.stderr .. r.stdout):match "Could not connect[^\n]*")
		elseif r.truncated then
			return failed(place, "full", "the answer is too long")
		end
		local answer = r.stdout:gsub("%s+$", ""):match "[^\n]*$"
		local problem = answer:match "^error:(.*)$"
		if problem then
			problem = json.decode(problem) or problem
			return failed(place, codes[problem:match "^%u+"] or "failed", problem)
		elseif answer == "" then
			return failed(place, "failed", "no answer: " .. r.stderr:gsub("%s+$", ""))
		end
		local value, why = lunarch.json.decode(answer)
		if why then
			return failed(place, "invalid", why.message)
		end
		return value
	end

	-- The server that more than half of the Sentinels name.
	local function primary_of(self)
		local login = { db = "0", timeout = self.timeout, tls = self.tls, ca = self.ca, cert = self.cert, key = self.key,
			server_name = self.server_name, user = self.sentinel_username, password = self.sentinel_password }
		local counts, said = {}, {}
		for _, place in ipairs(self.sentinels) do
			local r, err = ask(login, place, line_of("", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master))
			local at = type(r) == "table" and r[2] and r[1] .. ":" .. r[2]
			said[#said + 1] = err and err.message or ("%s:%s names %s"):format(place.host, place.port, at or "nobody")
			if at then
				counts[at] = (counts[at] or 0) + 1
				if counts[at] * 2 > #self.sentinels then
					return { host = r[1], port = r[2] }
				end
			end
		end
		return natives.fail("unreachable", "no majority of the Sentinels names a primary: " .. table.concat(said, "; "))
	end

	-- Asks the servers in order, until one can be reached and is no replica.
	local function send(self, line)
		local value, err
		if self.sentinels then
			local primary, why = primary_of(self)
			if not primary then
				return primary, why
			end
			self.places = { primary }
		end
		for _, place in ipairs(self.places) do
			value, err = ask(self, place, line)
			if not err or (err.code ~= "unsent" and err.code ~= "readonly") then
				return value, err
			end
		end
		return natives.fail("unreachable", err.message)
	end

	function Store:call(...)
		return send(self, line_of("store:call", ...))
	end

	local function fence(self, token)
		return self.fence, token, self.own and of_the_lock or largest
	end

	function Store:fenced(term, ...)
		local key, token, check = fence(self, given.token("store:fenced", term))
		return send(self, line_of("store:fenced", "EVAL", check .. "return redis.call(unpack(ARGV, 2))", 1, key, token, ...))
	end

	function Store:fenced_eval(term, script, keys, ...)
		given.text("store:fenced_eval: script", script)
		if type(keys) ~= "table" then
			error("store:fenced_eval: expected a list of the keys after the script", 2)
		end
		local key, token, check = fence(self, given.token("store:fenced_eval", term))
		local words = table.pack("EVAL", check .. shift .. script, 1 + #keys, key)
		table.move(keys, 1, #keys, words.n + 1, words)
		words[#words + 1] = token
		local arguments = table.pack(...)
		table.move(arguments, 1, arguments.n, #words + 1, words)
		return send(self, line_of("store:fenced_eval", table.unpack(words)))
	end

	local function new(server, options)
		for name in pairs(of_lock) do
			server[name] = options[name] or server[name]
		end
		server.timeout = server.timeout or TIMEOUT
		return setmetatable(server, Store)
	end

	local redis = {}

	function redis.connect(url, options)
		given.text("redis.connect: url", url)
		options = given.options("redis.connect", options, of_server)
		local server = parse(url)
		if not server or not server.path:find "^%d*$" then
			error("redis.connect: expected a URL as redis://HOST:PORT/DB", 2)
		end
		server.db, server.fence = server.path ~= "" and server.path or server.db or "0", options.fence or "lunarch:fence"
		return new(server, options)
	end

	function redis.beside(term, options)
		given.token("redis.beside", term)
		options = given.options("redis.beside", options, of_lock)
		local server = parse(term.lock)
		if not server then
			error("redis.beside: the term's lock is in no Redis server: " .. term.lock, 2)
		end
		local db, key = server.path:match "^(%d+)/(.+)$"
		if server.sentinels then
			db, key = server.path ~= "" and server.path or nil, server.key_of_lock
		end
		key = key or server.path
		server.db, server.own = db or "0", true
		server.fence = key:find("}", 1, true) and key .. ":lunarch" or "{" .. key .. "}:lunarch"
		return new(server, options)
	end

	return redis
end
