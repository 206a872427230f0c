-- The lock in Google Cloud Storage: one object, moved by writes on a condition (ifGenerationMatch); its version is its generation
-- (docs/stores/gcs.md). No notices: candidates poll. Read by the driver's process (docs/write-a-lock.md). Where tokens come from: lunarch.gcp.

local use = ...
local lunarch = require "lunarch"
local gcp = require "lunarch.gcp"
local answers = use "locks/answers"
local hash = require "lunarch.hash"
local http, json = lunarch.http, lunarch.json

local GOOGLES <const> = "https://storage.googleapis.com"
local SCOPE <const> = "https://www.googleapis.com/auth/devstorage.read_write"
local TEXT_MAX <const> = 1 << 20 -- bytes of an answer
local KEY_MAX <const> = 1000 -- the service has 1,024, and the next record's key is longer
local PAUSE <const> = 1 -- seconds: an object takes about one write in each
local LIST <const> = 1000

-- ---- the place ----

local function check_bucket(place, bucket)
	local function refuse(text)
		error(("%s: %s"):format(place.lock, text), 0)
	end
	if #place.hosts ~= 1 or place.hosts[1].port ~= 0 then
		refuse "expected one bucket, as in gs://BUCKET/KEY, and no port: another server is given by ?endpoint=https://HOST:PORT"
	elseif place.user ~= nil and place.user ~= "" then
		refuse "expected no user: credentials are found where Google's tools find them (GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, the metadata server)"
	elseif #bucket < 3 or #bucket > 222 or not bucket:find "^[%l%d][%l%d._-]*[%l%d]$" then
		refuse(('expected the name of a bucket (lower-case letters, digits, ".", "-" and "_"), found "%s"'):format(bucket))
	end
end

local function an_endpoint(value)
	return not value:find "^https?://[^/?#@%s]+/?$" and "a URL as https://HOST:PORT" or nil
end

-- As Google's libraries take it, with or without http://.
local function emulator(place)
	local host = use "secrets".set "STORAGE_EMULATOR_HOST"
	if not host then
		return nil
	end
	local url = host:find "^https?://" and host or "http://" .. host
	if an_endpoint(url) then
		error(place.lock .. ": STORAGE_EMULATOR_HOST: expected HOST:PORT or a URL as https://HOST:PORT, found another text", 0)
	end
	return url
end

-- An emulator gets no token, whatever its scheme: whoever it is, it is not Google. Over plain HTTP a token would be everybody's.
local function open(place)
	local bucket, options = place.hosts[1] and place.hosts[1].name or "", place.options
	check_bucket(place, bucket)
	local other = options.endpoint == nil and emulator(place) or nil
	local endpoint = (options.endpoint or other or GOOGLES):gsub("/+$", "")
	local plain = endpoint:find "^http://" ~= nil
	local emulated = plain or other ~= nil
	if emulated and options.credentials then
		error(place.lock .. ": option 'credentials': over plain HTTP, and to what STORAGE_EMULATOR_HOST names, no token is sent: expected ?endpoint= of https", 0)
	end
	return { bucket = bucket, endpoint = endpoint, plain = plain, emulated = emulated, ca = options.ca,
		credentials = not emulated and gcp.credentials { scope = SCOPE, file = options.credentials } or nil }
end

-- ---- requests ----

local function escape(text)
	return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function object(store, key)
	return ("/storage/v1/b/%s/o/%s"):format(escape(store.bucket), escape(key))
end

-- An error's reason, and its text: JSON, or for a GET of an object's content plain text.
local function reason_of(r)
	local body = json.decode(r.body or "")
	local e = type(body) == "table" and body.error
	if type(e) ~= "table" then
		return nil, (r.body or ""):find "^[%w%p ]+$" and r.body:sub(1, 200) or nil
	end
	local first = type(e.errors) == "table" and e.errors[1]
	return type(first) == "table" and first.reason or nil, type(e.message) == "string" and e.message:gsub("%c", " "):sub(1, 200) or nil
end

-- An emulator's answers have no ids. Without TLS an answer of HTTP/1.1 does not say what was asked, so each request has a connection of its own.
local function once(store, method, path, op, more)
	local token, err
	if store.credentials then
		token, err = store.credentials:token(answers.left(op))
		if not token then
			return nil, err.message, true
		end
		more.token = token
	end
	local headers = { ["Content-Type"] = more.type, Connection = store.plain and "close" or nil }
	local r, failed = http.request { method = method, url = store.endpoint .. path, query = more.query, headers = headers, body = more.body,
		bearer = token, timeout = answers.left(op), redirects = 0, compressed = false, max_body = TEXT_MAX, tls = store.ca and { ca = store.ca } or nil }
	if not r then
		return nil, failed.message, failed.unsent == true, failed.code
	elseif answers.is_repeated(store, r.headers["x-guploader-uploadid"]) then
		return nil, "the answer was one to an earlier request", false
	end
	return r
