-- lunarch.aws: credentials, the region and the endpoint for requests to AWS, and to what speaks its protocols, found where the AWS tools find them.
-- They are for http's option aws_sigv4, which signs. Not here: the services themselves, and logins that need a person (SSO).

local use = ...
local given = use "given"
local secrets = use "secrets"
local element = use "xml"
local lunarch = require "lunarch"
local http, json, time = lunarch.http, lunarch.json, lunarch.time
local set = secrets.set

local METADATA <const> = "http://169.254.169.254" -- of instances; version 2 of its protocol alone
local METADATA_V6 <const> = "http://[fd00:ec2::254]"
local CONTAINER <const> = "http://169.254.170.2"
local NEAR <const>, STS <const>, PROCESS <const> = 2, 10, 60 -- seconds: the services of the machine itself, STS, and a credential_process
local CHAIN <const> = 5 -- profiles that refer to each other

local of_credentials = { profile = "text", region = "text" }

-- ---- files ----

-- A line that is further in than the key before it belongs to that key: after "s3 =" the key "addressing_style" is "s3.addressing_style" here.
local function parse(text, name_of)
	local sections, current, above, depth = {}, nil, nil, 0
	for line in (text or ""):gmatch "[^\r\n]+" do
		local heading, blanks = line:match "^%[%s*(.-)%s*%]", #line:match "^%s*"
		local key, value = line:match "^%s*([^#;=%s][^=]-)%s*=%s*(.-)%s*$"
		if heading then
			local name = name_of(heading)
			current, above = name and (sections[name] or {}), nil
			sections[name or ""] = current
		elseif current and key and above and blanks > depth then
			if current[above] == "" then
				current[above .. "." .. key:lower()] = value
			end
		elseif current and key then
			above, depth = key:lower(), blanks
			current[above] = value
		end
	end
	return sections
end

local function in_config(heading)
	local services = heading:match "^services%s+[\"']?(.-)[\"']?$"
	return services and "services " .. services or heading == "default" and heading or heading:match "^profile%s+[\"']?(.-)[\"']?$"
end

local function in_credentials(heading)
	return heading
end

local function place_of(variable, name)
	return os.getenv(variable) or (os.getenv "HOME" or "") .. "/.aws/" .. name
end

local function of_config(name)
	return parse(secrets.read(place_of("AWS_CONFIG_FILE", "config")), in_config)[name]
end

-- Both files' keys of a profile; what the credentials file says counts. nil: neither has it.
local function profile_of(name)
	local config = of_config(name)
	local secret = parse(secrets.read(place_of("AWS_SHARED_CREDENTIALS_FILE", "credentials")), in_credentials)[name]
	if not config and not secret then
		return nil
	end
	local profile = config or {}
	for key, value in pairs(secret or {}) do
		profile[key] = value
	end
	return profile
end

-- ---- where a service is asked ----

-- nil: nothing names one; false and an error's text: what names one is wrong.
local function configured(service, name, profile)
	if (set "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS" or profile.ignore_configured_endpoint_urls or ""):lower() == "true" then
		return nil
	end
	local services = profile.services and of_config("services " .. profile.services)
	if profile.services and not services then
		return false, ("profile %s: services = %s: expected a section [services %s], found none"):format(name, profile.services, profile.services)
	end
	local url = set("AWS_ENDPOINT_URL_" .. service:upper()) or set "AWS_ENDPOINT_URL" or services and services[service .. ".endpoint_url"]
		or profile.endpoint_url
	if url and not url:find "^https?://[^/?#@%s]+/?$" then
		return false, ("the endpoint of %s, in AWS_ENDPOINT_URL or profile %s: expected a URL as https://HOST:PORT, found another text"):format(service, name)
	end
	return url
end

-- Amazon's own. China's partition has domains of its own.
local function host_of(service, region, profile)
	local function is_set(name, key)
		return (set(name) or profile[key] or ""):lower() == "true"
	end
	local china = region:find "^cn%-" ~= nil
	local domain, new = china and "amazonaws.com.cn" or "amazonaws.com", china and "api.amazonwebservices.com.cn" or "api.aws"
	local name = service .. (is_set("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint") and "-fips" or "")
	if not is_set("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint") then
		return ("%s.%s.%s"):format(name, region, domain)
	elseif service == "s3" then
		return ("s3%s.dualstack.%s.%s"):format(name:sub(3), region, domain)
	end
	return ("%s.%s.%s"):format(name, region, new)
end

local function chosen(name)
	name = name or set "AWS_PROFILE" or "default"
	return name, profile_of(name) or {}
end

-- The URL, and whether it was configured; nil and an error's text.
local function endpoint_of(service, region, name)
	local profile
	name, profile = chosen(name)
	local url, wrong = configured(service, name, profile)
	if url == false then
		return nil, wrong
	end
	return url or "https://" .. host_of(service, region, profile), url ~= nil
end

-- ---- what the sources answer: credentials; nil if the source is not set up; false and an error's text, and true if it did not answer ----

