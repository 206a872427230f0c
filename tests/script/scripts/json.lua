-- JSON: what goes through it unchanged, and what it refuses.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function same(a, b)
	if type(a) ~= "table" or type(b) ~= "table" then
		return a == b and math.type(a) == math.type(b)
	end
	for k, v in pairs(a) do
		if not same(v, b[k]) then
			return false
		end
	end
	for k in pairs(b) do
		if a[k] == nil then
			return false
		end
	end
	return true
end

local function through(text, what)
	local value, err = json.decode(text)
	equal(err == nil and json.encode(value) or tostring(err), text, what or text .. " survives a round trip")
end

local function numbers()
	equal(json.decode("15"), 15, "15 is an integer")
	equal(json.decode("[9007199254740993]")[1], 9007199254740993, "2^53+1 is decoded exactly")
	through("9007199254740993", "2^53+1 survives a round trip")
	for _, text in ipairs { "15", "0", "-1", "99999999999999", "100000000000000", "-100000000000000",
		"9223372036854775807", "-9223372036854775808", "1.5", "-0.0", "15.0", "0.1", "1e+300", "4.94065645841247e-324" } do
		through(text)
	end
	equal(json.decode("-0"), -0.0, "-0 is a float")
	ok(1 / json.decode("-0") < 0, "and negative")
	equal(json.decode("1e2"), 100.0, "1e2 is a float")
	equal(json.decode("9223372036854775808"), 2.0 ^ 63, "an integer that does not fit becomes a float")
	local exact = true
	for _ = 1, tap.many(2000) do
		local x = (math.random() - 0.5) * 10.0 ^ math.random(-300, 300)
		local back = json.decode(json.encode { x })[1]
		exact = exact and same(back, x)
		local n = math.random(0)
		exact = exact and same(json.decode(json.encode { n })[1], n)
	end
	ok(exact, "thousands of random floats and integers come back exactly")
	raises("NaN", "NaN is refused", json.encode, { a = { 0 / 0 } })
	raises("at value.a[2]", "and its place is named", json.encode, { a = { 1, 0 / 0 } })
	raises("infinite", "infinity is refused", json.encode, math.huge)
	raises("infinite", "so is minus infinity", json.encode, -math.huge)
	fails("invalid", "out of range", "a number too large for a float is refused", json.decode("1e999"))
end

local function nothing()
	ok(json.null ~= nil and json.null, "json.null is a value, and true")
	equal(json.decode("null"), json.null, "null is json.null")
	through("[null]")
	through('{"a":null}')
	raises("json.null", "nil is refused, and says what to use", json.encode, nil)
end

local function empties()
	through("[]")
	through("{}")
	through("[[],{},[[]]]")
	through('{"a":[]}')
	equal(json.encode(json.decode(" [ \n ] ")), "[]", "an empty array with spaces in it is one too")
	equal(json.encode {}, "{}", "an empty table is an object")
	equal(json.encode(json.array()), "[]", "json.array() is an empty array")
	local list = json.array {}
	list[1] = 5
	equal(json.encode(list), "[5]", "an array may be filled later")
	local got = json.decode("[]")
	got[1] = "x"
	equal(json.encode(got), '["x"]', "a decoded empty array too")
	raises("metatable", "json.array leaves other metatables alone", json.array, setmetatable({}, {}))
	list.name = 1
	raises("names and positions", "an array with a name in it is refused", json.encode, list)
end