end

-- A request whose token was refused has done nothing: it is sent again with another one.
local function send(store, method, path, op, more)
	local renewed = false
	more = more or {}
	return answers.send(function() return once(store, method, path, op, more) end, function(r)
		if r.status ~= 401 or renewed or not store.credentials then
			return false
		end
		store.credentials:renew(more.token)
		renewed = true
		return true
	end)
end

local advice = {
	[401] = ": the token is not accepted, and another one neither",
	[403] = "; docs/stores/gcs.md lists the rights",
	[404] = ": make the bucket first",
	[429] = ": an object takes one write a second, and a project has a quota",
}

local function where(store)
	return ("bucket %s at %s"):format(store.bucket, store.endpoint:match "//(.*)$")
end

local function told(store, r)
	local reason, text = reason_of(r)
	return ("%s: status %d%s%s%s"):format(where(store), r.status, reason and " " .. reason or "", advice[r.status] or "", text and (" (%s)"):format(text) or "")
end

-- What an answer that is no success and no failed condition means. nil: nobody knows.
local function refusal(store, r)
	local reason = reason_of(r)
	if r.status == 429 or (r.status == 403 and tostring(reason):find "ateLimitExceeded") then
		return "failed", told(store, r)
	elseif r.status >= 400 and r.status < 500 and r.status ~= 408 then
		return "refused", told(store, r)
	end
	return nil, told(store, r)
end

local function failed(store, text, unsent)
	return answers.failed(store.credentials, ("%s: %s"):format(where(store), text), unsent)
end

-- ---- reading ----

