-- lunarch.azure: access tokens for requests to Azure, and what authorises a request to a storage account, found where Azure's tools find them. Not
-- here: the services themselves, and logins that need a person.

local use = ...
local given = use "given"
local secrets = use "secrets"
local lunarch = require "lunarch"
local hash = require "lunarch.hash"
local http, json, time = lunarch.http, lunarch.json, lunarch.time
local set = secrets.set

local AUTHORITY <const> = "https://login.microsoftonline.com"
local METADATA <const> = "http://169.254.169.254" -- of virtual machines, and of AKS
local STORAGE <const> = "https://storage.azure.com"
local VERSION <const> = "2021-12-02" -- of the storage services' protocol
local NEAR <const>, FAR <const> = 3, 10 -- seconds: the services of the machine itself, and Azure's
local HOUR <const> = 3600

local of_credentials = { resource = "text", client_id = "text", tenant_id = "text" }
local of_storage = { client_id = "text" }

-- ---- what the sources answer: a token; nil if the source is not set up; false and an error's text, and true if it did not answer ----

-- Entra says error and error_description, managed identities say message, too.
local function complaint(r)
	local body = json.decode(r.body or "")
	if type(body) ~= "table" then
		return ""
	end
	local text = body.error_description or body.message or body.error
	return type(text) == "string" and ": " .. text:gsub("%c", " "):sub(1, 200) or ""
end

local function ask(where, request)
	request.timeout, request.redirects, request.proxy = request.timeout or FAR, 0, request.proxy or secrets.proxy_of(request.url)
	local r, err = http.request(request)
	if not r then
		return false, ("%s: %s"):format(where, err.message), true
	elseif not r.ok then
		return false, ("%s: status %d%s"):format(where, r.status, complaint(r))
	end
	local answer = json.decode(r.body)
	if type(answer) ~= "table" or type(answer.access_token) ~= "string" then
		return false, where .. ": expected an access_token, found none"
	end
	local lasts = tonumber(answer.expires_in) or (tonumber(answer.expires_on) and tonumber(answer.expires_on) - time.now()) or HOUR
	return { token = answer.access_token, lasts = lasts, source = where }
end

-- A secret goes over TLS, or to this machine.
local function from_authority(where, self, form)
	local authority = (set "AZURE_AUTHORITY_HOST" or AUTHORITY):gsub("/+$", "")
	if not secrets.may_go(authority) then
		return false, "AZURE_AUTHORITY_HOST: expected a URL of https, found another text"
	end
	form.client_id, form.scope, form.grant_type = self.client_id, self.resource .. "/.default", "client_credentials"
	return ask(where, { url = ("%s/%s/oauth2/v2.0/token"):format(authority, self.tenant_id), form = form })
end

local function by_secret(self)
	local secret = set "AZURE_CLIENT_SECRET"
	if not secret then
		return nil
	elseif not self.tenant_id or not self.client_id then
		return false, "AZURE_CLIENT_SECRET is set: expected AZURE_TENANT_ID and AZURE_CLIENT_ID beside it"
	end
	return from_authority("the environment's secret", self, { client_secret = secret })
end

-- A workload's identity on AKS, or of another cluster that is trusted. The file is read each time: whoever made it replaces it.
local function by_federation(self)
	local path = set "AZURE_FEDERATED_TOKEN_FILE"
	if not path then
		return nil
	elseif not self.tenant_id or not self.client_id then
		return false, "AZURE_FEDERATED_TOKEN_FILE is set: expected AZURE_TENANT_ID and AZURE_CLIENT_ID beside it"
	end
	local token, why = secrets.read(path)
	if not token then
		return false, "AZURE_FEDERATED_TOKEN_FILE: " .. why
	end
	return from_authority("workload identity", self, { client_assertion_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
		client_assertion = token:match "^%s*(.-)%s*$" })
end

-- App Service, Functions and Container Apps.
local function of_service(self)
	local url, secret = set "IDENTITY_ENDPOINT", set "IDENTITY_HEADER"
	if not url or not secret then
		return nil
	end
	return ask("the service's managed identity", { url = url, headers = { ["X-IDENTITY-HEADER"] = secret }, timeout = NEAR, proxy = "",
		query = { ["api-version"] = "2019-08-01", resource = self.resource, client_id = self.client_id } })
end

local function of_machine(self)
	local host = (set "AZURE_POD_IDENTITY_AUTHORITY_HOST" or METADATA):gsub("/+$", "")
	return ask("the machine's managed identity", { url = host .. "/metadata/identity/oauth2/token", headers = { Metadata = "true" }, timeout = NEAR,
		proxy = "", query = { ["api-version"] = "2018-02-01", resource = self.resource, client_id = self.client_id } })
end

local function find(self)
	for _, source in ipairs { by_secret, by_federation, of_service } do
		local found, err, away = source(self)
		if found ~= nil then
			return found, err, away
		end
	end
	local found, err = of_machine(self)
	return found, "no secret, workload identity or service's identity in the environment; " .. tostring(err)
end

-- ---- a storage account's own keys ----

-- "AccountName=x;AccountKey=...": nil if there is none.
local function connection()
	local text = set "AZURE_STORAGE_CONNECTION_STRING"
	if not text then
		return nil
	end
	local parts = {}
	for name, value in text:gmatch "([^=;]+)=([^;]*)" do
		parts[name] = value
	end
	return parts
