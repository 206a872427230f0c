-- The lock in Azure Blob Storage: one block blob, moved by writes on a condition (If-None-Match: *, If-Match: ETAG); its version is its ETag
-- (docs/stores/azure.md). No lease of Azure's is used. No notices: candidates poll. Read by the driver's process
-- (docs/write-a-lock.md). What authorises a request: lunarch.azure.

local use = ...
local lunarch = require "lunarch"
local azure = require "lunarch.azure"
local answers = use "locks/answers"
local element = use "xml"
local secrets = use "secrets"
local http = lunarch.http

local TEXT_MAX <const> = 1 << 20 -- bytes of an answer
local KEY_MAX <const> = 1000 -- Azure has 1,024 characters, and the next record's key is longer
local VERSION_MAX <const> = 63
local LIST <const> = 1000

-- ---- the place ----

local function an_endpoint(value)
	return not value:find "^https?://[^?#@%s]+$" and "a URL as https://HOST:PORT, or https://HOST:PORT/ACCOUNT" or nil
end

local function refuse(place, text, ...)
	error(("%s: %s"):format(place.lock, text:format(...)), 0)
end

-- The container is the first part of what stands behind the account: the driver's keys begin with it.
local function open(place)
	local account, options = place.hosts[1] and place.hosts[1].name or "", place.options
	if #place.hosts ~= 1 or place.hosts[1].port ~= 0 then
		refuse(place, "expected one account, as in azblob://ACCOUNT/CONTAINER/KEY, and no port: another server is given by ?endpoint=https://HOST:PORT/ACCOUNT")
	elseif place.user ~= nil and place.user ~= "" then
		refuse(place, "expected no user: keys and identities are found where Azure's tools find them (environment, workload or managed identity)")
	elseif #account < 3 or #account > 24 or not account:find "^[%l%d]+$" then
		refuse(place, 'expected the name of a storage account (3 to 24 lower-case letters and digits), found "%s"', account)
	end
	local storage, err = azure.storage(account, { client_id = options.client_id })
	if not storage then
		refuse(place, "%s", err.message)
	end
	local endpoint = options.endpoint or storage.endpoint or ("https://%s.blob.core.windows.net"):format(account)
	local wrong = an_endpoint(endpoint)
	if wrong then
		refuse(place, "AZURE_STORAGE_CONNECTION_STRING: the endpoint: expected %s, found another text", wrong)
	elseif storage.sas and not secrets.may_go(endpoint) then
		refuse(place, "a SAS is as good as a password, so over plain HTTP it is sent to this machine alone: expected an endpoint of https")
	end
	return { account = account, endpoint = endpoint:gsub("/+$", ""), storage = storage, plain = endpoint:find "^http://" ~= nil, ca = options.ca, asked = 0 }
end

-- ---- requests ----