local function from_json(text, where)
	local answer = json.decode(text)
	if type(answer) ~= "table" then
		return false, where .. ": expected JSON, found something else"
	end
	local token = answer.Token or answer.SessionToken
	if type(answer.AccessKeyId) ~= "string" or type(answer.SecretAccessKey) ~= "string" then
		local why = answer.Code or answer.code or answer.message or answer.Message
		return false, ("%s: expected AccessKeyId and SecretAccessKey, found none%s"):format(where, type(why) == "string" and ": " .. why or "")
	end
	local expiration = type(answer.Expiration) == "string" and time.parse(answer.Expiration) or nil
	return { key = answer.AccessKeyId, secret = answer.SecretAccessKey, token = type(token) == "string" and token or nil, expires = expiration,
		source = where }
end

local function ask(where, request)
	request.timeout, request.redirects = request.timeout or NEAR, 0
	local r, err = http.request(request)
	if not r then
		return false, ("%s: %s"):format(where, err.message), true
	elseif not r.ok then
		local code, message = element(r.body, "Code"), element(r.body, "Message")
		return false, ("%s: status %d%s%s"):format(where, r.status, code and ": " .. code or "", message and ": " .. message or "")
	end
	return r
end

local function environment()
	local key, secret = set "AWS_ACCESS_KEY_ID", set "AWS_SECRET_ACCESS_KEY"
	if not key then
		return nil
	elseif not secret then
		return false, "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"
	end
	return { key = key, secret = secret, token = set "AWS_SESSION_TOKEN", source = "the environment" }
end

local function session_name(name)
	return name or ("lunarch-%d"):format(math.floor(time.now()))
end

-- profile: nil: the environment's.
local function from_sts(where, region, profile, form, sign)
	form.Version = "2011-06-15"
	local url, known = endpoint_of("sts", region or "us-east-1", profile)
	if not url then
		return false, ("%s: %s"):format(where, known)
	elseif not region and not known then
		url = "https://sts.amazonaws.com"
	end
	local r, err, away = ask(where, { url = url:gsub("/+$", "") .. "/", form = form, timeout = STS, aws_sigv4 = sign })
	if not r then
		return false, err, away
	end
	local key, secret, token = element(r.body, "AccessKeyId"), element(r.body, "SecretAccessKey"), element(r.body, "SessionToken")
	if not key or not secret or not token then
		return false, where .. ": expected credentials, found another answer"
	end
	return { key = key, secret = secret, token = token, expires = time.parse(element(r.body, "Expiration") or ""), source = where }
end

-- The token's file is read each time: whoever made it replaces it.
local function web_identity(file, role, name, region, profile)
	if not file or not role then
		return nil
	end
	local token, why = secrets.read(file)
	if not token then
		return false, "web identity: the token's file: " .. why
	end
	return from_sts("web identity, by STS", region, profile, { Action = "AssumeRoleWithWebIdentity", RoleArn = role, RoleSessionName = session_name(name),
		WebIdentityToken = token:match "^%s*(.-)%s*$" })
end

-- As the AWS tools do: over plain HTTP only this machine itself, and the addresses that ECS and EKS have for it.
local of_containers = { ["169.254.170.2"] = true, ["169.254.170.23"] = true, ["fd00:ec2::23"] = true }

local function container()
	local relative, full = set "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", set "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	local url = relative and CONTAINER .. relative or full
	if not url then
		return nil
	elseif not secrets.may_go(url, of_containers) then
		return false, "AWS_CONTAINER_CREDENTIALS_FULL_URI: expected https, or an address of this machine, found another host"
	end
	local token, file = set "AWS_CONTAINER_AUTHORIZATION_TOKEN", set "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
	if file then
		local text, why = secrets.read(file)
		if not text then
			return false, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: " .. why
		end
		token = text:match "^%s*(.-)%s*$"
	end
	local r, err, away = ask("the container's credentials", { url = url, headers = { Accept = "application/json", Authorization = token },
		proxy = secrets.proxy_of(url) })
	if not r then
		return false, err, away
	end
	return from_json(r.body, "the container's credentials")
end

local function metadata_url()
	return (set "AWS_EC2_METADATA_SERVICE_ENDPOINT"
		or ((set "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE" or ""):lower() == "ipv6" and METADATA_V6 or METADATA)):gsub("/+$", "")
end

local function instance()
	if (set "AWS_EC2_METADATA_DISABLED" or ""):lower() == "true" then
		return nil
	end
	local where, base = "the instance's metadata", metadata_url()
	local proxy = secrets.proxy_of(base)
	local r, err = ask(where, { method = "PUT", url = base .. "/latest/api/token", proxy = proxy,
		headers = { ["X-aws-ec2-metadata-token-ttl-seconds"] = "21600" } })
	if not r then
		return false, err
	end
	local headers = { ["X-aws-ec2-metadata-token"] = r.body:match "^%s*(.-)%s*$" }
	local roles = base .. "/latest/meta-data/iam/security-credentials/"
	r, err = ask(where, { url = roles, headers = headers, proxy = proxy })
	local role = r and r.body:match "^%s*([^\r\n]+)"
	if not role then
		return false, err or where .. ": this instance has no role"
	end
	r, err = ask(where, { url = roles .. role:match "^(.-)%s*$", headers = headers, proxy = proxy })
	if not r then
		return false, err
	end
	return from_json(r.body, where)
