-- The NATS lock: one key of a JetStream key-value bucket, published on the condition that the key's last message is the one that was read
-- (Nats-Expected-Last-Subject-Sequence); its version is that message's sequence (docs/stores/nats.md). Notices: what a consumer of the bucket
-- is sent. Read by the driver's process (docs/write-a-lock.md).
--
-- A process has two connections, one for operations and one for notices. Each request has an inbox of its own, so that no answer can be taken for
-- another's.

local use = ...
local lunarch = require "lunarch"
local tcp = require "lunarch.tcp"
local hash = require "lunarch.hash"
local answers = use "locks/answers"
local signed = use "locks/nats_login"
local json, time = lunarch.json, lunarch.time

local PORT <const> = 4222
local LIST <const> = 1000
local KEY_MAX <const> = 1000 -- bytes of a key in a subject
local ATTEMPT <const> = 2 -- seconds for a host at most: other operations wait meanwhile
local BEAT <const> = 2 -- seconds between what the consumer says where nothing changes
local LATE <const> = 5 -- seconds without it: it is gone, with its server
local SETTLE <const> = 10 -- seconds at most for the notices to begin
local ELECTION <const> = 9 -- seconds that a bucket's replicas take at most to elect another leader

-- ---- the place ----

local function a_bucket(place)
	local bucket = place.path
	if not bucket or not bucket:find "^[%w_-]+$" then
		error(('%s: expected nats://HOST[:PORT][,HOST...]/BUCKET#KEY, and a bucket of letters, digits, "_" and "-"'):format(place.lock), 0)
	end
	return bucket
end

local function tls_of(options)
	local wanted = options.tls or options.tls_first or (options.tls == nil and (options.ca or options.cert or options.key))
	return wanted and true or false, { ca = options.ca, cert = options.cert, key = options.key, server_name = options.server_name }
end

-- Who it is: a user and a password, a token, or a file with a key. Raises if two of them are given.
local function login_of(place)
	local options, user = place.options, place.user ~= "" and place.user or nil
	local kind = options.creds and "creds" or options.nkey and "nkey" or nil
	if kind and (user or place.password or options.creds and options.nkey) then
		error(("%s: expected one of user and password, a token, creds and nkey, found two (a password may come from LUNARCH_LOCK_PASSWORD)"):format(place.lock), 0)
	elseif user and not place.password then
		error(place.lock .. ": expected a password with the user (or in password_file, or LUNARCH_LOCK_PASSWORD); a token is written as nats://:TOKEN@HOST", 0)
	end
	return { kind = kind, file = options[kind], user = user, password = user and place.password, token = not user and place.password or nil }
end

