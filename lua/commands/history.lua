-- lunarch history: the last terms of a lock.

local use = ...

return function(natives, options)
	local say = use "commands/say"(natives, "history")
	local history_text = use "commands/history_text"(natives)
	local s, err = say.look(options.locks[1], options.state_dir)
	if not s then
		return say.fail_of(err)
	end
	local there = s.present
	if s.nomination then
		s = { lock = s.lock, state = "absent" }
		there = false
	end
	local known = s.past and #s.past > 0
	if options.json then
		io.stdout:write(history_text.json(s))
	elseif known then
		io.stdout:write((history_text.table(s)))
	else
		say.fail(say.NOBODY, ("%s: %s"):format(s.lock, there and "the record tells of no term: it is new, or its candidates are older than this"
			or "there is no record, so nobody has led yet, or it was deleted"))
	end
	return known and 0 or say.NOBODY
end