end

-- The environment's keys are of the account that it names; where it names none, of whichever is asked.
local function keys_of(account)
	local parts = connection()
	if parts then
		local same = not parts.AccountName or parts.AccountName == account
		local suffix = parts.EndpointSuffix
		return same and { key = parts.AccountKey, sas = parts.SharedAccessSignature,
			endpoint = parts.BlobEndpoint or (suffix and ("https://%s.blob.%s"):format(account, suffix)) } or {}
	end
	local named = set "AZURE_STORAGE_ACCOUNT"
	if named and named ~= account then
		return {}
	end
	return { key = set "AZURE_STORAGE_KEY", sas = set "AZURE_STORAGE_SAS_TOKEN" }
end

local signed <const> = { "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match",
	"If-None-Match", "If-Unmodified-Since", "Range" }

local function sorted(values, line)
	local names, lines = {}, {}
	for name in pairs(values) do
		names[#names + 1] = name
	end
	table.sort(names)
	for i, name in ipairs(names) do
		lines[i] = line(name, values[name])
	end
	return table.concat(lines)
end

-- Azure's "Shared Key": what is signed is the request, line by line. request.url has no query of its own.
local function signature(account, key, request)
	local headers, extended, query = {}, {}, {}
	for name, value in pairs(request.headers) do
		headers[name:lower()] = tostring(value)
		if name:lower():find "^x%-ms%-" then
			extended[name:lower()] = tostring(value)
		end
	end
	for name, value in pairs(request.query or {}) do
		query[name:lower()] = tostring(value)
	end
	headers["content-length"] = #(request.body or "") > 0 and tostring(#request.body) or ""
	local lines = { request.method or "GET" }
	for _, name in ipairs(signed) do
		lines[#lines + 1] = headers[name:lower()] or ""
	end
	local path = request.url:match "^%w+://[^/]+(/.*)$" or "/"
	local text = table.concat(lines, "\n") .. "\n" .. sorted(extended, function(name, value) return ("%s:%s\n"):format(name, value) end)
		.. "/" .. account .. path .. sorted(query, function(name, value) return ("\n%s:%s"):format(name, value) end)
	return ("SharedKey %s:%s"):format(account, hash.base64(hash.hmac_sha256(key, text)))
end

return function(natives)
	local Credentials = use "credentials"(natives, "azure", find)

	function Credentials:token(timeout)
		local kept, err = self:get(timeout)
		if not kept then
			return nil, err
		end
		return kept.token
	end

	local azure = {}

	function azure.credentials(options)
		options = given.options("azure.credentials", options, of_credentials)
		return setmetatable({ resource = (options.resource or STORAGE):gsub("/+$", ""), client_id = options.client_id or set "AZURE_CLIENT_ID",
			tenant_id = options.tenant_id or set "AZURE_TENANT_ID" }, Credentials)
	end

	local Storage = { __name = "lunarch.AzureStorage" }
	Storage.__index = use "unknown"("the account", Storage, { account = true, endpoint = true, credentials = true, sas = true, key = true })

	function Storage:sign(request, timeout)
		local headers, query = {}, {}
		for name, value in pairs(request.headers or {}) do
			headers[name] = value
		end
		for name, value in pairs(request.query or {}) do
			query[name] = value
		end
		headers["x-ms-version"], headers["x-ms-date"] = VERSION, os.date("!%a, %d %b %Y %H:%M:%S GMT")
		local out = setmetatable({ headers = headers, query = query }, { __index = request })
		if self.key then
			headers.Authorization = signature(self.account, self.key, out)
		elseif self.sas and not secrets.may_go(request.url) then
			return natives.fail("invalid", "azure: over plain HTTP a SAS is sent to this machine alone, since it is as good as a password: expected a URL of https")
		elseif self.sas then
			for name, value in self.sas:gmatch "([^&=?]+)=([^&]*)" do
				query[name] = given.plain(value)
			end
		elseif request.url:find "^https://" then
			local token, err = self.credentials:token(timeout)
			if not token then
				return nil, err
			end
			headers.Authorization = "Bearer " .. token
		else
			return natives.fail("invalid", "azure: over plain HTTP no token is sent: expected a URL of https, an account's key or a SAS")
		end
		local copy = {}
		for name, value in pairs(request) do
			copy[name] = value
		end
		copy.headers, copy.query, copy.proxy = headers, query, request.proxy or (self.sas and secrets.proxy_of(request.url) or nil)
		return copy
	end

	function Storage:renew(request)
		if self.credentials then
			self.credentials:renew(request and request.headers.Authorization:match "^Bearer (.+)$")
		end
	end

	function azure.storage(account, options)
		given.text("azure.storage: account", account)
		options = given.options("azure.storage", options, of_storage)
		local keys = keys_of(account)
		local key = keys.key and hash.unbase64(keys.key)
		if keys.key and not key then
			return natives.fail("invalid", "azure: the account's key: expected base64, found another text")
		end
		return setmetatable({ account = account, key = key, sas = keys.sas and (keys.sas:gsub("^%?", "")), endpoint = keys.endpoint,
			credentials = not key and not keys.sas and azure.credentials { client_id = options.client_id } or nil }, Storage)
	end

	return azure
end
