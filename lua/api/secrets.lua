-- Where a secret may be sent to, and variables and files that hold one. For the clouds' libraries (lua/lunarch/aws.lua, gcp.lua, azure.lua) and their locks. Not
-- here: which secrets there are (credentials.lua, and those libraries).

local secrets = {}

-- The environment's variable; nil if it is not set, or is empty.
function secrets.set(name)
	local value = os.getenv(name)
	return value ~= "" and value or nil
end

local function is_loopback(host)
	local a, b, c = host:match "^127%.(%d+)%.(%d+)%.(%d+)$"
	return host == "localhost" or host == "::1" or (a ~= nil and math.max(tonumber(a), tonumber(b), tonumber(c)) <= 255)
end

-- The URL's host, of "SCHEME://HOST" or "SCHEME://HOST:PORT" at its beginning; nil if anything else stands there, as a user before "@".
local function host_of(url, scheme)
	local place = url:match("^" .. scheme .. "://([^/]*)")
	local host = place and (place:match "^%[([%x:]+)%]$" or place:match "^%[([%x:]+)%]:%d+$" or place:match "^([%w._-]+)$" or place:match "^([%w._-]+):%d+$")
	return host
end

-- Whether a secret may be sent there: over TLS, or over plain HTTP to this machine alone. also: a table of hosts that are this machine's, too.
function secrets.may_go(url, also)
	local plain = host_of(url, "http")
	return host_of(url, "https") ~= nil or (plain ~= nil and (is_loopback(plain) or (also ~= nil and also[plain] ~= nil)))
end

-- http's option `proxy` for a request with a secret: what goes over plain HTTP goes straight to this machine's own service.
function secrets.proxy_of(url)
	return not url:find "^https://" and "" or nil
end

-- The file's text; nil and why not, with the path.
function secrets.read(path)
	local file <close>, why = io.open(path)
	if not file then
		return nil, why
	end
	local text
	text, why = file:read "a"
	if not text then
		return nil, ("%s: %s"):format(path, why) -- such as a directory's
	end
	return text
end

return secrets
