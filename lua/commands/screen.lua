-- What is drawn again and again in place (runtime/client/screen.h): lines that are cut to the window.

local HOME <const>, LINE_END <const>, SCREEN_END <const> = "\27[H", "\27[K", "\27[J"

-- So many columns of it, as far as characters are one column wide. A sequence for a colour (ESC [ ... m) has none.
local function cut(line, most)
	local out, at = {}, 1
	while at <= #line do
		local piece = line:match("^\27[^m]*m?", at) or line:match("^.[\x80-\xbf]*", at)
		local columns = piece:byte() == 27 and 0 or 1
		if columns <= most then
			out[#out + 1] = piece
		end
		most = most - columns
		at = at + #piece
	end
	return table.concat(out) .. LINE_END
end

-- screen: enter, measure() -> columns, lines, colour, write. text: lines.
return function(screen, text, columns, most)
	local out = {}
	for line in text:gmatch "([^\n]*)\n?" do
		if #out < most then
			out[#out + 1] = cut(line, columns)
		end
	end
	screen.write(HOME .. table.concat(out, "\r\n") .. SCREEN_END)
end
