-- lunarch.vip: an IP address that the leader has. ip(8) adds it to a device. arping(8) of iputils tells the neighbours, so that their
-- packets come here at once. It does not check whether another machine has the address: the lock allows only one leader.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local ANNOUNCEMENTS <const>, TIMEOUT <const> = 3, 5
local PAUSE <const> = 1 -- seconds between announcements; there are several, since one may be lost
local known = { announcements = "count", timeout = "seconds" }

local function parse(address)
	local plain, prefix = address:match "^([%x:.]+)/?(%d*)$"
	local six = plain ~= nil and plain:find(":", 1, true) ~= nil
	local longest = six and 128 or 32
	prefix = prefix == "" and longest or tonumber(prefix)
	if not plain or not (six or plain:find "^%d+%.%d+%.%d+%.%d+$") or not prefix or prefix > longest then
		error(('vip.new: expected an address as "192.0.2.10/24" or "2001:db8::10/64", found "%s"'):format(address), 3)
	end
	return plain, prefix, six
end

return function(natives)
	local Address = { __name = "lunarch.Address" }
	Address.__index = use "unknown"("address", Address)

	function Address:__tostring()
		return self.address .. " on " .. self.device
	end

	-- nil and an error that says how a program failed.
	local function failure(self, doing, result, err)
		local code, text = "failed", result and (result.stderr .. result.stdout):gsub("%s+$", "") or err.message
		if not result then
			code = err.code
			text = text .. (code == "missing" and " (Debian has ip in iproute2, arping in iputils-arping)" or "")
		elseif text:find "not permitted" then
			code = "denied"
			text = text .. ": this needs root, or CAP_NET_ADMIN and CAP_NET_RAW"
		elseif text:find "annot find device" or text:find "does not exist" then
			code = "missing"
		end
		return natives.fail(code, ("vip: %s %s: %s"):format(doing, self, text))
	end

	local function announce(self)
		local result, err = lunarch.exec { "arping", "-q", "-U", "-c", "1", "-w", "2", "-I", self.device, self.plain, timeout = self.timeout }
		if result and result.ok then
			return true
		end
		return failure(self, "announcing", result, err)
	end

	local function announce_again(self)
		for _ = 2, self.announcements do
			lunarch.sleep(PAUSE)
			if not self.held then
				return
			end
			local told, err = announce(self)
			if not told then
				lunarch.log.warn("vip_announcement_failed", { address = self.address, device = self.device, why = err.message })
			end
		end
	end

	local function look(self, what, ...)
		local result, err = lunarch.exec { "ip", "-o", what, "show", "dev", self.device, timeout = self.timeout, ... }
		if result and result.ok then
			return result.stdout
		end
		return failure(self, "looking at", result, err)
	end

	local function setting(self, name, value)
		local path = ("/proc/sys/net/ipv6/conf/%s/%s"):format(self.device, name)
		local file = io.open(path, "r+")
		local old = file and file:read "l"
		if file and value ~= old then
			file:seek("set")
			file:write(value)
		end
		if file then
			file:close()
		end
		return old
	end

	-- The kernel tells the neighbours of an IPv6 address itself (ndisc_notify), after it has checked that nobody else has it. That check
	-- is switched off meanwhile: a former leader's machine that hangs may still answer it, and the address belongs to the leader.
	local function add_six(self, add)
		setting(self, "ndisc_notify", "1")
		local search = setting(self, "accept_dad", "0")
		local _ <close> = setmetatable({}, { __close = function() return search and setting(self, "accept_dad", search) end })
		local result, err = lunarch.exec(add)
		local deadline = lunarch.time.monotonic() + self.timeout
		while result and result.ok and lunarch.time.monotonic() < deadline do
			local text = look(self, "address", "to", self.plain)
			if not text or not text:find "tentative" then
				break
			end
			lunarch.sleep(0.05)
		end
		return result, err
	end

	function Address:take()
		local add = { "ip", "address", "replace", self.address, "dev", self.device, timeout = self.timeout }
		local result, err
		if self.six then
			result, err = add_six(self, add)
		else
			result, err = lunarch.exec(add)
		end
		if not (result and result.ok) then
			return failure(self, "taking", result, err)
		end
		self.held = true
		if self.six or self.announcements == 0 then
			return self
		end
		local told, why = announce(self)
		if not told then
			self:release()
			return nil, why
		end
		lunarch.spawn(announce_again, self)
		return self
	end

	function Address:is_here()
		local text, err = look(self, "address", "to", self.plain)
		if not text then
			return nil, err
		end
		return text:find "%S" ~= nil
	end

	function Address:has_link()
		local text, err = look(self, "link")
		if not text then
			return nil, err
		end
		return text:find "[<,]LOWER_UP[,>]" ~= nil
	end

	-- An address that is not there any more counts as released. ip(8) says that in different words, depending on the kernel.
	function Address:release()
		self.held = false
		local result, err = lunarch.exec { "ip", "address", "del", self.address, "dev", self.device, timeout = self.timeout }
		if result and result.ok then
			return true
		end
		local here, why = self:is_here()
		if here == false or (here == nil and result and why.code == "missing") then
			return true
		end
		return failure(self, "releasing", result, err)
	end

	-- After the end of the term nothing can wait, so exec fails. os.execute does not wait for other tasks, and ip(8) is quick.
	function Address:__close()
		local could_wait, released, err = pcall(self.release, self)
		if not could_wait then
			pcall(os.execute, ("ip address del %s dev %s 2>/dev/null"):format(self.address, self.device))
		elseif not released then
			lunarch.log.warn("vip_release_failed", { address = self.address, device = self.device, why = err.message })
		end
	end

	local vip = {}

	function vip.new(address, device, options)
		given.text("vip.new: address", address)
		given.text("vip.new: device", device)
		options = given.options("vip.new", options, known)
		if not device:find "^[%w_.-]+$" or #device > 15 then -- IFNAMSIZ
			error(('vip.new: "%s" is no name of a network device'):format(device), 2)
		end
		local plain, prefix, six = parse(address)
		return setmetatable({
			address = ("%s/%d"):format(plain, prefix), plain = plain, six = six, device = device, held = false,
			announcements = options.announcements or ANNOUNCEMENTS, timeout = options.timeout or TIMEOUT,
		}, Address)
	end

	return vip
end