end

local function process(command)
	local r, err = lunarch.exec({ "sh", "-c", command, timeout = PROCESS })
	if not r then
		return false, "credential_process: " .. err.message
	elseif not r.ok then
		return false, ("credential_process: it failed: %s"):format((r.stderr:gsub("%s+$", "")):sub(1, 200))
	end
	return from_json(r.stdout, "credential_process")
end

local of_profile -- a role's profile refers to another one

local function source_of(name, profile, region, depth)
	if profile.source_profile then
		return of_profile(profile.source_profile, region, depth + 1, profile.source_profile == name)
	end
	local sources = { Environment = environment, EcsContainer = container, Ec2InstanceMetadata = instance }
	local source = sources[profile.credential_source or ""]
	if not source then
		return false, ("profile %s: it has role_arn: expected source_profile or credential_source beside it"):format(name)
	end
	return source()
end

local function assumed(name, profile, region, depth)
	local base, err, away = source_of(name, profile, region, depth)
	if not base then
		return false, err or ("profile %s: what its role is assumed with has no credentials"):format(name), away
	end
	return from_sts(("profile %s, by STS"):format(name), region, name, { Action = "AssumeRole", RoleArn = profile.role_arn,
		RoleSessionName = session_name(profile.role_session_name), ExternalId = profile.external_id, DurationSeconds = profile.duration_seconds },
		{ region = region or "us-east-1", service = "sts", key = base.key, secret = base.secret, token = base.token })
end

-- itself: a role is assumed with the keys that its own profile has.
function of_profile(name, region, depth, itself)
	local profile = profile_of(name)
	if not profile then
		return nil
	elseif depth > CHAIN then
		return false, ("profile %s: more than %d profiles refer to each other"):format(name, CHAIN)
	end
	region = region or profile.region
	if profile.role_arn and profile.web_identity_token_file then
		return web_identity(profile.web_identity_token_file, profile.role_arn, profile.role_session_name, region, name)
	elseif profile.role_arn and not itself then
		return assumed(name, profile, region, depth)
	elseif profile.aws_access_key_id and profile.aws_secret_access_key then
		return { key = profile.aws_access_key_id, secret = profile.aws_secret_access_key, token = profile.aws_session_token,
			source = "profile " .. name }
	elseif profile.credential_process then
		return process(profile.credential_process)
	elseif profile.sso_session or profile.sso_start_url then
		return false, ("profile %s: a login by SSO is not read here: set credential_process = aws configure export-credentials "
			.. "--profile %s --format process in another profile"):format(name, name)
	end
	return nil
end

-- A profile that was asked for goes before the environment's keys.
local function find(profile, region)
	local name = profile or set "AWS_PROFILE" or "default"
	local asked = profile ~= nil or set "AWS_PROFILE" ~= nil
	local found, err, away
	if not profile then
		found, err = environment()
	end
	if found == nil and not profile then
		found, err, away = web_identity(set "AWS_WEB_IDENTITY_TOKEN_FILE", set "AWS_ROLE_ARN", set "AWS_ROLE_SESSION_NAME", region)
	end
	if found == nil then
		found, err, away = of_profile(name, region, 1)
	end
	if found == nil and asked and not profile_of(name) then
		return false, ("profile %s: neither of the AWS tools' files has it"):format(name)
	end
	if found == nil then
		found, err, away = container()
	end
	if found ~= nil then
		return found, err, away
	end
	found, err = instance()
	return found, ("no credentials in the environment, in profile %s, or for a container%s"):format(name, err and "; " .. err or "")
end

return function(natives)
	local Credentials = use "credentials"(natives, "aws", function(self) return find(self.profile, self.region) end)

	function Credentials:sign(service, region, timeout)
		given.text("credentials:sign: service", service)
		given.text("credentials:sign: region", region)
		local kept, err = self:get(timeout)
		if not kept then
			return nil, err
		end
		return { service = service, region = region, key = kept.key, secret = kept.secret, token = kept.token }
	end

	local aws = {}

	function aws.credentials(options)
		options = given.options("aws.credentials", options, of_credentials)
		return setmetatable({ profile = options.profile, region = options.region or aws.region(options.profile) }, Credentials)
	end

	function aws.endpoint(service, region, profile)
		given.text("aws.endpoint: service", service)
		given.text("aws.endpoint: region", region)
		local url, known = endpoint_of(service, region, profile)
		if not url then
			return natives.fail("invalid", "aws: " .. known)
		end
		return url, known
	end

	function aws.setting(name, profile)
		given.text("aws.setting: name", name)
		local _, of = chosen(profile)
		return of[name]
	end

	function aws.region(profile)
		local _, of = chosen(profile)
		if profile then
			return of.region or set "AWS_REGION" or set "AWS_DEFAULT_REGION"
		end
		return set "AWS_REGION" or set "AWS_DEFAULT_REGION" or of.region
	end

	return aws
end
