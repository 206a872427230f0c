-- The S3 lock: one object, moved by conditional PUTs (If-None-Match: *, If-Match: ETAG); its version is its ETag (docs/stores/s3.md).
-- No notices: candidates poll. Read by the driver's process (docs/write-a-lock.md). Where credentials come from: lunarch.aws.

local use = ...
local lunarch = require "lunarch"
local aws = require "lunarch.aws"
local element = use "xml"
local answers = use "locks/answers"
local hash = require "lunarch.hash"
local http, set = lunarch.http, use "secrets".set

local REGION <const> = "us-east-1" -- where nothing names one: the server's answer does
local TEXT_MAX <const> = 1 << 20 -- bytes of an answer
local KEY_MAX <const> = 1000 -- S3 has 1,024, and a scratch key is longer by 24
local VERSION_MAX <const> = 63
local LIST <const> = 1000

-- ---- the place ----

local function check_bucket(place, bucket)
	local function refuse(text)
		error(("%s: %s"):format(place.lock, text), 0)
	end
	if #place.hosts ~= 1 or place.hosts[1].port ~= 0 then
		refuse "expected one bucket, as in s3://BUCKET/KEY, and no port: another server is given by ?endpoint=https://HOST:PORT"
	elseif place.user ~= nil and place.user ~= "" then
		refuse "expected no user: keys are found where the AWS tools find them (environment, profile, role)"
	elseif bucket:find "%.mrap$" then
		refuse "a multi-region access point has no compare-and-swap over its regions: expected a bucket of one region"
	elseif bucket:find "%-%-x%-s3$" then
		refuse "a directory bucket (S3 Express One Zone) is not supported: expected a general purpose bucket"
	elseif #bucket < 3 or #bucket > 63 or not bucket:find "^[%w][%w.-]*[%w]$" then
		refuse(('expected the name of a bucket (3 to 63 letters, digits, "." and "-"), found "%s"'):format(bucket))
	end
end

local function an_endpoint(value)
	return not value:find "^https?://[^/?#@%s]+/?$" and "a URL as https://HOST:PORT" or nil
end

local function an_encryption(value)
	return value ~= "AES256" and value ~= "aws:kms" and value ~= "aws:kms:dsse" and "AES256, aws:kms or aws:kms:dsse" or nil
end

-- One region's endpoint is another host; what the user has named stays.
local function base_of(store)
	if store.asked ~= store.region and not store.named then
		store.endpoint, store.asked = assert(aws.endpoint("s3", store.region, store.profile)), store.region
	end
	local scheme, host = store.endpoint:match "^(https?://)([^/]+)"
	if store.path_style then
		return scheme .. host .. "/" .. store.bucket, scheme .. host
	end
	return scheme .. store.bucket .. "." .. host, scheme .. host
end

local function open(place)
	local bucket, options = place.hosts[1] and place.hosts[1].name or "", place.options
	check_bucket(place, bucket)
	if options.kms and options.sse == "AES256" then
		error(place.lock .. ": option 'kms': expected sse=aws:kms or sse=aws:kms:dsse beside it, found AES256, which has no key of yours", 0)
	end
	local region, profile = options.region or aws.region(options.profile) or REGION, options.profile
	local endpoint, named = options.endpoint, true
	if not endpoint then
		endpoint, named = aws.endpoint("s3", region, profile)
	end
	if not endpoint then
		error(("%s: %s"):format(place.lock, named.message), 0)
	end
	local style, path_style = aws.setting("s3.addressing_style", profile), options.path_style
	if path_style == nil and (style == "path" or style == "virtual") then
		path_style = style == "path"
	elseif path_style == nil then -- a bucket with dots fits no certificate; other servers than Amazon's know this form best
		path_style = named or bucket:find(".", 1, true) ~= nil
	end
	return {
		bucket = bucket, lock = place.lock, endpoint = endpoint, named = named, asked = region, profile = profile, path_style = path_style,
		ca = options.ca or set "AWS_CA_BUNDLE" or aws.setting("ca_bundle", profile), region = region, region_given = options.region ~= nil,
		credentials = aws.credentials { profile = options.profile, region = options.region },
		sse = options.sse or (options.kms and "aws:kms"), kms = options.kms,
	}