local function wrong_key(key)
	if #key > KEY_MAX then
		return ("expected a key of at most %d bytes, found one of %d"):format(KEY_MAX, #key)
	elseif key == "." or key == ".." or key:find "[\r\n]" or key:find "^%.well%-known/acme%-challenge/" then
		return ('the key "%s": Google Cloud Storage keeps no object of this name'):format((key:gsub("%c", "?")))
	end
end

local function is_generation(text)
	return type(text) == "string" and text:find "^[1-9]%d*$" ~= nil
end

-- Whether nothing is there, as Google says it ("No such object: ..."), or an emulator. A bucket that is not there is another 404, and so is a proxy's.
local function is_absent(store, r)
	local body = r.body or ""
	return r.status == 404 and (body:find "^No such object" ~= nil or (store.emulated and body:find "^Not Found%s*$" ~= nil))
end

local function fetch(store, key, op)
	local r, text, unsent, kind = send(store, "GET", object(store, key), op, { query = { alt = "media" } })
	if not r then
		if kind == "full" then
			return "foreign", ("%s: %s is longer than any record"):format(where(store), key)
		end
		return failed(store, text, unsent)
	elseif r.status == 200 then
		local generation = r.headers["x-goog-generation"]
		if is_generation(generation) then
			return "ok", r.body, generation
		end
		return "failed", where(store) .. ": expected an object with a generation, found an answer without one: this is no Google Cloud Storage"
	elseif is_absent(store, r) then
		return "absent"
	end
	local outcome, why = refusal(store, r)
	return outcome or "failed", why
end

-- ---- writing ----

-- no-store: an object that everybody may read is otherwise kept for an hour by Google's caches, and read from there.
local function parts_of(key, text)
	local boundary = hash.sha256(text)
	local about = json.encode { name = key, contentType = "application/json", cacheControl = "no-store" }
	return ("--%s\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%s\r\n--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s--\r\n"):format(boundary,
		about, boundary, text, boundary), "multipart/related; boundary=" .. boundary
end

-- The condition: generation 0: only if nothing is there. What comes too fast is refused, has done nothing, and is sent again while there is time.
local function put(store, key, text, op)
	local body, kind = parts_of(key, text)
	local request = { body = body, type = kind, query = { uploadType = "multipart", fields = "generation",
		ifGenerationMatch = op.expected == "" and "0" or op.expected } }
	local path, pause, before = ("/upload/storage/v1/b/%s/o"):format(escape(store.bucket)), PAUSE, false
	while true do
		local r, why, also = send(store, "POST", path, op, request)
		if not r then
			return nil, why, also and not before
		elseif r.status ~= 429 or answers.left(op) < 2 * pause then
			return r, why, also or before
		end
		before = before or also
		lunarch.sleep(pause * (0.75 + math.random() / 2))
		pause = pause * 2
	end
end

local function generation_of(r)
	local answer = json.decode(r.body or "")
	local generation = type(answer) == "table" and answer.generation
	return is_generation(generation) and generation or nil
end

-- ---- what the driver calls ----

local function read(store, key, op)
	local wrong = wrong_key(key)
	if wrong then
		return "refused", wrong
	end
	return fetch(store, key, answers.with_deadline(op))
end

local function write(store, key, text, op)
	local wrong = wrong_key(key)
	if wrong then
		return "invalid", wrong
	elseif op.expected ~= "" and not is_generation(op.expected) then
		return "conflict" -- no object has had this version
	end
	op = answers.with_deadline(op)
	local r, why, also = put(store, key, text, op)
	if not r then
		if also then
			return failed(store, why, also)
		end
		return "unknown", ("%s: %s"):format(where(store), why)
	elseif r.status == 200 then
		local generation = generation_of(r)
		return generation and "ok" or "unknown", generation or where(store) .. ": expected the new generation, found an answer without one"
	elseif r.status == 412 or r.status == 409 then
		return answers.look(fetch, store, key, text, op, told(store, r), also)
	end
	local outcome
	outcome, why = refusal(store, r)
	return also and "unknown" or outcome or "unknown", why
end

-- An emulator may not compare when it deletes, so this looks first. Nothing but doctor removes.
local function remove(store, key, op)
	op = answers.with_deadline(op)
	local outcome, text, generation = fetch(store, key, op)
	if outcome == "absent" then
		return "absent"
	elseif outcome ~= "ok" then
		return outcome == "foreign" and "failed" or outcome, text
	elseif generation ~= op.expected then
		return "conflict"
	end
	local r, why, also = send(store, "DELETE", object(store, key), op, { query = { ifGenerationMatch = generation } })
	if not r then
		return also and "failed" or "unknown", ("%s: %s"):format(where(store), why)
	elseif r.status == 204 or r.status == 200 then
		return "ok"
	elseif r.status == 412 or r.status == 404 then
		return also and "unknown" or "conflict", "it was sent more than once, and of one try no answer came"
	end
	outcome, why = refusal(store, r)
	return also and "unknown" or outcome or "unknown", why
end

local function list(store, prefix, op)
	local r, text, unsent = send(store, "GET", ("/storage/v1/b/%s/o"):format(escape(store.bucket)), answers.with_deadline(op),
		{ query = { prefix = prefix, maxResults = tostring(LIST + 1), fields = "kind,items(name),nextPageToken" } })
	if not r then
		return failed(store, text, unsent)
	elseif r.status ~= 200 then
		local outcome, why = refusal(store, r)
		return outcome or "failed", why
	end
	local answer = json.decode(r.body)
	if type(answer) ~= "table" or answer.kind ~= "storage#objects" then
		return "failed", where(store) .. ": expected a list of objects, found another answer: this is no Google Cloud Storage"
	end
	local names = {}
	for _, item in ipairs(type(answer.items) == "table" and answer.items or {}) do
		if type(item) == "table" and type(item.name) == "string" then
			names[#names + 1] = item.name
		end
	end
	return "ok", names, answer.nextPageToken ~= nil or #names > LIST
end

local function warnings_of(bucket)
	local warnings = {}
	local function warn(found, text)
		warnings[#warnings + 1] = found and text or nil
	end
	local soft, kept = bucket.softDeletePolicy, bucket.versioning
	warn(type(bucket.retentionPolicy) == "table", "the bucket has a retention policy: no object can be replaced or deleted before its time, so no lease renewed")
	warn(type(kept) == "table" and kept.enabled == true, "the bucket keeps versions, and each renewal leaves one: let a lifecycle rule delete noncurrent ones, or give the locks a bucket of their own")
	warn(type(soft) == "table" and tonumber(soft.retentionDurationSeconds or 0) > 0,
		"the bucket keeps what was replaced for some days (soft delete), and each renewal leaves such an object, which costs: give the locks one of their own")
	return #warnings > 0 and table.concat(warnings, "; ") or nil
end

-- Without the right to look at the bucket nothing is said of it.
local function about(store, op)
	local r, why = send(store, "GET", "/storage/v1/b/" .. escape(store.bucket), answers.with_deadline(op))
	if not r then
		return nil, why
	end
	local bucket = r.status == 200 and json.decode(r.body)
	if type(bucket) ~= "table" then
		return { server = "Google Cloud Storage (about the bucket: storage.buckets.get)" }
	end
	return { server = ("Google Cloud Storage%s, %s"):format(store.emulated and " (an emulator)" or "", tostring(bucket.location)),
		unfit = type(bucket.retentionPolicy) == "table" or nil, warning = warnings_of(bucket) }
end

return {
	scheme = "gs",
	summary = "gs://BUCKET/KEY[?credentials=FILE][&endpoint=URL]",
	options = { endpoint = an_endpoint, credentials = "text", ca = "text" },
	open = open, read = read, write = write, remove = remove, list = list, about = about,
}