local function texts()
	for _, text in ipairs { '""', '"a/b"', '"\\"\\\\"', '"\\u0000"', '"\\n\\t"', '"über €"', '"5"', '"-"', '"[]"' } do
		through(text)
	end
	for text, as in pairs {
		['"\\/\\b\\f"'] = "/\b\f", ['"\\ud83d\\ude00\\u20AC"'] = "😀€", ["\"a\xff\nb\""] = "a\xff\nb",
	} do
		equal(json.decode(text), as, ("%q is read"):format(text))
	end
	equal(json.encode "\b\f\r\1\127/", '"\\b\\f\\r\\u0001\\u007f/"', "each character that must be is escaped")
	for _, text in ipairs { "\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\u12", "\\u12g4", "\\u+123" } do
		fails("invalid", "escape", text .. " is refused", json.decode('"' .. text .. '"'))
	end
	local mark = "\127"
	for _, text in ipairs { mark, mark .. "n15", mark .. "a", mark .. "s", mark .. mark, '"' .. mark .. "n1", "\\" .. mark } do
		local value = { text, [2] = "x" }
		ok(same(json.decode(json.encode(value)), value), ("a text like our own marks stays a text (%q)"):format(text))
		local keyed = { [text] = { [text] = 1.5 }, other = mark }
		ok(same(json.decode(json.encode(keyed)), keyed), ("and as a key (%q)"):format(text))
	end
	equal(json.decode('"\\u007Fn15"'), mark .. "n15", "also when it is written as an escape")
	equal(json.decode('{"\\u007fa":1}')[mark .. "a"], 1, "also as a key")
	raises("UTF-8", "a text that is not UTF-8 is refused", json.encode, { "\xff" })
	raises("UTF-8", "a surrogate too", json.encode, { "\xed\xa0\x80" })
	raises("at value.k", "and its place is named", json.encode, { k = "\xff" })
end

local function tables()
	through("[1,2,[3,{\"a\":[1.5,true,false,null]}]]")
	raises("holes", "an array with a hole is refused", json.encode, { 1, nil, 3 })
	raises("holes", "and so is a far position", json.encode, { [1000000] = 1 })
	raises("names and positions", "a mixed table is refused", json.encode, { 1, a = 2 })
	raises("key", "a boolean key is refused", json.encode, { [true] = 1 })
	raises("key", "a float key is refused", json.encode, { [1.5] = 1 })
	raises("key", "position 0 is refused", json.encode, { [0] = 1 })
	raises("no function", "a function is refused", json.encode, { f = print })
	raises("no thread", "a coroutine is refused", json.encode, { coroutine.create(print) })
	local loop = {}
	loop.loop = loop
	raises("nested too deeply", "a table in itself is refused", json.encode, loop)
	local deep = json.decode(("["):rep(900) .. ("]"):rep(900))
	equal(#json.encode(deep), 1800, "900 levels are no trouble")
	local value = { 1, 2.5, { a = json.array() } }
	json.encode(value)
	ok(same(value, { 1, 2.5, { a = {} } }), "what is encoded is not changed")
	local many = {}
	for i = 1, tap.many(10000) do
		many[i] = { id = i, big = 2 ^ 53 | 0, at = i / 8, tags = json.array() }
	end
	ok(same(json.decode(json.encode(many)), many), "thousands of objects come back as they were")
end

local function too_much()
	local half = ("x"):rep(65 << 20)
	raises("json.encode: more than 128 MB, at value[2]", "130 MB in one value are refused", json.encode, { half, half })
	half = '"' .. half .. half .. '"'
	fails("full", "longer than 128 MB", "and in one text", json.decode(half))
end

local function bad_texts()
	for text, part in pairs {
		[""] = "character 1", ["[1,2"] = "character 5", ["[1] x"] = "character 5", ["[01]"] = "character 2",
		["[1.]"] = "number", ["[.5]"] = "character 2", ["[-]"] = "number", ["[1e]"] = "number", ["[+5]"] = "character 2",
		["[1,]"] = "character 4", ["{1:2}"] = "key", ["{[]:2}"] = "key", ["[NaN]"] = "character 2",
		["[Infinity]"] = "character 2", ["0x10"] = "character", ["nope"] = "character 1", ['"open'] = "character",
		["1 2"] = "character 3", ["[1\0]"] = "zero byte", ['["a" "b"]'] = "character 6", ["{\"a\":1,}"] = "key",
		['["\\x"]'] = "escape",
	} do
		fails("invalid", part, ("%q is refused"):format(text), json.decode(text))
	end
	fails("invalid", "", "2,000 levels are refused", json.decode(("["):rep(2000)))
	raises("string expected", "decoding a number is misuse", json.decode, 5)
	local _, err = json.decode("]")
	equal("it said: " .. err, "it said: " .. err.message, "an error goes into a text by ..")
	local instance = require "cjson"
	equal(json.null, instance.null, "lua-cjson's own null is the same")
end

return tap.election { numbers, nothing, empties, texts, tables, bad_texts, too_much }