-- A password without a user is a token. (For NATS' own clients a user without a password is one; but a user is shown in logs.)
local function open(place)
	local bucket = a_bucket(place)
	local hosts = {}
	for i, host in ipairs(place.hosts) do
		hosts[i] = { name = host.name, port = host.port ~= 0 and host.port or PORT }
	end
	if #hosts == 0 then
		error(place.lock .. ": expected a server, as in nats://HOST/BUCKET#KEY", 0)
	end
	local secret, tls = tls_of(place.options)
	return { hosts = hosts, at = 1, bucket = bucket, stream = "KV_" .. bucket, login = login_of(place), secret = secret, tls = tls,
		tls_first = place.options.tls_first, turn = lunarch.tasks.semaphore(1), listening = lunarch.tasks.semaphore(1), count = 0 }
end

-- ---- keys ----

-- As NATS' key-value buckets allow them: letters, digits, "-", "_", "/", and "." between others. All else is "=" and two digits.
local function encoded(key)
	local text = key:gsub("[^%w_/.-]", function(c) return ("=%02X"):format(c:byte()) end)
	text = text:gsub("^%.", "=2E"):gsub("%.$", "=2E")
	while text:find("..", 1, true) do
		text = text:gsub("%.%.", ".=2E")
	end
	return text
end

local function decoded(text)
	return (text:gsub("=(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function subject_of(store, key)
	local text = encoded(key)
	if #text > KEY_MAX then
		return nil, ("expected a key of at most %d bytes, found one of %d (a byte that is no letter, digit, \"-\", \"_\", \"/\" or \".\" takes three)"):format(
			KEY_MAX, #text)
	end
	return ("$KV.%s.%s"):format(store.bucket, text)
end

-- ---- a connection ----

local seed -- of this process; no other one's inboxes begin so

local function new_inbox(store)
	if not seed then
		local source <close> = assert(io.open("/dev/urandom", "rb"))
		seed = hash.hex(source:read(16))
	end
	store.count = store.count + 1
	return ("_INBOX.%s.%d."):format(seed, store.count)
end

local function refusal(text)
	return { message = text, refused = true }
end

-- A message's headers: the status line, and NAME: VALUE.
local function headers_of(text)
	local headers = { status = text:match "^NATS/1%.0 (%d+)" }
	for name, value in text:gmatch "\r\n([^:\r\n]+):%s*([^\r\n]*)" do
		headers[name:lower()] = value
	end
	return headers
end

-- Who waits on this connection is told that no answer comes any more.
local function lose(store, link, why)
	if link.over then
		return
	end
	link.over = why
	link.conn:close()
	if store.link == link then
		store.link = nil
	end
	for _, queue in pairs(link.waiting) do
		queue:put { lost = why }
	end
end

local function on_message(link, verb, line)
	local words = {}
	for word in line:gmatch "%S+" do
		words[#words + 1] = word
	end
	local total = tonumber(words[#words]) or error("a message without its length", 0)
	local head = verb == "HMSG" and (tonumber(words[#words - 1]) or error("a message without its headers' length", 0)) or 0
	local bytes, err = link.conn:bytes(total + 2)
	if not bytes then
		return err
	end
	local message = { subject = words[1], reply = #words - (verb == "HMSG" and 4 or 3) > 0 and words[3] or nil,
		headers = head > 0 and headers_of(bytes:sub(1, head)) or {}, body = bytes:sub(head + 1, total) }
	local queue = link.waiting[message.subject]
	if queue then
		queue:put(message)
	elseif words[2] == "2" and link.deliver then
		return link.deliver(message)
	end
end

-- The server says which subject it was, and goes on with the connection.
local function on_error(link, text)
	local subject = text:match '[Pp]ermissions [Vv]iolation for [Pp]ublish to "([^"]+)"'
	if not subject then
		return refusal(("%s: %s"):format(link.conn.name, text))
	end
	for _, queue in pairs(link.waiting) do
		if queue.subject == subject then
			queue:put { denied = ("%s: %s; docs/stores/nats.md lists the rights"):format(link.conn.name, text) }
		end
	end
end

local function one_line(link)
	local line, err = link.conn:line(link.patience)
	if not line then
		return err
	end
	local verb, rest = line:match "^(%S+)%s*(.*)$"
	verb = (verb or ""):upper()
	if verb == "MSG" or verb == "HMSG" then
		return on_message(link, verb, rest)
	elseif verb == "PING" then
		link.conn:write "PONG\r\n"
	elseif verb == "-ERR" then
		return on_error(link, (rest:gsub("%c", " ")))
	elseif verb == "INFO" then -- such as of a server that is about to stop
		local info = json.decode(rest)
		return type(info) == "table" and info.ldm and { message = link.conn.name .. ": the server is about to stop" } or nil
	end
end

local function listen(store, link)
	local good, err
	repeat
		good, err = pcall(one_line, link)
	until not good or err
	lose(store, link, type(err) == "table" and err or { message = ("%s: %s"):format(link.conn.name, tostring(err)) })
end

local function info_of(conn, timeout)
	local line, err = conn:line(timeout)
	local info = line and line:match "^INFO%s+({.*})%s*$"
	info = info and json.decode(info)
	if line and (type(info) ~= "table" or not info.headers) then
		return nil, refusal(conn.name .. ": expected a NATS server of version 2.2 or newer, found another one")
	end
	return info, err
end

-- What CONNECT says of who this is; nil and an error's text.
local function credentials_of(store, conn, info)
	local login = store.login
	if not login.kind then
		return login
	elseif type(info.nonce) ~= "string" then
		return nil, ("%s: expected a server that asks for a signature, as %s= needs it, found one without nkeys or JWTs"):format(conn.name, login.kind)
	end
	return signed(login.kind, login.file, info.nonce)
end

local function greet(store, conn, ends)
	local function left()
		return math.max(0.001, ends - time.monotonic())
	end
	local info, err = info_of(conn, left())
	if not info then
		if store.secret and not store.tls_first then
			err.message = err.message .. " (a server with handshake_first: true needs tls_first=yes)"
		end
		return nil, err
	elseif not info.jetstream then
		return nil, refusal(conn.name .. ": the server has no JetStream (jetstream { } in its configuration)")
	elseif not store.tls_first and (store.secret or info.tls_required) then
		if not info.tls_required and not info.tls_available then
			return nil, refusal(conn.name .. ": expected TLS, and the server offers none")
		end
		local good
		good, err = conn:starttls(store.tls)
		if not good then
			return nil, err
		end
	end
	local login
	login, err = credentials_of(store, conn, info)
	if not login then
		return nil, refusal(err)
	end
	conn:write(("CONNECT %s\r\nPING\r\n"):format(json.encode { verbose = false, pedantic = false, lang = "lua", version = "1", name = "lunarch", protocol = 1,
		headers = true, no_responders = true, user = login.user, pass = login.password, auth_token = login.token, jwt = login.jwt, nkey = login.nkey,
		sig = login.sig }))
	local line
	repeat
		line, err = conn:line(left())
	until not line or line:find "^PONG" or line:find "^%-ERR"
	if not line then
		return nil, err
	elseif line:find "^%-ERR" then
		return nil, refusal(("%s: %s"):format(conn.name, line:gsub("^%-ERR%s*", ""):gsub("%c", " ")))
	end
	return info
end

local function connect(store, host, timeout)
	local ends = time.monotonic() + timeout
	local conn, err = tcp.connect { host = host.name, port = host.port, timeout = timeout, tls = store.tls_first and store.tls or nil }
	if not conn then
		return nil, err
	end
	local made = {}
	local _ <close> = setmetatable({}, { __close = function() -- the task may be cancelled while it connects
		if not made.link then
			conn:close()
		end
	end })
	local info
	info, err = greet(store, conn, ends)
	if not info then
		return nil, err
	end
	local link = { conn = conn, info = info, inbox = new_inbox(store), asked = 0, waiting = {} }
	conn:write(("SUB %s* 1\r\n"):format(link.inbox))
	made.link = link
	return link
end

-- The first host that answers, from the one on that was last of use.
local function dial(store, ends)
	local why
	for i = 1, #store.hosts do
		local at = (store.at + i - 2) % #store.hosts + 1
		local left = ends - time.monotonic()
		local link, err = connect(store, store.hosts[at], math.max(0.01, math.min(ATTEMPT, left / (#store.hosts - i + 1))))
		if link then
			store.at = at
			return link
		end
		why = why and why.refused and why or err
	end
	return nil, why
end

-- ---- requests ----

-- Returns the answer: { headers, body }. Or nil, an error's text, whether surely nothing was done, and whether it is refused.
local function ask(store, link, subject, body, ends, headers)
	local head = headers and ("NATS/1.0\r\n%s\r\n"):format(headers) or ""
	link.asked = link.asked + 1
	local inbox, queue, answered = link.inbox .. link.asked, lunarch.tasks.queue(), false
	queue.subject = subject
	link.waiting[inbox] = queue
	-- A server without an answer may be cut off from the others: the next one is asked from now on.
	local _ <close> = setmetatable({}, { __close = function()
		link.waiting[inbox] = nil
		if not answered and store.link == link then
			store.link, store.at = nil, store.at % #store.hosts + 1
		end
		if store.link ~= link and not link.deliver and not next(link.waiting) then
			link.conn:close()
		end
	end })
	local good, err
	if headers then
		good, err = link.conn:write(("HPUB %s %s %d %d\r\n%s%s\r\n"):format(subject, inbox, #head, #head + #body, head, body))
	else
		good, err = link.conn:write(("PUB %s %s %d\r\n%s\r\n"):format(subject, inbox, #body, body))
	end
	if not good then
		return nil, err.message, true
	end
	local answer = queue:take(math.max(0, ends - time.monotonic()))
	if not answer then
		return nil, link.conn.name .. ": no answer in time", false
	end
	answered = true
	if answer.lost then
		return nil, answer.lost.message, false, answer.lost.refused
	elseif answer.denied then
		return nil, answer.denied, true, true
	elseif answer.headers.status == "503" then
		answered = #store.hosts == 1 -- this server knows of no leader: another may
		return nil, link.conn.name .. ": nobody answers for the bucket: it does not exist, or its replicas have no leader now", true
	end
	return answer
end

-- The answer as a table, and the number and text of its error. nil, an error's text, as ask.
local function ask_api(store, link, subject, request, ends, headers)
	local answer, why, undone, refused = ask(store, link, subject, type(request) == "table" and json.encode(request) or request, ends, headers)
	if not answer then
		return nil, why, undone, refused
	end
	local decoded_answer = json.decode(answer.body)
	if type(decoded_answer) ~= "table" then
		return nil, link.conn.name .. ": expected an answer of JetStream's, found another one", false
	end
	local e = decoded_answer.error
	if type(e) == "table" then
		return decoded_answer, tonumber(e.err_code) or 0, ("%s: bucket %s: %s (%s)"):format(link.conn.name, store.bucket,
			tostring(e.description):gsub("%c", " "):sub(1, 200), tostring(e.err_code))
	end
	return decoded_answer
end

local NOTHING_THERE <const>, NO_STREAM <const> = 10037, 10059
local UNMET <const>, UNMET_NOW <const> = 10071, 10164 -- the latter: another write to the key is under way
local surely_refused <const> = { [10039] = true, [10057] = true, [10059] = true, [10060] = true, [10076] = true }
local surely_undone <const> = { [10008] = true, [10009] = true, [10047] = true, [10023] = true }
local too_large <const> = { [10054] = true, [10097] = true }

-- ---- the bucket ----

-- What makes a bucket unfit to keep a lock, or nil.
local function wrong_with(config)
	local limited = (config.max_bytes or -1) > 0 or (config.max_msgs or -1) > 0
	if type(config.mirror) == "table" then
		return "it is a mirror, which takes no writes and may be behind: name the bucket that is mirrored"
	elseif (config.max_age or 0) > 0 then
		return "it has a TTL, after which a record is gone, and the tokens begin anew: make a bucket without one (nats kv add NAME --history=1)"
	elseif limited and config.discard ~= "new" then
		return "it throws old records away when it is full: expected discard: new"
	elseif config.persist_mode == "async" then
		return "it acknowledges writes before they are in a file (persist_mode: async)"
	elseif type(config.sources) == "table" and #config.sources > 0 then
		return "other buckets write to it (sources)"
	end
end

-- Asks once on each connection.
local function check_bucket(store, link, ends)
	if link.about then
		return link.about
	end
	local answer, code, text, refused = ask_api(store, link, "$JS.API.STREAM.INFO." .. store.stream, "", ends)
	if not answer then
		return nil, { message = code, refused = refused }
	elseif code == NO_STREAM then
		return nil, refusal(("%s: there is no bucket %s: make it first (nats kv add %s --history=1 --replicas=3)"):format(link.conn.name, store.bucket, store.bucket))
	elseif code then
		return nil, { message = text, refused = surely_refused[code] }
	end
	local wrong = wrong_with(answer.config)
	if wrong then
		return nil, refusal(("%s: the bucket %s is not fit for a lock: %s"):format(link.conn.name, store.bucket, wrong))
	end
	link.about = answer
	return answer
end

-- The connection for operations, made if need be, by one task at a time. nil and an error.
local function link_of(store, ends)
	local permit <close> = store.turn:acquire(math.max(0, ends - time.monotonic()))
	if not permit then
		return nil, { message = "no connection in time" }
	end
	local link = store.link
	if not link then
		local err
		link, err = dial(store, ends)
		if not link then
			return nil, err
		end
		store.link = link
		lunarch.spawn(listen, store, link)
	end
	local good, err = check_bucket(store, link, ends)
	return good and link, err
end

local function outcome_of(err)
	return err.refused and "refused" or "failed", err.message
end

-- ---- what the driver calls ----

local function is_marker(message)
	local headers = message.hdrs and headers_of(hash.unbase64(message.hdrs) or "") or {}
	return headers["kv-operation"] == "DEL" or headers["kv-operation"] == "PURGE"
end

local function fetch(store, link, subject, ends)
	local answer, code, text, refused = ask_api(store, link, "$JS.API.STREAM.MSG.GET." .. store.stream, { last_by_subj = subject }, ends)
	if not answer then
		return refused and "refused" or "failed", code
	elseif code == NOTHING_THERE then
		return "absent"
	elseif code then
		return surely_refused[code] and "refused" or "failed", text
	end
	local m = answer.message
	local sequence = type(m) == "table" and m.subject == subject and math.tointeger(m.seq)
	local content = sequence and hash.unbase64(m.data or "")
	if not content then
		return "failed", link.conn.name .. ": expected the key's last message, found another answer"
	elseif is_marker(m) then
		return "absent", ("%d"):format(sequence)
	end
	return "ok", content, ("%d"):format(sequence)
end

local function read(store, key, op)
	op = answers.with_deadline(op)
	local subject, wrong = subject_of(store, key)
	if not subject then
		return "refused", wrong
	end
	local link, err = link_of(store, op.ends)
	if not link then
		return outcome_of(err)
	end
	return fetch(store, link, subject, op.ends)
end

-- Publishes on the condition. Returns an outcome, and the new sequence or an error's text.
local function publish(store, link, subject, text, op, more)
	local expected = op.expected == "" and "0" or op.expected
	if not expected:find "^%d+$" then
		return "conflict" -- no message has had this version
	elseif #text + 200 > (link.info.max_payload or math.huge) then
		return "invalid", ("%s: the server takes %d bytes at most"):format(link.conn.name, link.info.max_payload)
	end
	local headers = ("Nats-Expected-Stream: %s\r\nNats-Expected-Last-Subject-Sequence: %s\r\n%s"):format(store.stream, expected, more or "")
	local answer, code, why, refused = ask_api(store, link, subject, text, op.ends, headers)
	if not answer then
		return refused and why and "refused" or why and "failed" or "unknown", code
	elseif code == UNMET or code == UNMET_NOW then
		return "conflict"
	elseif code then
		return surely_refused[code] and "refused" or too_large[code] and "invalid" or surely_undone[code] and "failed" or "unknown", why
	end
	local sequence = math.tointeger(answer.seq)
	if answer.stream ~= store.stream or not sequence or sequence < 1 then
		return "unknown", link.conn.name .. ": expected the new sequence, found another answer"
	end
	return "ok", ("%d"):format(sequence)
end

local function write(store, key, text, op)
	op = answers.with_deadline(op)
	local subject, wrong = subject_of(store, key)
	if not subject then
		return "invalid", wrong
	end
	local link, err = link_of(store, op.ends)
	if not link then
		return outcome_of(err)
	end
	return publish(store, link, subject, text, op)
end

-- A marker says that the key is gone, as NATS' own clients write it. Then it goes, too, and nothing that was written after it.
local function remove(store, key, op)
	op = answers.with_deadline(op)
	local subject, wrong = subject_of(store, key)
	if not subject then
		return "failed", wrong
	end
	local link, err = link_of(store, op.ends)
	if not link then
		return outcome_of(err)
	end
	local outcome, what = "conflict", nil
	if op.expected ~= "" then
		outcome, what = publish(store, link, subject, "", op, "KV-Operation: DEL\r\n")
	end
	if outcome == "ok" then
		ask_api(store, link, "$JS.API.STREAM.PURGE." .. store.stream, { filter = subject, seq = math.tointeger(tonumber(what)) + 1 }, op.ends)
		return "ok"
	elseif outcome ~= "conflict" then
		return outcome, what
	end
	outcome, what = fetch(store, link, subject, op.ends)
	return outcome == "ok" and "conflict" or outcome, what
end

local function list(store, prefix, op)
	op = answers.with_deadline(op)
	local link, err = link_of(store, op.ends)
	if not link then
		return outcome_of(err)
	end
	local answer, code, text = ask_api(store, link, "$JS.API.STREAM.INFO." .. store.stream, { subjects_filter = ("$KV.%s.>"):format(store.bucket) }, op.ends)
	if not answer or code then
		return "failed", text or code
	end
	local names, front = {}, #("$KV.%s."):format(store.bucket)
	for subject in pairs(answer.state and answer.state.subjects or {}) do
		local key = decoded(subject:sub(front + 1))
		if key:sub(1, #prefix) == prefix then
			names[#names + 1] = key
		end
	end
	table.sort(names)
	return "ok", table.move(names, 1, math.min(#names, LIST), 1, {}), #names > LIST or (answer.total or 0) > (answer.limit or math.huge)
end

-- What can lose a record that was acknowledged. sync_interval is the servers' setting, which no client sees.
local function judge(answer)
	local config, warnings = answer.config, {}
	local function warn(found, text)
		warnings[#warnings + 1] = found and text or nil
	end
	warn(config.storage == "memory", "the bucket is kept in memory: it is gone, with all tokens, when its servers stop")
	warn(config.num_replicas == 1, "the bucket has one replica: where its server is gone, nobody is elected")
	warn(true, "servers write to the disk each sync_interval, 2 minutes by default, and acknowledge before: with less than `sync_interval: always`, which "
		.. "is not shown to clients, a power cut can lose the last writes")
	return table.concat(warnings, "; "), config.storage == "memory" or nil
end

local function about(store, op)
	local link, err = link_of(store, answers.with_deadline(op).ends)
	if not link then
		return nil, err
	end
	local config = link.about.config
	local warning, unfit = judge(link.about)
	return { server = ("NATS %s, %d replica%s"):format(link.info.version, config.num_replicas, config.num_replicas == 1 and "" or "s"), warning = warning,
		unfit = unfit, pause = config.num_replicas > 1 and ELECTION or nil }
end

-- ---- notices ----

-- Of each message of the consumer its number: one that is missing was lost.
local function on_notice(notices, message)
	local words = {}
	for word in (message.reply or ""):gmatch "[^.]+" do
		words[#words + 1] = word
	end
	local number = tonumber(words[#words > 9 and 9 or 7]) -- a longer one has a domain and an account in front
	if message.headers.status == "100" then
		local last = tonumber(message.headers["nats-last-consumer"])
		if last and last ~= notices.number then
			return { message = "some notices were lost" }
		end
		return not next(notices.watchers) and { message = "nobody waits for notices" } or nil
	elseif message.headers.status then
		return { message = "the consumer of the notices has ended: " .. message.headers.status }
	elseif number ~= notices.number + 1 then
		return { message = "some notices were lost" }
	end
	notices.number = number
	for changed in pairs(notices.watchers[message.subject] or {}) do
		changed()
	end
end

-- The consumer is kept in the memory of one server, and told of each change of the bucket, without its content.
local function consume(store, link, ends)
	local name = ("lunarch_%s_%d"):format(seed, store.count)
	local to = link.inbox .. "notices.all"
	local config = { name = name, deliver_subject = to, deliver_policy = "new", ack_policy = "none", replay_policy = "instant",
		mem_storage = true, num_replicas = 1, headers_only = true, idle_heartbeat = BEAT * 1000000000, inactive_threshold = 2 * LATE * 1000000000 }
	link.conn:write(("SUB %s 2\r\n"):format(to)) -- a subject with a wildcard is no interest to the consumer
	local answer, code, text = ask_api(store, link, ("$JS.API.CONSUMER.CREATE.%s.%s"):format(store.stream, name), { stream_name = store.stream, config = config },
		ends)
	if not answer or code then
		return nil, "notices: " .. tostring(text or code)
	end
	return true
end

-- Returns the notices of this process, begun if need be; nil and an error's text.
local function notices_of(store)
	local ends = time.monotonic() + SETTLE
	local permit <close> = store.listening:acquire(SETTLE)
	if not permit then
		return nil, "no connection in time"
	elseif store.notices and not store.notices.link.over then
		return store.notices
	end
	local link, err = dial(store, ends)
	if not link then
		return nil, err.message
	end
	local notices = { link = link, watchers = {}, number = 0 }
	link.deliver = function(message) return on_notice(notices, message) end
	notices.task = lunarch.spawn(listen, store, link)
	local good, why = consume(store, link, ends)
	if not good then
		link.conn:close()
		return nil, why
	end
	link.patience = LATE
	store.notices = notices
	return notices
end

local function watch(store, key, changed)
	local notices, why = notices_of(store)
	if not notices then
		return nil, why
	end
	local subject = assert(subject_of(store, key))
	notices.watchers[subject] = notices.watchers[subject] or {}
	local watchers = notices.watchers[subject]
	watchers[changed] = true
	local _ <close> = setmetatable({}, { __close = function()
		watchers[changed] = nil
		if not next(watchers) and notices.watchers[subject] == watchers then
			notices.watchers[subject] = nil
		end
	end })
	changed()
	notices.task:wait()
	return nil, notices.link.over and notices.link.over.message or "the notices have ended"
end

return {
	scheme = "nats",
	summary = "nats://[USER:PASSWORD@]HOST[:PORT][,HOST...]/BUCKET#KEY",
	key = "fragment",
	options = { tls = "boolean", tls_first = "boolean", ca = "text", cert = "text", key = "text", server_name = "text", creds = "text", nkey = "text" },
	open = open, read = read, write = write, remove = remove, watch = watch, list = list, about = about,
}
