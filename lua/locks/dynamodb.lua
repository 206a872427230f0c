-- The DynamoDB lock: one item of a table, moved by PutItem on the condition that its attribute `version`, which is random, is the one that was
-- read (docs/stores/dynamodb.md). No clock, no TTL, no notices: candidates poll. Read by the driver's process (docs/write-a-lock.md).

local use = ...
local lunarch = require "lunarch"
local aws = require "lunarch.aws"
local answers = use "locks/answers"
local hash = require "lunarch.hash"
local http, json, set = lunarch.http, lunarch.json, use "secrets".set

local API <const> = "DynamoDB_20120810."
local TEXT_MAX <const> = 8 << 20 -- bytes of an answer: a page of a scan has 1 MB, and is longer as JSON
local KEY_MAX <const> = 2000 -- DynamoDB has 2,048 bytes, and a scratch key is longer by 24
local LIST <const> = 1000
local PAUSE <const>, PAUSE_MAX <const> = 0.05, 1 -- seconds before a request is sent again that surely was not done: doubled each time

-- ---- the place ----

local function check_table(place, name)
	local function refuse(text)
		error(("%s: %s"):format(place.lock, text), 0)
	end
	local partition_key = place.options.partition_key
	if #place.hosts ~= 1 or place.hosts[1].port ~= 0 then
		refuse "expected one table, as in dynamodb://TABLE/KEY, and no port: another server is given by ?endpoint=https://HOST:PORT"
	elseif place.user ~= nil and place.user ~= "" then
		refuse "expected no user: keys are found where the AWS tools find them (environment, profile, role)"
	elseif #name < 3 or #name > 255 or not name:find "^[%w_.-]+$" then
		refuse(('expected the name of a table (3 to 255 letters, digits, "_", "." and "-"), found "%s"'):format(name))
	elseif partition_key == "record" or partition_key == "version" then
		refuse(("option 'partition_key': expected another name, found %s, which is an attribute of the lock's own"):format(partition_key))
	end
end

local function an_endpoint(value)
	return not value:find "^https?://[^/?#@%s]+/?$" and "a URL as https://HOST:PORT" or nil
end

local function open(place)
	local name, options = place.hosts[1] and place.hosts[1].name or "", place.options
	check_table(place, name)
	local profile, region = options.profile, options.region or aws.region(options.profile)
	if not region and not options.endpoint then
		error(place.lock .. ": expected ?region= (or AWS_REGION, or the profile's): a table is one region's, and all candidates need the same", 0)
	end
	region = region or "us-east-1"
	local endpoint, why = options.endpoint, nil
	if not endpoint then
		endpoint, why = aws.endpoint("dynamodb", region, profile)
	end
	if not endpoint then
		error(("%s: %s"):format(place.lock, why.message), 0)
	end
	return {
		table = name, endpoint = endpoint:gsub("/+$", "") .. "/", region = region, region_given = options.region ~= nil,
		partition_key = options.partition_key or "key", ca = options.ca or set "AWS_CA_BUNDLE" or aws.setting("ca_bundle", profile),
		credentials = aws.credentials { profile = profile, region = region },
	}
end

-- ---- requests ----

-- Their credentials are old or wrong: newer ones may do.
local stale = { ExpiredTokenException = true, UnrecognizedClientException = true, InvalidSignatureException = true }

-- What the signature says of the time, new credentials would say, too.
local function is_clocks(answer)
	local text = answer and tostring(answer.message or answer.Message)
	return text ~= nil and (text:find "^Signature expired" ~= nil or text:find "^Signature not yet current" ~= nil)
end

-- Surely not done: there was too much at once, or another's transaction or region had the item.
local undone = { ProvisionedThroughputExceededException = true, ThrottlingException = true, RequestLimitExceeded = true,
	TransactionConflictException = true, ReplicatedWriteConflictException = true }

