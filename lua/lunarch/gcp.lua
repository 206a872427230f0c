-- lunarch.gcp: access tokens for requests to Google Cloud, found where Google's tools find them (application default credentials). They are for http's
-- option bearer. Not here: the services themselves, and logins that need a person.

local use = ...
local given = use "given"
local secrets = use "secrets"
local lunarch = require "lunarch"
local hash = require "lunarch.hash"
local http, json, time = lunarch.http, lunarch.json, lunarch.time
local set = secrets.set

local METADATA <const> = "169.254.169.254" -- of instances, of Google's containers and functions; no name, which would have to be looked up
local TOKENS <const> = "https://oauth2.googleapis.com/token"
local SCOPE <const> = "https://www.googleapis.com/auth/cloud-platform"
local NEAR <const>, FAR <const> = 3, 10 -- seconds: the services of the machine itself, and Google's
local HOUR <const> = 3600
local CHAIN <const> = 3 -- accounts that act for each other

local of_credentials = { scope = "text", file = "text" }

-- ---- what the sources answer: a token; nil if the source is not set up; false and an error's text, and true if it did not answer ----

-- What the two of Google's forms of an error say.
local function complaint(r)
	local body = json.decode(r.body or "")
	local e = type(body) == "table" and body.error
	local text = type(e) == "table" and e.message or type(e) == "string" and e .. (body.error_description and ": " .. tostring(body.error_description) or "")
	return text and ": " .. tostring(text):gsub("%c", " "):sub(1, 200) or ""
end

local function ask(where, request)
	request.timeout, request.redirects, request.proxy = request.timeout or FAR, 0, secrets.proxy_of(request.url)
	local r, err = http.request(request)
	if not r then
		return false, ("%s: %s"):format(where, err.message), true
	elseif not r.ok then
		return false, ("%s: status %d%s"):format(where, r.status, complaint(r))
	end
	local answer = json.decode(r.body)
	if type(answer) ~= "table" then
		return false, where .. ": expected JSON, found something else"
	end
	return answer
end

local function from_answer(where, answer)
	if type(answer.access_token) ~= "string" then
		return false, where .. ": expected an access_token, found none"
	end
	return { token = answer.access_token, lasts = tonumber(answer.expires_in) or HOUR, source = where }
end

local function from_tokens(where, url, form)
	if not secrets.may_go(url) then
		return false, where .. ": expected a URL of https for its tokens, found another"
	end
	local answer, err, away = ask(where, { url = url, form = form })
	if not answer then
		return false, err, away
	end
	return from_answer(where, answer)
end

local function base64url(text)
	return (hash.base64(text):gsub("[+/=]", { ["+"] = "-", ["/"] = "_", ["="] = "" }))
end

