-- lunarch list: a line for each election of a place.

local use = ...

return function(natives, options)
	local say = use "commands/say"(natives, "list")
	local record_text = use "commands/record_text"(natives)
	use "lunarch.lock"(natives)

	if options[2] then
		return say.fail(2, ("one URL at a time: unexpected '%s'"):format(options[2]))
	end
	local rows, leaderless, elections = {}, false, 0

	local function show(s)
		leaderless = leaderless or s.state ~= "leading"
		elections = elections + 1
		if options.json then
			say.line(record_text.json(s))
			return
		end
		rows[#rows + 1] = { s.lock, s.state, s.holder, s.held and s.address, s.term, s.token,
			s.held and s.acquired_us and say.time(s.acquired_us) }
	end

	local found, err = natives.lock_look({ url = options[1] or "", timeout = say.TIMEOUT, state_dir = options.state_dir }, show)
	if #rows > 0 then
		say.table({ "LOCK", "STATE", "LEADER", "ADDRESS", "TERM", "TOKEN", "SINCE" }, rows)
	end
	if not found then
		return say.fail_of(err)
	end
	if found.more then
		say.fail(0, ("there are more than these %d names: a longer prefix shows fewer"):format(found.names))
	end
	if found.others > 0 then
		say.fail(0, ("%d more that begin so are no elections"):format(found.others))
	end
	if found.unreadable > 0 then
		return say.fail(69, ("%d could not be read, the first one since: %s"):format(found.unreadable, found.first.message))
	elseif elections == 0 and found.others == 0 then
		return say.fail(1, "no election begins so; to see what is in a directory, end its name with a slash")
	end
	return elections > 0 and not leaderless and 0 or 1
end