-- Returns the response, its body as a table if it is DynamoDB's, its error's code, and the access key. Or nil, an error's text, and whether surely
-- nothing was sent.
local function once(store, action, body, op)
	local sign, err = store.credentials:sign("dynamodb", store.region, answers.left(op))
	if not sign then
		return nil, err.message, true
	end
	local r, failed = http.request { method = "POST", url = store.endpoint, body = body, aws_sigv4 = sign, timeout = answers.left(op),
		headers = { ["Content-Type"] = "application/x-amz-json-1.0", ["X-Amz-Target"] = API .. action }, redirects = 0, compressed = false,
		max_body = TEXT_MAX, tls = store.ca and { ca = store.ca } or nil }
	if not r then
		return nil, failed.message, failed.unsent == true
	elseif answers.is_repeated(store, r.headers["x-amzn-requestid"]) then
		return nil, "the answer was one to an earlier request", false
	end
	local answer = r.headers["x-amzn-requestid"] and json.decode(r.body or "")
	answer = type(answer) == "table" and answer or nil
	return r, answer, r.status ~= 200 and answer and tostring(answer.__type):match "[^#]*$" or nil, sign.key
end

-- What was surely not done is sent again, while there is time. Beside a response: whether a copy of it that was sent before may have been done.
local function send(store, action, request, op)
	request.TableName = store.table
	local body, pause, before, renewed = json.encode(request), PAUSE, false, false
	while true do
		local r, answer, code, access = once(store, action, body, op)
		if not r then
			return nil, answer, code and not before
		end
		before = before or r.repeated == true
		if stale[code or ""] and not renewed and not is_clocks(answer) then
			store.credentials:renew(access)
			renewed = true
		elseif undone[code or ""] and answers.left(op) > 2 * pause then
			lunarch.sleep(pause * (0.5 + math.random() / 2))
			pause = math.min(PAUSE_MAX, 2 * pause)
		else
			return r, answer, code, before
		end
	end
end

local advice = {
	AccessDeniedException = "; docs/stores/dynamodb.md lists the rights",
	ExpiredTokenException = ": the credentials have expired, and there are no newer ones",
	InvalidSignatureException = ": the secret key is wrong, or this machine's clock by more than 5 minutes; the election does not need the clock",
	ProvisionedThroughputExceededException = ": the table has too little capacity, or too much is asked of this key",
	ResourceNotFoundException = ": make the table first (docs/stores/dynamodb.md), in this region",
	UnrecognizedClientException = ": the access key is unknown there",
	ValidationException = "; the table's partition key has to be a text (?partition_key= is its name), and it may have no sort key",
}

local function where(store)
	return ("table %s at %s (%s)"):format(store.table, store.endpoint:match "//([^/]*)", store.region)
end

local function told(store, r, answer, code)
	local message = answer and (answer.message or answer.Message)
	return ("%s: status %d%s%s%s"):format(where(store), r.status, code and " " .. code or ", and it is no answer of DynamoDB's", code and advice[code] or "",
		type(message) == "string" and message ~= "" and (" (%s)"):format((message:gsub("%c", " ")):sub(1, 200)) or "")
end

-- What an answer that is no success and no failed condition means. nil: nobody knows.
local function refusal(store, r, answer, code)
	local text = told(store, r, answer, code)
	if undone[code or ""] or code == "ExpiredTokenException" then
		return "failed", text
	elseif (code and r.status == 400) or (r.status == 403 and r.headers["x-amzn-requestid"]) then
		return "refused", text
	end
	return nil, text
end

local function failed(store, text, unsent)
	return answers.failed(store.credentials, ("%s: %s"):format(where(store), text), unsent)
end

-- ---- items ----

-- A text is kept as one where it is UTF-8, so that people can read it.
local function value_of(text)
	return utf8.len(text) and { S = text } or { B = hash.base64(text) }
end

local function text_of(value)
	if type(value) ~= "table" then
		return nil
	elseif type(value.B) == "string" then
		return hash.unbase64(value.B)
	end
	return type(value.S) == "string" and value.S or nil
