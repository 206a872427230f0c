-- A record as a text, for the commands in C. s: as `shown` of a lock's handle; s.form: which function of record_text.lua, or of
-- history_text.lua: "table", "brief", "terms" (JSON), or "drawing" with s.columns.

local use = ...

return function(natives, s)
	local history = { table = "table", brief = "table", terms = "json", drawing = "drawing" }
	if history[s.form] then
		return use "commands/history_text"(natives)[history[s.form]](s, s.form == "drawing" and s.columns or s.form == "brief") or ""
	end
	return use "commands/record_text"(natives)[s.form](s)
end