-- A JSON web token (RFC 7523): this machine's clock has to be right to some minutes, which Google's answer says where it is not.
local function service_account(where, key, scope)
	if type(key.client_email) ~= "string" or type(key.private_key) ~= "string" then
		return false, where .. ": expected client_email and private_key, found a file without"
	end
	local url = key.token_uri or TOKENS
	local now = math.floor(time.now())
	local header = json.encode { alg = "RS256", typ = "JWT", kid = key.private_key_id }
	local claims = json.encode { iss = key.client_email, scope = scope, aud = url, iat = now, exp = now + HOUR }
	local text = base64url(header) .. "." .. base64url(claims)
	local signature, err = hash.rsa_sha256(key.private_key, text)
	if not signature then
		return false, ("%s: private_key: %s"):format(where, err.message)
	end
	return from_tokens(where, url, { grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer", assertion = text .. "." .. base64url(signature) })
end

local function authorized_user(where, key)
	if type(key.refresh_token) ~= "string" or type(key.client_id) ~= "string" then
		return false, where .. ": expected client_id and refresh_token, found a file without"
	end
	return from_tokens(where, key.token_uri or TOKENS, { grant_type = "refresh_token", client_id = key.client_id, client_secret = key.client_secret,
		refresh_token = key.refresh_token })
end

-- The account that another one's token may act as.
local function impersonated(where, url, base, scope, delegates)
	if not secrets.may_go(url) then
		return false, where .. ": service_account_impersonation_url: expected one of https, found another"
	end
	local answer, err, away = ask(where, { url = url, bearer = base.token, json = { scope = json.array { scope }, delegates = delegates } })
	if not answer then
		return false, err, away
	elseif type(answer.accessToken) ~= "string" then
		return false, where .. ": expected an accessToken, found none"
	end
	return { token = answer.accessToken, expires = time.parse(tostring(answer.expireTime)) or time.now() + HOUR, source = where }
end

-- What another cloud or cluster says of who this is: it is read each time, whoever made it replaces it.
local function subject_token(where, source)
	local text, why
	if type(source.file) == "string" then
		text, why = secrets.read(source.file)
	elseif type(source.url) == "string" and not source.environment_id then
		local r, err = http.get(source.url, { headers = source.headers, timeout = NEAR, redirects = 0, proxy = secrets.proxy_of(source.url) })
		text, why = r and r.ok and r.body, err and err.message or r and "status " .. r.status
	else
		why = "expected one with file or url: the others (AWS, an executable, a certificate) are not read here"
	end
	if not text then
		return nil, ("%s: credential_source: %s"):format(where, why)
	end
	local format = source.format
	if type(format) == "table" and format.type == "json" then
		local answer = json.decode(text)
		text = type(answer) == "table" and answer[format.subject_token_field_name]
		if type(text) ~= "string" then
			return nil, ("%s: credential_source: expected JSON with %s, found none"):format(where, tostring(format.subject_token_field_name))
		end
	end
	return text:match "^%s*(.-)%s*$"
end

local function external_account(where, key, scope)
	local subject, err = subject_token(where, type(key.credential_source) == "table" and key.credential_source or {})
	if not subject then
		return false, err
	end
	local url = key.service_account_impersonation_url
	local found, away
	found, err, away = from_tokens(where, key.token_url or "https://sts.googleapis.com/v1/token", { grant_type = "urn:ietf:params:oauth:grant-type:token-exchange",
		audience = key.audience, scope = url and SCOPE or scope, requested_token_type = "urn:ietf:params:oauth:token-type:access_token",
		subject_token = subject, subject_token_type = key.subject_token_type })
	if found and url then
		return impersonated(where, url, found, scope)
	end
	return found, err, away
end

local of_type -- an account's file may have another's in it

local function impersonated_service_account(where, key, scope, depth)
	local base, err, away = of_type(where, key.source_credentials, SCOPE, depth + 1)
	if not base then
		return false, err, away
	elseif type(key.service_account_impersonation_url) ~= "string" then
		return false, where .. ": expected service_account_impersonation_url, found a file without"
	end
	return impersonated(where, key.service_account_impersonation_url, base, scope, key.delegates)
end

local types = { service_account = service_account, authorized_user = authorized_user, external_account = external_account,
	impersonated_service_account = impersonated_service_account }

function of_type(where, key, scope, depth)
	local kind = type(key) == "table" and types[key.type]
	if not kind then
		return false, ("%s: expected the type service_account, authorized_user, external_account or impersonated_service_account, found %s"):format(where,
			type(key) == "table" and tostring(key.type) or "no JSON")
	elseif depth > CHAIN then
		return false, ("%s: more than %d accounts act for each other"):format(where, CHAIN)
	end
	return kind(where, key, scope, depth)
end

local function of_file(path, scope)
	local text, why = secrets.read(path)
	if not text then
		return false, "the credentials' file: " .. why
	end
	return of_type(path, json.decode(text), scope, 1)
end

-- The file that `gcloud auth application-default login` writes.
local function of_login(scope)
	local path = (set "CLOUDSDK_CONFIG" or (os.getenv "HOME" or "") .. "/.config/gcloud") .. "/application_default_credentials.json"
	local file = io.open(path)
	if not file then
		return nil
	end
	file:close()
	return of_file(path, scope)
end

-- An instance's service account, also a pod's of GKE, and of Cloud Run and its like. Which scopes it has was said when the instance was made.
local function instance()
	if (set "NO_GCE_CHECK" or ""):lower() == "true" then
		return nil
	end
	local where = "the metadata server"
	local url = ("http://%s/computeMetadata/v1/instance/service-accounts/default/token"):format(set "GCE_METADATA_HOST" or METADATA)
	local answer, err = ask(where, { url = url, headers = { ["Metadata-Flavor"] = "Google" }, timeout = NEAR })
	if not answer then
		return false, err
	end
	return from_answer(where, answer)
end

local function find(file, scope)
	local named = file or set "GOOGLE_APPLICATION_CREDENTIALS"
	if named then
		return of_file(named, scope)
	end
	local found, err, away = of_login(scope)
	if found ~= nil then
		return found, err, away
	end
	found, err = instance()
	return found, ("no file in GOOGLE_APPLICATION_CREDENTIALS, no login of gcloud's%s"):format(err and "; " .. err or "")
end

return function(natives)
	local Credentials = use "credentials"(natives, "gcp", function(self) return find(self.file, self.scope) end)

	function Credentials:token(timeout)
		local kept, err = self:get(timeout)
		if not kept then
			return nil, err
		end
		return kept.token
	end

	local gcp = {}

	function gcp.credentials(options)
		options = given.options("gcp.credentials", options, of_credentials)
		return setmetatable({ file = options.file, scope = options.scope or SCOPE }, Credentials)
	end

	return gcp
end