end

-- As read() answers.
local function judged(store, item)
	local text, version = text_of(item.record), type(item.version) == "table" and item.version.S
	if not text or type(version) ~= "string" or version == "" or #version > 63 then
		return "foreign", where(store) .. ": the item has no attributes `record` and `version`: it is another program's"
	end
	return "ok", text, version
end

local function wrong_key(key)
	if #key > KEY_MAX then
		return ("expected a key of at most %d bytes, found one of %d"):format(KEY_MAX, #key)
	elseif not utf8.len(key) then
		return "expected a key in UTF-8, found other bytes"
	end
end

local function key_of(store, key)
	return { [store.partition_key] = { S = key } }
end

local function fetch(store, key, op)
	local r, answer, code = send(store, "GetItem", { Key = key_of(store, key), ConsistentRead = true }, op)
	if not r then
		return failed(store, answer, code)
	elseif r.status == 200 and answer then
		if type(answer.Item) ~= "table" then
			return "absent"
		end
		return judged(store, answer.Item)
	end
	local outcome, text = refusal(store, r, answer, code)
	return outcome or "failed", text
end

-- The condition: expected "": only if nothing is there. The answer to a failed one has what is there, which costs no reading; some servers leave it out.
local function conditional(store, request, expected)
	local made = expected == ""
	request.ConditionExpression = made and "attribute_not_exists(#n)" or "#n = :expected"
	request.ExpressionAttributeNames = { ["#n"] = made and store.partition_key or "version" }
	request.ExpressionAttributeValues = not made and { [":expected"] = { S = expected } } or nil
	request.ReturnValuesOnConditionCheckFailure = "ALL_OLD"
	return request
end

local UNMET <const> = "ConditionalCheckFailedException"

local function found(store, key, op, answer)
	if type(answer.Item) == "table" then
		return judged(store, answer.Item)
	end
	return fetch(store, key, op)
end

-- A failed condition says nothing where an earlier copy of the request was done, whose answer was lost: what is there does, since the version
-- is this write's alone.
local function look(store, key, version, op, answer, before)
	local outcome, text, there = found(store, key, op, answer)
	if outcome == "ok" and there == version then
		return "ok", version
	elseif outcome == "failed" or outcome == "refused" then
		return "unknown", ("%s: the condition was not met; and then: %s"):format(where(store), text)
	elseif before or (outcome == "ok" and there == op.expected) or (outcome == "absent" and op.expected == "") then
		return "unknown", where(store) .. ": the condition was not met, but perhaps by what an earlier copy of the write did"
	end
	return "conflict"
end

local function new_version()
	local file <close> = io.open "/proc/sys/kernel/random/uuid"
	return file and file:read "l"
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
	local wrong, version = wrong_key(key), new_version()
	if wrong then
		return "invalid", wrong
	elseif not version then
		return "failed", "a version needs /proc/sys/kernel/random/uuid, which cannot be read"
	end
	op = answers.with_deadline(op)
	local item = key_of(store, key)
	item.record, item.version = value_of(text), { S = version }
	local r, answer, code, before = send(store, "PutItem", conditional(store, { Item = item }, op.expected), op)
	if not r and code then
		return failed(store, answer, code)
	elseif not r then
		return "unknown", ("%s: %s"):format(where(store), answer)
	elseif r.status == 200 and answer then
		return "ok", version
	elseif code == UNMET then
		return look(store, key, version, op, answer, before)
	end
	local outcome, why = refusal(store, r, answer, code)
	if code == "ValidationException" and why:find "[Ii]tem size" then
		outcome = "invalid"
	end
	return before and "unknown" or outcome or "unknown", why
end

local function remove(store, key, op)
	op = answers.with_deadline(op)
	local r, answer, code, before = send(store, "DeleteItem", conditional(store, { Key = key_of(store, key) }, op.expected), op)
	if not r then
		return code and "failed" or "unknown", ("%s: %s"):format(where(store), answer)
	elseif r.status == 200 and answer then
		return "ok"
	end
	local outcome, why = refusal(store, r, answer, code)
	if code == UNMET then
		outcome, why = found(store, key, op, answer)
		outcome = (outcome == "ok" or outcome == "foreign") and "conflict" or outcome == "absent" and outcome or "unknown"
	end
	return before and "unknown" or outcome or "unknown", why
end

-- The whole table is read for it.
local function list(store, prefix, op)
	op = answers.with_deadline(op)
	local names, from = {}, nil
	repeat
		local r, answer, code = send(store, "Scan", { FilterExpression = prefix ~= "" and "begins_with(#k, :prefix)" or nil, ProjectionExpression = "#k",
			ExpressionAttributeNames = { ["#k"] = store.partition_key },
			ExpressionAttributeValues = prefix ~= "" and { [":prefix"] = { S = prefix } } or nil, ConsistentRead = true, ExclusiveStartKey = from }, op)
		if not r then
			return failed(store, answer, code)
		elseif r.status ~= 200 or not answer or type(answer.Items) ~= "table" then
			local outcome, text = refusal(store, r, answer, code)
			return outcome or "failed", text
		end
		for _, item in ipairs(answer.Items) do
			names[#names + 1] = text_of(item[store.partition_key])
		end
		from = answer.LastEvaluatedKey
	until type(from) ~= "table" or #names >= LIST
	local more = type(from) == "table" or #names > LIST
	return "ok", table.move(names, 1, math.min(#names, LIST), 1, {}), more
end

-- Whether the table's keys are what a lock needs.
local function keys_fit(store, about)
	local schema, types = about.KeySchema or {}, about.AttributeDefinitions or {}
	for _, attribute in ipairs(types) do
		if #schema == 1 and attribute.AttributeName == store.partition_key and schema[1].AttributeName == store.partition_key then
			return attribute.AttributeType == "S"
		end
	end
	return false
end

-- Where a table has replicas in other regions, each region decides by itself, unless the replicas are strongly consistent.
local function doubt_of(store, about)
	local regions = {}
	for i, replica in ipairs(type(about.Replicas) == "table" and about.Replicas or {}) do
		regions[i] = tostring(replica.RegionName)
	end
	if not keys_fit(store, about) then
		return ("expected a table whose partition key is `%s`, a text, without a sort key: ?partition_key= names another"):format(store.partition_key), true
	elseif #regions == 0 then
		return nil
	elseif about.MultiRegionConsistency == "STRONG" then
		return "a global table with strong consistency over its regions, with which this lock was not tried"
	end
	return ("a global table, with replicas in %s: each region decides by itself, so all candidates must name the same one by ?region=, and after a failover "
		.. "to another region the last writes may be missing: stop all candidates for the longest lease before it"):format(table.concat(regions, ", ")),
		not store.region_given
end

local function about(store, op)
	local r, answer, code = send(store, "DescribeTable", {}, answers.with_deadline(op))
	if not r then
		return nil, answer
	elseif code == "AccessDeniedException" or r.status == 403 then
		return { server = ("DynamoDB, %s"):format(store.region), warning = "dynamodb:DescribeTable is not allowed: whether the table is global is not known" }
	elseif r.status ~= 200 or not answer or type(answer.Table) ~= "table" then
		return nil, told(store, r, answer, code)
	end
	local doubt, unfit = doubt_of(store, answer.Table)
	return { server = ("DynamoDB, %s"):format(store.region), warning = doubt, unfit = unfit or nil }
end

return {
	scheme = "dynamodb",
	summary = "dynamodb://TABLE/KEY[?region=R][&endpoint=URL][&profile=NAME][&partition_key=NAME]",
	options = { region = "text", endpoint = an_endpoint, profile = "text", ca = "text", partition_key = "text" },
	open = open, read = read, write = write, remove = remove, list = list, about = about,
}
