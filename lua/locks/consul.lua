-- The Consul lock: one key, moved by check-and-set on its ModifyIndex; blocking queries as notices (docs/stores/consul.md). No session
-- of Consul's and none of its locks are used. Read by the driver's process (docs/write-a-lock.md).

local lunarch = require "lunarch"
local hash = require "lunarch.hash"
local http, json, time = lunarch.http, lunarch.json, lunarch.time

local WAIT <const> = 15 -- seconds that Consul holds a blocking query; it adds up to a sixteenth, so as not to answer all at once
local LATE <const> = 5 -- seconds after which no answer to one comes any more
local WATCHES <const> = 60 -- at once: an agent allows a client 200 connections (http_max_conns_per_client), this process's client makes 100
local CALM <const> = 1 -- seconds at most between two answers to one query that tell nothing new

local ports <const> = { consul = 8500, consuls = 8501 }

local function escape(text)
	return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

-- Consul's HTTP server "cleans" paths, so that some keys are out of its reach, and refuses those with control characters.
local function is_reachable(key)
	if key:find "%c" or key:find "^/" or key:find "//" then
		return false
	end
	for part in key:gmatch "[^/]+" do
		if part == "." or part == ".." then
			return false
		end
	end
	return true
end

local function key_error(key)
	return ('the key "%s": Consul\'s HTTP server keeps no key that begins with a slash, has two in a row, a part that is "." or "..", '
		.. "or a control character"):format((key:gsub("%c", "?")))
end