local function escape(text)
	return (text:gsub("[^%w%-._~/]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function where(store)
	return ("account %s at %s"):format(store.account, store.endpoint:match "//([^/]*)")
end

-- Azure answers with the id that the request had. So an answer to another one, by some proxy's fault, is not believed, and no success without an id;
-- without TLS each request has a connection of its own, on which there can be no other.
local function once(store, method, path, op, more)
	store.asked = store.asked + 1
	local id = ("lunarch-%x-%d"):format(math.random(0), store.asked)
	local request, err = store.storage:sign({ method = method, url = store.endpoint .. "/" .. escape(path), query = more.query, body = more.body,
		headers = { ["If-Match"] = more.match, ["If-None-Match"] = more.none and "*" or nil, ["Content-Type"] = more.body and "application/json" or nil,
			["x-ms-blob-type"] = more.body and "BlockBlob" or nil, ["x-ms-client-request-id"] = id, Connection = store.plain and "close" or nil } }, answers.left(op))
	if not request then
		return nil, err.message, true
	end
	more.sent = request
	request.timeout, request.redirects, request.compressed, request.max_body = answers.left(op), 0, false, TEXT_MAX
	request.tls = store.ca and { ca = store.ca } or nil
	local r, failed = http.request(request)
	if not r then
		return nil, failed.message, failed.unsent == true, failed.code
	elseif (r.headers["x-ms-client-request-id"] or (not r.ok and id)) ~= id then
		return nil, "the answer was one to another request, or has no id", false
	end
	return r, r.headers["x-ms-error-code"] or (r.status >= 400 and element(r.body or "", "Code") or nil)
end

-- A request whose token was refused has done nothing: it is sent again with another one.
local function send(store, method, path, op, more)
	local renewed = false
	more = more or {}
	return answers.send(function() return once(store, method, path, op, more) end, function(r)
		if r.status ~= 401 or renewed or not store.storage.credentials then
			return false
		end
		store.storage:renew(more.sent)
		renewed = true
		return true
	end)
end

local advice = {
	AuthenticationFailed = ": a wrong key or SAS, or a clock that is wrong by 15 minutes; the election does not need one",
	AuthorizationFailure = "; docs/stores/azure.md lists the rights; or the account's firewall keeps this machine out",
	AuthorizationPermissionMismatch = "; docs/stores/azure.md lists the rights",
	InvalidAuthenticationInfo = ": the token is not accepted, and another one neither",
	ContainerNotFound = ": make the container first",
	LeaseIdMissing = ": somebody has a lease of Azure's on it. Lunarch takes none: break it, or name another blob",
	BlobImmutableDueToPolicy = ": a container with an immutability policy keeps no lock",
}

local function told(store, r, code)
	local message = element(r.body or "", "Message")
	return ("%s: status %d%s%s%s"):format(where(store), r.status, code and " " .. code or "", advice[code or ""] or "",
		message and (" (%s)"):format((message:gsub("%c", " ")):sub(1, 200)) or "")
end

-- What an answer that is no success and no failed condition means. nil: nobody knows.
local function refusal(store, r, code)
	if not code then
		return nil, ("%s: expected an answer of Azure's, found status %d without its code"):format(where(store), r.status)
	elseif r.status >= 400 and r.status < 500 and r.status ~= 408 and r.status ~= 429 then
		return "refused", told(store, r, code)
	end
	return nil, told(store, r, code)
end

local function failed(store, text, unsent)
	return answers.failed(store.storage.credentials, ("%s: %s"):format(where(store), text), unsent)
end

-- ---- reading ----

local function wrong_key(key)
	if not key:find "^[%l%d$][%l%d-]*/." then
		return ('expected CONTAINER/KEY behind the account, found "%s"'):format((key:gsub("%c", "?")))
	elseif #key > KEY_MAX then
		return ("expected a key of at most %d bytes, found one of %d"):format(KEY_MAX, #key)
	elseif (key .. "/"):find "%./" or key:find "[/\\]$" or key:find "%c" then
		return ('the key "%s": Azure keeps none that ends with a slash or a backslash, has a part that ends with ".", or a control character'):format((key:gsub("%c", "?")))
	end
end

local function etag_of(store, r)
	local etag = r.headers.etag
	if not etag or not etag:find '^"[^"]+"$' then
		return nil, ("%s: expected an ETag in quotes, found %s: this is no Azure Blob Storage"):format(where(store), etag and "another" or "none")
	elseif #etag > VERSION_MAX then
		return nil, ("%s: expected an ETag of at most %d bytes, found one of %d"):format(where(store), VERSION_MAX, #etag)
	end
	return etag
end

local function fetch(store, key, op)
	local r, code, unsent, kind = send(store, "GET", key, op)
	if not r then
		if kind == "full" then
			return "foreign", ("%s: %s is longer than any record"):format(where(store), key)
		end
		return failed(store, code, unsent)
	elseif r.status == 200 then
		local etag, wrong = etag_of(store, r)
		if etag then
			return "ok", r.body, etag
		end
		return "failed", wrong
	elseif r.status == 404 and code == "BlobNotFound" then
		return "absent"
	end
	local outcome, text = refusal(store, r, code)
	return outcome or "failed", text
end

-- ---- writing ----

local function unmet(code)
	return code == "ConditionNotMet" or code == "TargetConditionNotMet" or code == "BlobAlreadyExists" or code == "BlobNotFound"
end

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
	end
	op = answers.with_deadline(op)
	local fresh = op.expected == ""
	local r, code, also = send(store, "PUT", key, op, { body = text, match = not fresh and op.expected or nil, none = fresh })
	if not r then
		if also then
			return failed(store, code, also)
		end
		return "unknown", ("%s: %s"):format(where(store), code)
	elseif r.status == 201 then
		local etag, strange = etag_of(store, r)
		return etag and "ok" or "unknown", etag or strange
	elseif unmet(code) then
		return answers.look(fetch, store, key, text, op, told(store, r, code), also)
	end
	local outcome, why = refusal(store, r, code)
	return also and "unknown" or outcome or "unknown", why
end

local function remove(store, key, op)
	op = answers.with_deadline(op)
	local r, code, also = send(store, "DELETE", key, op, { match = op.expected ~= "" and op.expected or '"none"' })
	if not r then
		return also and "failed" or "unknown", ("%s: %s"):format(where(store), code)
	elseif r.status == 202 then
		return "ok"
	elseif code == "BlobNotFound" and not also then
		return "absent"
	elseif unmet(code) then
		return also and "unknown" or "conflict", "it was sent more than once, and of one try no answer came"
	end
	local outcome, why = refusal(store, r, code)
	return also and "unknown" or outcome or "unknown", why
end

local function list(store, prefix, op)
	local container, rest = prefix:match "^([^/]+)/(.*)$"
	if not container then
		return "failed", "expected CONTAINER/ at least, behind the account"
	end
	local r, code, unsent = send(store, "GET", container, answers.with_deadline(op),
		{ query = { restype = "container", comp = "list", prefix = rest, maxresults = tostring(LIST) } })
	if not r then
		return failed(store, code, unsent)
	elseif r.status ~= 200 then
		local outcome, text = refusal(store, r, code)
		return outcome or "failed", text
	elseif not r.body:find("<EnumerationResults", 1, true) then
		return "failed", where(store) .. ": expected a list of blobs, found another answer: this is no Azure Blob Storage"
	end
	local names = {}
	for blob in r.body:gmatch "<Blob>(.-)</Blob>" do
		names[#names + 1] = container .. "/" .. (element(blob, "Name") or "")
	end
	return "ok", names, (element(r.body, "NextMarker") or "") ~= ""
end

-- Doctor asks without a key, so it knows no container: what is said is of the account.
local function about(store, op)
	local r, code = send(store, "GET", "", answers.with_deadline(op), { query = { restype = "account", comp = "properties" } })
	if not r then
		return nil, code
	end
	local kind = r.headers["x-ms-sku-name"]
	return { server = ("Azure Blob Storage (%s, %s)"):format(r.headers.server or "unknown", kind or "the account's kind is not told to this identity"),
		warning = kind and kind:find "GZ?RS" and "the account is copied to another region, and the copy may lack the last records: after a failover to it, "
			.. "stop all candidates for the longest lease" or nil }
end

return {
	scheme = "azblob",
	summary = "azblob://ACCOUNT/CONTAINER/KEY[?endpoint=URL][&client_id=ID]",
	options = { endpoint = an_endpoint, ca = "text", client_id = "text" },
	open = open, read = read, write = write, remove = remove, list = list, about = about,
}
