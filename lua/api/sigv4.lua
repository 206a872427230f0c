-- sign(spec, given, add): signs a request (AWS Signature Version 4). The URL is brought into its canonical form, and what the signature needs is
-- added. libcurl before 8.10 signs wrongly where a header's name begins with another's, as that of a KMS key does, so this is not left to it.
-- add(name, value): a header, if it is not given.

local use = ...
local check = use "options"

return function(hash, escape)
	local function word(v)
		return (type(v) ~= "string" or not v:find "^[%w%-_.]+$") and "a name as eu-central-1" or nil
	end

	local known = { region = word, service = word, key = "text", secret = "text", token = "text" }
	local needed = { "region", "service", "key", "secret" }

	local function fail(fmt, ...)
		error("http: aws_sigv4: " .. fmt:format(...), 0)
	end

	-- Values of these are in no error.
	local function check_secrets(keys)
		for _, name in ipairs { "secret", "token" } do
			local value = keys[name]
			if value ~= nil and (type(value) ~= "string" or value == "" or value:find "[%c]") then
				fail("option '%s': expected a text of one line, found %s", name, type(value) == "string" and "another" or "a " .. type(value))
			end
		end
	end

	local function check_keys(keys)
		check_secrets(keys)
		local wrong = check("http: aws_sigv4", keys, known)
		if wrong then
			error(wrong, 0)
		end
		for _, name in ipairs(needed) do
			if keys[name] == nil or keys[name] == "" then
				fail("option '%s' is missing", name)
			end
		end
	end

	local function decoded(text)
		return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
	end

	local function recoded(text)
		return escape(decoded(text))
	end

	-- By names, then by values; in their encoded form, whose order is that of the bytes.
	local function canonical_query(query)
		local parts = {}
		for part in query:gmatch "[^&]+" do
			local name, value = part:gsub("+", " "):match "^([^=]*)=?(.*)$"
			parts[#parts + 1] = { recoded(name), recoded(value) }
		end
		table.sort(parts, function(a, b)
			if a[1] ~= b[1] then
				return a[1] < b[1]
			end
			return a[2] < b[2]
		end)
		for i, part in ipairs(parts) do
			parts[i] = part[1] .. "=" .. part[2]
		end
		return table.concat(parts, "&")
	end

	local function canonical_url(url)
		local scheme, host, path, query = url:match "^(%a+://)([^/?#]+)([^?#]*)%??([^#]*)"
		if not host or host:find("@", 1, true) then
			fail "expected a URL with a host and without a user, whose place the key has"
		end
		path = decoded(path):gsub("[^/]+", escape)
		path, query = path == "" and "/" or path, canonical_query(query)
		return scheme .. host .. path .. (query == "" and "" or "?" .. query), host:gsub(scheme == "http://" and ":80$" or ":443$", ""), path, query
	end

	-- Sorted by name. A header that is taken away (no value) is not sent.
	local function canonical_headers(lines)
		local names, values = {}, {}
		for _, line in ipairs(lines) do
			local name, value = line:match "^([^:]+):%s*(.-)%s*$"
			if value ~= "" then
				name = name:lower()
				names[#names + 1], values[name] = name, value:gsub("%s+", " ")
			end
		end
		table.sort(names)
		local text = {}
		for i, name in ipairs(names) do
			text[i] = name .. ":" .. values[name] .. "\n"
		end
		return table.concat(names, ";"), table.concat(text), values
	end

	local function authorization(keys, method, path, query, lines)
		local names, headers, values = canonical_headers(lines)
		local date = values["x-amz-date"]
		local scope = ("%s/%s/%s/aws4_request"):format(date:sub(1, 8), keys.region, keys.service)
		local request = table.concat({ method, path, query, headers, names, values["x-amz-content-sha256"] }, "\n")
		local key = "AWS4" .. keys.secret
		for part in scope:gmatch "[^/]+" do
			key = hash.hmac_sha256(key, part)
		end
		local signature = hash.hex(hash.hmac_sha256(key, table.concat({ "AWS4-HMAC-SHA256", date, scope, hash.sha256(request) }, "\n")))
		return ("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s"):format(keys.key, scope, names, signature)
	end

	return function(spec, given, add)
		local keys = given.aws_sigv4
		check_keys(keys)
		for _, name in ipairs { "user", "password", "bearer" } do
			if given[name] then
				fail("a request is signed, or it has the option '%s'", name)
			end
		end
		if spec.streamed then
			fail "the body's hash is signed, so the body must be a text"
		end
		local host, path, query
		spec.url, host, path, query = canonical_url(spec.url)
		add("Host", host)
		if spec.body then
			add("Content-Type", "application/octet-stream")
		end
		add("X-Amz-Content-Sha256", hash.sha256(spec.body or ""))
		add("X-Amz-Date", os.date "!%Y%m%dT%H%M%SZ")
		if keys.token then
			add("X-Amz-Security-Token", keys.token)
		end
		add("Authorization", authorization(keys, spec.method, path, query, spec.headers))
	end
end
