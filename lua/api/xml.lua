-- element(xml, name): the text of the first element of this name, without escapes; nil if there is none. For what AWS answers: no attributes,
-- and no element inside one of the same name.

local entities = { lt = "<", gt = ">", amp = "&", quot = '"', apos = "'" }

local function plain(text)
	text = text:gsub("&#(x?)(%x+);", function(hex, digits)
		local number = tonumber(digits, hex == "x" and 16 or 10)
		return number and number < 0x110000 and utf8.char(number) or nil
	end)
	return (text:gsub("&(%a+);", entities))
end

return function(xml, name)
	local text = xml:match("<" .. name .. ">(.-)</" .. name .. ">")
	return text and plain(text)
end