end

-- ---- requests ----

local function escape(text)
	return (text:gsub("[^%w%-._~/]", function(c) return ("%%%02X"):format(c:byte()) end))
end

-- An error's code: of the body, where there is one.
local function code_of(r)
	return (r.body or ""):find("<Error>", 1, true) and element(r.body, "Code") or nil
end

local regional = { PermanentRedirect = true, TemporaryRedirect = true, AuthorizationHeaderMalformed = true, IllegalLocationConstraintException = true }

-- The region that the server names when another one was asked.
local function other_region(store, r, code)
	if r.status ~= 301 and r.status ~= 307 and not regional[code or ""] then
		return nil
	end
	local region = r.headers["x-amz-bucket-region"] or element(r.body or "", "Region")
	return region ~= store.region and region or nil
end

local stale = { ExpiredToken = true, TokenRefreshRequired = true, InvalidToken = true, InvalidAccessKeyId = true, SignatureDoesNotMatch = true }

-- Of a bucket's own requests key is nil. Returns the response and its error's code; nil, an error's text, and whether surely nothing was sent.
local function once(store, method, key, op, more)
	local sign, err = store.credentials:sign("s3", store.region, answers.left(op))
	if not sign then
		return nil, err.message, true
	end
	more.access = sign.key
	local base = base_of(store)
	local r, failed = http.request { method = method, url = base .. "/" .. (key and escape(key) or ""), query = more.query, headers = more.headers,
		body = more.body, aws_sigv4 = sign, timeout = answers.left(op), redirects = 0, compressed = false, max_body = TEXT_MAX,
		tls = store.ca and { ca = store.ca } or nil }
	if not r then
		return nil, failed.message, failed.unsent == true, failed.code
	elseif answers.is_repeated(store, r.headers["x-amz-request-id"]) then
		return nil, "the answer was one to an earlier request", false
	end
	return r, code_of(r)
end

-- A request that was refused for its region or its signature has done nothing: it is sent again with better ones.
local function send(store, method, key, op, more)
	local renewed = false
	more = more or {}
	return answers.send(function() return once(store, method, key, op, more) end, function(r, code)
		local region = other_region(store, r, code)
		if region and not store.region_given then
			store.region = region
			return true
		elseif stale[code or ""] and not renewed then
			store.credentials:renew(more.access)
			renewed = true
			return true
		end
		return false
	end)
end

local advice = {
	AccessDenied = "; docs/stores/s3.md lists the rights, s3:ListBucket is one of them: without it a missing object is answered so. "
		.. "A policy that demands encryption: ?sse=, ?kms=",
	RequestTimeTooSkewed = ": signatures need this machine's clock within 15 minutes of the server's; the election does not",
	InvalidAccessKeyId = ": the access key is unknown there",
	SignatureDoesNotMatch = ": the secret key is wrong",
	ExpiredToken = ": the credentials have expired, and there are no newer ones",
	NoSuchBucket = ": make the bucket first",
	SlowDown = ": the server asks for fewer requests",
}

local function where(store)
	local _, server = base_of(store)
	return ("bucket %s at %s"):format(store.bucket, server:match "//(.*)$")
end

local function told(store, r, code)
	local message = code and element(r.body, "Message")
	return ("%s: status %d%s%s%s"):format(where(store), r.status, code and " " .. code or "", code and advice[code] or "",
		message and message ~= "" and (" (%s)"):format((message:gsub("%c", " ")):sub(1, 200)) or "")
end

local function no_s3(store, r)
	return ("%s: expected an answer of S3's, found status %d without its code"):format(where(store), r.status)
end

