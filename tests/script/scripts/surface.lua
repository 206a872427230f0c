-- The rest of what a script sees: term, election, time, log, globals, require.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function the_term(term)
	equal(term.token, 100, "term.token")
	equal(term.identity, "me_0", "term.identity")
	equal(term.lock, "file:lock0", "term.lock")
	equal(term.address, "host:1", "term.address")
	equal(term:is_leading(), true, "term:is_leading()")
	ok(term:remaining() > 900 and term:remaining() <= 1000, "term:remaining() in seconds")
	ok(math.abs(term:deadline() - time.now() - term:remaining()) < 60, "term:deadline() is that much later, by the wall clock")
	raises("no 'tokn'", "an unknown field is an error", function() return term.tokn end)
	ok(tostring(term):find "^term %d+$", "a term prints")
	equal(term:spawn(function(x) return x end, 5):wait(), 5, "term:spawn")
	ok(election:is_leading(), "election:is_leading()")
	equal(election:lock(), "file:lock0", "election:lock()")
	equal(election:leader(), nil, "election:leader() is nil while nobody is known to lead")
end

local function the_time()
	ok(math.abs(time.now() - os.time()) < 2, "time.now")
	local a = time.monotonic()
	ok(time.monotonic() >= a, "time.monotonic does not go back")
	equal(time.iso(0), "1970-01-01T00:00:00.000000Z", "time.iso")
	equal(time.parse("2001-09-09T01:46:40Z"), 1e9, "time.parse")
	equal(time.parse("2001-09-09T03:46:40.5+02:00"), 1e9 + 0.5, "with a fraction and an offset")
	fails("invalid", "yesterday", "what is no time", time.parse "yesterday")
	equal(time.parse(time.iso(1234567890.25)), 1234567890.25, "there and back")
	raises("seconds since 1970", "years beyond 9999", time.iso, 1e15)
end

local function the_log()
	log.info "plain"
	log.warn("disk_low", { free = 5, path = "/a b" })
	log.error("Not an event", { a = 1 })
	log.debug(setmetatable({}, { __tostring = function() return "an object" end }))
	raises("table of fields", "log.info with a text as its second argument", log.info, "x %d", "y")
	print("a", nil, 1.5)
	print()
end

local function globals()
	raises("undefined global 'slep' (did you mean 'sleep'?)", "an undefined global, with a suggestion",
		function() return slep end) -- luacheck: ignore
	raises("surface.lua:", "and the line", function() return no_such_thing end) -- luacheck: ignore
	raises("undeclared global 'new_one'", "assigning to one", function() new_one = 1 end) -- luacheck: ignore
	equal(rawget(_G, "new_one"), nil, "and it is not assigned")
	ok(pcall(function() declared_at_load = 2 end), "one declared at load may change") -- luacheck: ignore
	equal(load("x_by_load = 5; return x_by_load", "=elsewhere")(), 5, "code from elsewhere may do as it likes")
	ok(lunarch.version and lunarch.sleep == sleep and require "lunarch" == lunarch, "the table lunarch has it all")
end

local function modules()
	equal(require "beside.module".name, "beside.module", "require looks beside the script")
	ok(not package.path:find("./?.lua;", 1, true) or package.path:find("^/"), "and not in the working directory")
	ok(not (";" .. package.path):find(";./", 1, true), "no relative directory is left in package.path", package.path)
	ok(not (";" .. package.cpath):find(";./", 1, true), "nor in package.cpath", package.cpath)
	equal(arg[0]:match "[^/]*$", "surface.lua", "arg[0] is the script")
end

local function warnings()
	setmetatable({}, { __gc = function() error "in a finalizer" end })
	collectgarbage()
	collectgarbage()
	ok(true, "an error in __gc ends nothing")
	warn("@on")
	warn("a ", "warning")
end

declared_at_load = 1 -- luacheck: ignore

return tap.election { the_term, the_time, the_log, globals, modules, warnings }
