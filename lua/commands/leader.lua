-- lunarch leader: the address of who leads, and nothing else on stdout.

local use = ...

local POLL <const> = 0.25

return function(natives, options)
	local say = use "commands/say"(natives, "leader")
	local now = natives.time.monotonic
	local handle, err = natives.lock_open(options.locks[1], options.state_dir)
	if not handle then
		return say.fail_of(err)
	end
	local by = now() + options.wait / 1000
	while true do
		local watched = handle:watch() -- a lock in Lua may give notices from later on
		local good, why = handle:read(say.TIMEOUT)
		if not good then
			return say.fail_of(why)
		end
		local s, left = handle:shown(), by - now()
		if s.state == "leading" and s.address then
			io.stdout:write(s.address, "\n")
			return 0
		elseif left <= 0 then
			return say.fail(say.NOBODY, ("%s: %s%s"):format(s.lock, use "commands/record_text"(natives).headline(s),
				s.state == "leading" and ", but publishes no address (--address)"
				or s.held and "; --wait finds out whether it still renews" or ""))
		end
		handle:changed(watched and left or math.min(left, POLL))
	end
end