-- What an answer that is no success and no failed condition means. nil: nobody knows. Another server than Amazon's may say SlowDown after a part of its
-- disks took the write, as MinIO's releases do.
local function refusal(store, r, code)
	local region = other_region(store, r, code)
	if region then
		return "refused", ("%s: the bucket is in the region %s: write ?region=%s"):format(where(store), region, region)
	elseif (code == "SlowDown" and not store.named) or stale[code or ""] and code:find "Token" then
		return "failed", told(store, r, code)
	elseif not code and (r.status ~= 403 or r.headers["x-amz-request-id"] == nil) then
		return nil, no_s3(store, r)
	elseif r.status == 403 or code == "NoSuchBucket" or r.status == 501 or r.status == 405 or (r.status == 400 and code ~= "RequestTimeout") then
		return "refused", told(store, r, code)
	end
	return nil, told(store, r, code)
end

local function failed(store, text, unsent)
	return answers.failed(store.credentials, ("%s: %s"):format(where(store), text), unsent)
end

-- ---- reading ----

local function etag_of(store, r)
	local etag = r.headers.etag
	if not etag or etag == "" then
		return nil, where(store) .. ": expected an ETag, found an answer without one: this is no S3"
	elseif etag:find "^W/" then
		return nil, where(store) .. ": expected a strong ETag, found a weak one: something in between changes what the server answers"
	elseif #etag > VERSION_MAX then
		return nil, ("%s: expected an ETag of at most %d bytes, found one of %d"):format(where(store), VERSION_MAX, #etag)
	end
	return etag
end

local function wrong_key(key)
	if #key > KEY_MAX then
		return ("expected a key of at most %d bytes, found one of %d"):format(KEY_MAX, #key)
	elseif ("/" .. key .. "/"):find "/%.%.?/" then
		return ('the key "%s": a part that is "." or ".." is lost on the way to many servers'):format((key:gsub("%c", "?")))
	end
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
		if not etag then
			return "failed", wrong
		end
		return "ok", r.body, etag
	elseif r.status == 404 and code == "NoSuchKey" then
		return "absent"
	end
	local outcome, text = refusal(store, r, code)
	return outcome or "failed", text
end

-- ---- writing ----

-- In the form that the server compares: some compare without the quotes that they answer with. The probe finds which (other_form).
local function match_of(store, etag)
	if not store.other_form then
		return etag
	end
	return etag:match '^"(.*)"$' or ('"%s"'):format(etag)
end

-- The condition: etag "": only if nothing is there. A bucket with Object Lock takes no object without the checksum.
local function put(store, key, text, etag, op)
	local name, value = "If-Match", match_of(store, etag)
	if etag == "" then
		name, value = "If-None-Match", "*"
	end
	local digest = hash.sha256(text):gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end)
	return send(store, "PUT", key, op, { body = text, headers = { [name] = value, ["Content-Type"] = "application/json",
		["x-amz-sdk-checksum-algorithm"] = "SHA256", ["x-amz-checksum-sha256"] = hash.base64(digest),
		["x-amz-server-side-encryption"] = store.sse, ["x-amz-server-side-encryption-aws-kms-key-id"] = store.kms } })
end

local function unmet(r, code)
	return r.status == 412 or r.status == 409 or (r.status == 404 and code == "NoSuchKey")
end

-- DELETE, whatever is there.
local function delete(store, key, op)
	return send(store, "DELETE", key, op)
end

local unproven = use "locks/s3_probe" { put = put, fetch = fetch, delete = delete, failed = failed, refusal = refusal, unmet = unmet, where = where,
	told = told, left = answers.left }

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
	elseif not text:find '"write"%s*:%s*"[^"]+"' then -- equal bytes have equal ETags, and a version must not come back
		return "invalid", "a record without the name of its write cannot be told from an earlier one"
	end
	op = answers.with_deadline(op)
	local outcome, why = unproven(store, key, op)
	if outcome then
		return outcome, why
	end
	local r, code, also = put(store, key, text, op.expected, op)
	if not r then
		if also then
			return failed(store, code, also)
		end
		return "unknown", ("%s: %s"):format(where(store), code)
	elseif r.status == 200 then
		local etag, strange = etag_of(store, r)
		if etag then
			return "ok", etag
		end
		return "unknown", strange
	elseif unmet(r, code) then
		return answers.look(fetch, store, key, text, op, told(store, r, code), also)
	end
	outcome, why = refusal(store, r, code)
	return also and "unknown" or outcome or "unknown", why
end

-- Not every server compares when it deletes, so this looks first. Nothing but doctor removes.
local function remove(store, key, op)
	op = answers.with_deadline(op)
	local outcome, text, etag = fetch(store, key, op)
	if outcome == "absent" then
		return "absent"
	elseif outcome ~= "ok" then
		return outcome == "foreign" and "failed" or outcome, text
	elseif etag ~= op.expected then
		return "conflict"
	end
	local r, code, also = send(store, "DELETE", key, op, { headers = { ["If-Match"] = match_of(store, etag) } })
	if r and (r.status == 501 or code == "NotImplemented") then
		r, code, also = delete(store, key, op)
	end
	if not r then
		return also and "failed" or "unknown", ("%s: %s"):format(where(store), code)
	elseif r.status == 204 or r.status == 200 then
		return "ok"
	elseif r.status == 412 or r.status == 409 then
		return also and "unknown" or "conflict", "it was sent more than once, and of one try no answer came"
	end
	outcome, text = refusal(store, r, code)
	return also and "unknown" or outcome or "unknown", text
end

local function list(store, prefix, op)
	local r, code, unsent = send(store, "GET", nil, answers.with_deadline(op), { query = { ["list-type"] = "2", ["max-keys"] = tostring(LIST), prefix = prefix } })
	if not r then
		return failed(store, code, unsent)
	elseif r.status ~= 200 then
		local outcome, text = refusal(store, r, code)
		return outcome or "failed", text
	elseif not r.body:find("<ListBucketResult", 1, true) then
		return "failed", no_s3(store, r)
	end
	local names = {}
	for contents in r.body:gmatch "<Contents>(.-)</Contents>" do
		local name = element(contents, "Key")
		if name and name:sub(1, #prefix) == prefix then
			names[#names + 1] = name
		end
	end
	return "ok", names, element(r.body, "IsTruncated") == "true"
end

-- Of what nobody may ask, nothing is said.
local function told_of(store, what, op)
	local r = send(store, "GET", nil, op, { query = { [what] = "" } })
	return r and r.status == 200 and r.body or ""
end

local function about(store, op)
	op = answers.with_deadline(op)
	local r, code = send(store, "HEAD", nil, op)
	if not r then
		return nil, code
	end
	local warnings = {}
	if told_of(store, "replication", op):find("<ReplicationConfiguration", 1, true) then
		warnings[#warnings + 1] = "the bucket is replicated, and a replica may lack the last records: after a failover to another bucket, "
			.. "stop all candidates for the longest lease"
	end
	if element(told_of(store, "versioning", op), "Status") == "Enabled" then
		warnings[#warnings + 1] = "the bucket keeps versions, and each renewal leaves one: let a lifecycle rule expire noncurrent versions"
	end
	return { server = ("%s, %s"):format(r.headers.server or "unknown", store.region), unfit = store.unfit ~= nil or nil,
		warning = store.unfit or (#warnings > 0 and table.concat(warnings, "; ") or nil) }
end

return {
	scheme = "s3",
	summary = "s3://BUCKET/KEY[?region=R][&endpoint=URL][&profile=NAME][&sse=aws:kms]",
	options = { region = "text", endpoint = an_endpoint, path_style = "boolean", profile = "text", ca = "text", sse = an_encryption, kms = "text" },
	open = open, read = read, write = write, remove = remove, list = list, about = about,
}
