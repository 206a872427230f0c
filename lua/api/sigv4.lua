-- sign(spec, given, add): prepares a request for its signature (AWS Signature Version 4), which libcurl makes (runtime/http).
-- libcurl signs the path and the query as they are written, and no hash of the body: the URL is brought into the canonical form, and
-- X-Amz-Content-Sha256 is added, without which Debian 12's libcurl signs for S3 wrongly. add(name, value): a header, if it is not given.

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
		local host, path, query = url:match "^(%a+://[^/?#]+)([^?#]*)%??([^#]*)"
		if not host or host:find("@", 1, true) then
			fail "expected a URL with a host and without a user, whose place the key has"
		end
		path = decoded(path):gsub("[^/]+", escape)
		return host .. (path == "" and "/" or path) .. (query == "" and "" or "?" .. canonical_query(query))
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
		spec.url = canonical_url(spec.url)
		if spec.body then
			add("Content-Type", "application/octet-stream")
		end
		add("X-Amz-Content-Sha256", hash.sha256(spec.body or ""))
		spec.user, spec.password = keys.key, keys.secret
		spec.sign_region, spec.sign_service, spec.sign_token = keys.region, keys.service, keys.token
	end
end