local function url_of(key)
	local parts = {}
	for part, slash in key:gmatch "([^/]*)(/?)" do
		parts[#parts + 1] = escape(part) .. slash
	end
	return "/v1/kv/" .. table.concat(parts)
end

-- ---- the token ----

local function first_line(path)
	local file, why = io.open(path)
	if not file then
		return nil, ("the token's file: %s"):format(why)
	end
	local line = file:read "l"
	file:close()
	return line and line:match "^%s*(.-)%s*$" or ""
end

-- In the order of docs/stores/consul.md. nil: none. A file is read again when Consul refuses what was in it.
local function read_token(store)
	if store.token_file then
		return first_line(store.token_file)
	end
	return store.password or os.getenv "CONSUL_HTTP_TOKEN"
end

local function take_token(store)
	local token, why = read_token(store)
	if why then
		return nil, why
	end
	local newer = token ~= store.token
	store.token = token ~= "" and token or nil
	return newer
end

-- ---- asking ----

-- An answer of HTTP/1.1 does not say what was asked. So where somebody may stand between, who repeats or delays answers, each request has a
-- connection of its own; TLS keeps them out.
local function send(store, at, request, timeout)
	return http.request {
		url = store.addresses[at] .. request.path, method = request.method, query = request.query, body = request.body,
		headers = { ["X-Consul-Token"] = store.token, Connection = not store.tls and "close" or nil },
		tls = store.tls, proxy = "", redirects = 0, timeout = math.max(0.001, timeout),
	}
end

local NO_LEADER <const> = "No cluster leader" -- Consul has done nothing, and will not

local function reason_of(r)
	local text = (r.body or ""):gsub("[%c\x80-\xff]+", " "):gsub("%s+$", ""):sub(1, 300)
	return ("Consul answered %d%s"):format(r.status, text ~= "" and ": " .. text or "")
end

local function is_busy(r)
	return r.status == 429 or r.status == 500 or r.status == 502 or r.status == 503 or r.status == 504
end

-- Was nothing done, and will nothing be?
local function is_undone(r)
	return not r.repeated and (r.status == 429 or (r.status == 500 and r.body:find(NO_LEADER, 1, true) ~= nil))
end

-- Asks the address that answered last. When it does not, the next one is that from now on. Returns the answer or nil and an error, and
-- whether another address should be asked.
local function try(store, request, timeout)
	local at, ends = store.at, time.monotonic() + timeout
	local r, err = send(store, at, request, timeout)
	if r and r.status == 403 and store.token_file and take_token(store) then
		r, err = send(store, at, request, ends - time.monotonic())
	end
	local failed = not r or is_busy(r)
	if failed and store.at == at then
		store.at = at % #store.addresses + 1
	end
	return r, err, failed
end

-- Asks one address after the other, each of those that are left within its share of the time. What may have been done at one is asked at
-- the next, too: it is the same comparison with the same content, so it is done once at most.
-- Returns the answer or nil and an error, and whether something may have been done by a try whose answer this is not.
local function ask(store, request, timeout)
	local ends, count = time.monotonic() + timeout, #store.addresses
	local r, err, failed, doubtful
	for i = count, 1, -1 do
		local left = ends - time.monotonic()
		if i < count and left <= 0 then
			break
		elseif i < count then
			doubtful = doubtful or (r and not is_undone(r)) or (err and not err.unsent)
		end
		r, err, failed = try(store, request, left / i)
		if not failed then
			break
		end
	end
	return r, err, doubtful
end

local function denial(key, what, r)
	return ('%s: the token needs a policy with: key "%s" { policy = "%s" }, and the same for "%s.next"'):format(reason_of(r), key, what, key)
end

-- Why an answer to a request about this key is none of those that its caller knows: "failed" or "refused", and the reason.
local function trouble(key, right, r, err)
	if not r then
		return "failed", err
	elseif r.status == 403 then
		return "refused", denial(key, right, r)
	elseif is_busy(r) then
		return "failed", reason_of(r)
	end
	return "refused", reason_of(r)
end

-- ---- reading ----

local function index_of(number)
	local whole = math.tointeger(number)
	return whole and whole > 0 and ("%d"):format(whole) or nil
end

-- The key's entry in the answer to a GET: { text =, version =, session = }.
local function entry_of(key, r)
	local list = json.decode(r.body)
	local e = type(list) == "table" and list[1]
	if type(e) ~= "table" or e.Key ~= key then
		return nil, "what answered is no Consul, or its answer is about another key"
	end
	local version = index_of(e.ModifyIndex)
	local text = e.Value == json.null and "" or type(e.Value) == "string" and hash.unbase64(e.Value)
	if not version or not text then
		return nil, "an answer of Consul's without a ModifyIndex or a Value"
	end
	return { text = text, version = version, session = type(e.Session) == "string" and e.Session ~= "" and e.Session or nil }
end

-- An absent key is said with an index; any other server answers 404, too.
local function is_absent(r)
	return r.status == 404 and r.headers["x-consul-index"] ~= nil
end

local function get(store, key, query, timeout, by)
	query.dc = store.dc
	return (by or ask)(store, { method = "GET", path = url_of(key), query = query }, timeout)
end

local function read(store, key, op)
	if not is_reachable(key) then
		return "refused", key_error(key)
	end
	local r, err = get(store, key, { consistent = "" }, op.timeout)
	if r and is_absent(r) then
		return "absent"
	elseif not r or r.status ~= 200 then
		return trouble(key, "write", r, err)
	end
	local e, why = entry_of(key, r)
	if not e then
		return "failed", why
	elseif e.session then
		return "foreign", ("the key is locked by Consul's session %s: it is another program's"):format(e.session)
	end
	return "ok", e.text, e.version
end

-- ---- writing ----

-- What the transaction's answer says: the new ModifyIndex.
local function new_version(key, r)
	local answer = json.decode(r.body)
	local first = type(answer) == "table" and type(answer.Results) == "table" and answer.Results[1]
	local kv = type(first) == "table" and first.KV
	return type(kv) == "table" and kv.Key == key and index_of(kv.ModifyIndex) or nil
end

-- 409: the transaction was rolled back, and this is why.
local function rolled_back(key, r)
	if r.body:find("index is stale", 1, true) then
		return "conflict"
	elseif r.body:find("Permission denied", 1, true) then
		return "refused", denial(key, "write", r)
	end
	return "failed", reason_of(r)
end

local TWICE <const> = "it was sent more than once, and of one try no answer came"

local function write_outcome(key, r, err)
	if not r then
		return err.unsent and "failed" or "unknown", err
	elseif r.status == 200 then
		local version = new_version(key, r)
		return version and "ok" or "unknown", version or "an answer of Consul's to a transaction that does not say the new ModifyIndex"
	elseif r.status == 409 then
		return rolled_back(key, r)
	elseif r.status == 403 then
		return "refused", denial(key, "write", r)
	elseif r.status == 413 then
		return "invalid", reason_of(r)
	elseif is_undone(r) then
		return "failed", reason_of(r)
	elseif is_busy(r) then
		return "unknown", reason_of(r)
	end
	return "refused", reason_of(r)
end

-- A transaction of one operation, and not a PUT with ?cas=: that answers "true", and not which index the key has now. Asked for afterwards,
-- it could be the index of another's write.
local function write(store, key, text, op)
	if not is_reachable(key) then
		return "refused", key_error(key)
	end
	local index = op.expected == "" and 0 or op.expected:find "^[1-9]%d*$" and math.tointeger(tonumber(op.expected))
	if not index then
		return "conflict" -- no key of Consul's has had this version
	end
	local operation = { KV = { Verb = "cas", Key = key, Value = hash.base64(text), Index = index } }
	local r, err, doubtful = ask(store, { method = "PUT", path = "/v1/txn", query = { dc = store.dc },
		body = json.encode(json.array { operation }) }, op.timeout)
	local outcome, what = write_outcome(key, r, err)
	if outcome ~= "ok" and (doubtful or (r and r.repeated)) then
		return "unknown", what or TWICE
	end
	return outcome, what
end

local function remove(store, key, op)
	if op.expected == "" then
		local outcome, what = read(store, key, op)
		return (outcome == "ok" or outcome == "foreign") and "conflict" or outcome, what
	end
	local r, err, doubtful = ask(store, { method = "DELETE", path = url_of(key), query = { cas = op.expected, dc = store.dc } }, op.timeout)
	if r and r.status == 200 and r.body:find "^true" then
		return "ok"
	elseif not r or r.status ~= 200 then
		local outcome, what = write_outcome(key, r, err)
		return doubtful and "unknown" or outcome, what
	end
	return (doubtful or r.repeated) and "unknown" or "conflict", TWICE
end

-- ---- notices ----

-- One look at the key, which Consul answers when its index is larger than this one, or when the time is over. Returns what is there, in a
-- form that another one differs from, and the index to ask with next.
local function look(store, key, index)
	local query = index and { index = index, wait = WAIT .. "s" } or { consistent = "" }
	local r, err = get(store, key, query, index and WAIT * 17 / 16 + LATE or LATE, index and try)
	local absent = r and is_absent(r)
	if not r or (r.status ~= 200 and not absent) then
		return nil, nil, select(2, trouble(key, "write", r, err))
	end
	local e, why
	if not absent then
		e, why = entry_of(key, r)
	end
	if why then
		return nil, nil, why
	end
	return e and e.version or "absent", math.tointeger(tonumber(r.headers["x-consul-index"] or "")) or 1
end

-- The rules are those of Consul's documentation: an index is larger than 0, one that goes back begins anew, and what is answered
-- again and again with nothing new is asked more slowly.
local function follow(store, key, changed)
	local seen, index, pause, failed
	while true do
		local asked = time.monotonic()
		local now, newest, why = look(store, key, index)
		if not now and (failed or not seen) then
			return nil, why
		elseif not now then
			failed, index = true, nil -- once at another address, or the same anew: without an index, so that nothing is missed
		else
			if now ~= seen then
				changed()
				pause = 0.05
			elseif time.monotonic() - asked < CALM then
				-- Of an absent key Consul answers when any key changes; what stands between may answer from a cache, or with no index.
				lunarch.sleep(pause)
				pause = math.min(CALM, pause * 2)
			end
			seen, failed = now, false
			index = newest > 0 and (not index or newest >= index) and newest or nil
		end
	end
end

local function watch(store, key, changed)
	if not is_reachable(key) then
		return nil, key_error(key)
	elseif store.watching >= WATCHES then
		return nil, ("this process follows %d keys already, which is as many as an agent has connections for"):format(WATCHES)
	end
	local _ <close> = setmetatable({}, { __close = function() store.watching = store.watching - 1 end })
	store.watching = store.watching + 1
	return follow(store, key, changed)
end

-- ---- listing, and what doctor asks ----

local NAMES <const> = 1000

local function list(store, prefix, op)
	if not is_reachable(prefix) then
		return "failed", key_error(prefix)
	end
	local r, err = get(store, prefix, { keys = "", consistent = "" }, op.timeout)
	if r and is_absent(r) then
		return "ok", {}, false
	elseif r and r.status == 403 then
		return "failed", ('%s: the token needs a policy with: key_prefix "%s" { policy = "list" }'):format(reason_of(r), prefix)
	elseif not r or r.status ~= 200 then
		return "failed", err or reason_of(r)
	end
	local keys = json.decode(r.body)
	if type(keys) ~= "table" then
		return "failed", "what answered is no Consul"
	end
	local more = #keys > NAMES
	return "ok", table.move(keys, 1, math.min(#keys, NAMES), 1, {}), more
end

local function seconds(text)
	local number, unit = tostring(text):match "^(%d+%.?%d*)(%a+)$"
	local factor = ({ ms = 0.001, s = 1, m = 60 })[unit]
	return factor and tonumber(number) * factor
end

-- A cluster without a leader notices that after one to two heartbeat timeouts, elects one within as long, and makes it ready. An agent that is
-- no server does not know the servers' times: then they are Consul's presets.
local function pause_of(debug)
	local heartbeat = debug.ServerMode == true and seconds(debug.ConsulRaftHeartbeatTimeout) or 5
	return 3 * heartbeat
end

local function about(store, op)
	local r, err = ask(store, { method = "GET", path = "/v1/agent/self" }, op.timeout)
	if not r then
		return nil, err
	elseif r.status == 403 then
		return { server = "Consul (its version is said to a token with: agent_prefix \"\" { policy = \"read\" })", pause = pause_of {} }
	end
	local self = r.status == 200 and json.decode(r.body)
	local config = type(self) == "table" and self.Config
	if type(config) ~= "table" then
		return nil, reason_of(r)
	end
	local debug = type(self.DebugConfig) == "table" and self.DebugConfig or {}
	local found = { server = "Consul " .. tostring(config.Version), pause = pause_of(debug) }
	if debug.DevMode == true then
		found.warning = "the agent runs with -dev: it keeps everything in memory, so that a restart loses the record"
		found.unfit = true
	end
	return found
end

-- ---- opening ----

local function check(place)
	local o, plain = place.options, place.scheme == "consul"
	for _, name in ipairs { "ca", "cert", "key", "server_name" } do
		if plain and o[name] then
			error(("%s: the option '%s' is about TLS: write consuls:// for it"):format(place.lock, name), 0)
		end
	end
	if (o.cert == nil) ~= (o.key == nil) then
		error(("%s: the options 'cert' and 'key' belong together: a client's certificate and its key"):format(place.lock), 0)
	elseif place.user and place.user ~= "" then
		error(("%s: Consul has no users: a token stands where a password does, as in %s://:TOKEN@HOST/KEY"):format(place.lock, place.scheme), 0)
	end
end

local function open(place)
	check(place)
	local o, tls = place.options, place.scheme == "consuls"
	local store = { at = 1, watching = 0, dc = o.dc, addresses = {}, password = place.password ~= "" and place.password or nil }
	store.token_file = o.token_file or (not store.password and not os.getenv "CONSUL_HTTP_TOKEN" and os.getenv "CONSUL_HTTP_TOKEN_FILE") or nil
	store.tls = tls and { ca = o.ca, cert = o.cert, key = o.key, server_name = o.server_name } or nil
	local hosts = place.hosts and #place.hosts > 0 and place.hosts or { { name = "127.0.0.1" } }
	for i, host in ipairs(hosts) do
		local name = host.name == "" and "127.0.0.1" or host.name
		local port = host.port and host.port ~= 0 and host.port or ports[place.scheme]
		store.addresses[i] = ("%s://%s:%d"):format(tls and "https" or "http", name:find(":", 1, true) and "[" .. name .. "]" or name, port)
	end
	local _, why = take_token(store)
	if why then
		return nil, why
	end
	return store
end

return {
	scheme = { "consul", "consuls" },
	summary = "consul://HOST:PORT[,HOST:PORT...]/KEY",
	options = { dc = "text", token_file = "text", ca = "text", cert = "text", key = "text", server_name = "text" },
	open = open, read = read, write = write, watch = watch, remove = remove, list = list, about = about,
}
