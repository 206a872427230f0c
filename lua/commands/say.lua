-- What the commands in Lua share: messages, exit statuses, tables and times for people.

return function(natives, command)
	local plain = natives.texts.plain
	local say = { TIMEOUT = 5, NOBODY = 1, USAGE = 2, UNREACHABLE = 69 }

	-- Prints "lunarch COMMAND: text" on stderr, whose control characters are shown but for the line breaks. The status.
	function say.fail(status, text)
		io.stdout:flush()
		text = ("lunarch %s: %s"):format(command, text):gsub("\n+$", "")
		io.stderr:write((text:gsub("[^\n]+", plain)), "\n")
		return status
	end

	-- A line that is to be read at once. Where it cannot be written, who reads has gone.
	function say.line(...)
		io.stdout:write(...)
		io.stdout:write("\n")
		io.stdout:flush()
	end

	function say.fail_of(err)
		return say.fail(err.usage and say.USAGE or say.UNREACHABLE, err.message)
	end

	-- The lock's record, read once: as `shown` of its handle returns it, or nil, err.
	function say.look(url, state_dir)
		local handle, err = natives.lock_open(url, state_dir)
		if not handle then
			return nil, err
		end
		local good, why = handle:read(say.TIMEOUT)
		if not good then
			return nil, why
		end
		return handle:shown()
	end

	-- "2026-11-22 23:04:47.123 "
	function say.now(us)
		return ("%s.%03d "):format(say.time(us), us // 1000 % 1000)
	end

	-- "2026-11-22 23:04:47" of microseconds since 1970.
	function say.time(us, form)
		return os.date(form or "%F %T", us // 1000000)
	end

	-- Of the milliseconds of an hour a person does not want the last three digits.
	function say.length(ms)
		return natives.texts.duration(ms >= 10000 and ms - ms % 1000 or ms)
	end

	-- In characters, as far as those of UTF-8 are one column wide.
	function say.width(text)
		return #text:gsub("[\x80-\xbf]", "")
	end

	-- Columns as wide as their widest cell. rows: lists of texts and numbers; nothing, or "", is shown as "-".
	function say.lines(titles, rows)
		local widths, out = {}, {}
		local all = table.move(rows, 1, #rows, 2, { titles })
		for i, row in ipairs(all) do
			all[i] = {}
			for c = 1, #titles do
				local cell = row[c]
				cell = plain((cell == nil or cell == false or cell == "") and "-" or tostring(cell))
				all[i][c] = cell
				widths[c] = math.max(widths[c] or 0, say.width(cell))
			end
		end
		for _, row in ipairs(all) do
			for c = 1, #titles - 1 do
				out[#out + 1] = row[c] .. (" "):rep(widths[c] - say.width(row[c]) + 2)
			end
			out[#out + 1] = row[#titles] .. "\n"
		end
		return table.concat(out)
	end

	function say.table(titles, rows)
		io.stdout:write(say.lines(titles, rows))
	end

	return say
end
