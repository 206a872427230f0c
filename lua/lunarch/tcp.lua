-- lunarch.tcp: connections to servers whose protocol no other module speaks, also over TLS that begins later (runtime/script/api/lua_tcp.c). Not
-- here: protocols, and connections that are kept or made anew: who has one decides that.

local use = ...
local given = use "given"
local lunarch = require "lunarch"
local time = lunarch.time

local TIMEOUT <const> = 10
local LINE_MAX <const> = 1024 * 1024

local function a_port(v)
	return (math.type(v) ~= "integer" or v < 1 or v > 65535) and "a port from 1 to 65535" or nil
end

local known = { host = "text", port = a_port, timeout = "seconds", tls = "table" }
local known_tls = { ca = "text", cert = "text", key = "text", server_name = "text" }

return function(natives)
	local tcp = {}
	local Connection = { __name = "lunarch.TcpConnection" }
	Connection.__index = use "unknown"("connection", Connection, { name = true })

	local function failed(self, nothing, err, unsent)
		err.message = ("%s: %s"):format(self.name, err.message)
		err.unsent = unsent
		return nothing, err
	end

	-- More of what comes, behind self.rest. lunarch doctor --full: the answer to what was written is lost, as if the connection had broken.
	local function more(self, by)
		local part, err = self.core:read(by and math.max(0, by - time.monotonic()))
		if part and self.cut then
			self.core:close()
			part, err = natives.fail("unreachable", "the connection was closed before the answer's end")
		end
		if not part then
			return failed(self, nil, err)
		end
		self.rest = self.rest .. part
		return part
	end

	local function end_of(timeout)
		return timeout and time.monotonic() + timeout
	end

	-- The next line, without its end; nil and an error.
	function Connection:line(timeout)
		local by, from = end_of(timeout), 1
		while true do
			local at = self.rest:find("\n", from, true)
			if at then
				local line = self.rest:sub(1, at - 1)
				self.rest = self.rest:sub(at + 1)
				return (line:gsub("\r$", ""))
			elseif #self.rest > LINE_MAX then
				return failed(self, natives.fail("invalid", ("expected a line of at most %d bytes, found a longer one"):format(LINE_MAX)))
			end
			from = #self.rest + 1
			local part, err = more(self, by)
			if not part then
				return nil, err
			end
		end
	end

	-- The next bytes, so many; nil and an error.
	function Connection:bytes(count, timeout)
		if math.type(count) ~= "integer" or count < 0 then
			error(("connection:bytes: expected a whole number, 0 or more, found %s"):format(tostring(count)), 2)
		end
		local by = end_of(timeout)
		while #self.rest < count do
			local part, err = more(self, by)
			if not part then
				return nil, err
			end
		end
		local bytes = self.rest:sub(1, count)
		self.rest = self.rest:sub(count + 1)
		return bytes
	end

	-- It does not wait: what the other side does not take yet is kept. unsent: nothing of the text was sent.
	function Connection:write(text)
		if type(text) ~= "string" then
			error("connection:write: expected a text, found " .. (text == nil and "nil" or "a " .. type(text)), 2)
		end
		self.cut = self.cut or (natives.cut and natives.cut())
		local good, err = self.core:write(text)
		if not good then
			return failed(self, nil, err, true)
		end
		return true
	end

	-- From now on what is written goes over TLS, and what comes is expected so.
	function Connection:starttls(options)
		options = given.options("connection:starttls", options, known_tls)
		local spec = { host = self.host, ca = options.ca, cert = options.cert, key = options.key, server_name = options.server_name }
		if self.rest ~= "" then
			self.core:close()
			return failed(self, natives.fail("invalid", "the server has said more in plain text than was expected before TLS"))
		end
		local good, err = self.core:tls(spec)
		if not good then
			return failed(self, nil, err, true)
		end
		return true
	end

	function Connection:close()
		self.core:close()
	end

	Connection.__close = Connection.close

	function tcp.connect(options)
		options = given.options("tcp.connect", options, known)
		given.text("tcp.connect: host", options.host)
		if not options.port then
			error("tcp.connect: expected a port from 1 to 65535, found nil", 2)
		elseif not natives.tcp then
			error("tcp.connect: `lunarch test` makes no connections: give the code that calls it a stand-in", 2)
		end
		local name = (options.host:find(":", 1, true) and "[%s]:%d" or "%s:%d"):format(options.host, options.port)
		local self = setmetatable({ core = natives.tcp(), host = options.host, name = name, rest = "" }, Connection)
		local good, err = self.core:dial(options.host, options.port, options.timeout or TIMEOUT)
		if not good then
			err.unsent = true -- the message names host and port
			return nil, err
		end
		if options.tls then
			good, err = self:starttls(options.tls)
		end
		if not good then
			return nil, err
		end
		return self
	end

	return tcp
end
